//! Verdicts recorded from a real API server (`tests/data/rejections.json`; its maker is
//! `tests/data/objects.jq`): ours agree in code, reason, message, causes and stored form.

use std::collections::BTreeMap;

use gpu_dra_lab::kinds::{self, Kind, NAMESPACE};
use gpu_dra_lab::{ApiServer, FieldValidation, Subresource, WriteOptions};
use serde_json::{Value, json};

/// Cases whose message shows the refused value as Go prints the server's internal type; ours shows the JSON, its
/// keys in alphabetical order. Everything else about them agrees.
const SHOWN_OTHERWISE: [&str; 10] = [
    "two controlling owners",
    "node selector of two terms",
    "attribute of two types",
    "claim: another count",
    "claim: another config",
    "claim: another device while allocated",
    "claim: status of a device that is not allocated",
    "template: another count",
    "pod with a claim and a template at once",
    "pod with neither claim nor template",
];

/// Cases that end in the words of a CEL parser, of which Go's and ours list the expected tokens differently.
const OTHER_PARSER: [&str; 2] = ["selector empty", "selector that does not parse"];

fn server() -> std::sync::Arc<ApiServer> {
    let server = ApiServer::new().unwrap();
    let admin = json!({"metadata": {"name": "admin", "labels": {"resource.kubernetes.io/admin-access": "true"}}});
    server.create(&NAMESPACE, "", admin, &WriteOptions::by("test")).unwrap();
    server
}

fn kind_of(object: &Value) -> &'static Kind {
    let text = |field: &str| object[field].as_str().unwrap();
    kinds::by_name(text("apiVersion"), text("kind")).unwrap()
}

/// What the record holds, from our server.
fn verdict(server: &ApiServer, case: &Value) -> Value {
    let object = case["object"].clone();
    let kind = kind_of(&object);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let options = WriteOptions {
        dry_run: true,
        field_validation: FieldValidation::Strict,
        ..WriteOptions::by("test")
    };
    let answer = match case.get("old") {
        None => server.create(kind, &namespace, object, &options),
        Some(old) => {
            let name = old["metadata"]["name"].as_str().unwrap().to_owned();
            let at = (&*namespace, &*name);
            let by = WriteOptions::by("test");
            server.create(kind, &namespace, old.clone(), &by).unwrap();
            if old.get("status").is_some() {
                server.update(kind, at, Subresource::Status, old.clone(), &by).unwrap();
            }
            let part = match case["subresource"].as_str() {
                Some("status") => Subresource::Status,
                _ => Subresource::Main,
            };
            let answer = server.update(kind, at, part, object, &options);
            server.delete(kind, at.0, at.1, &gpu_dra_lab::DeleteOptions::now()).unwrap();
            answer
        }
    };
    match answer {
        Ok(written) => {
            let mut stored = (*written.object).clone();
            let metadata = stored["metadata"].as_object_mut().unwrap();
            for field in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
                metadata.remove(field);
            }
            for device in stored
                .pointer_mut("/spec/devices")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                for taint in
                    device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten()
                {
                    taint["timeAdded"] = "1970-01-01T00:00:00Z".into();
                }
            }
            json!({"code": if written.created { 201 } else { 200 }, "stored": stored})
        }
        Err(refused) => {
            let status = refused.to_status();
            let causes = status.pointer("/details/causes").cloned().unwrap_or(json!([]));
            json!({"code": refused.code, "reason": refused.reason, "message": refused.message, "causes": causes})
        }
    }
}

#[test]
fn verdicts_agree_with_the_real_server() {
    let record: Value = serde_json::from_str(include_str!("../data/rejections.json")).unwrap();
    let server = server();
    let mut differing = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in record["cases"].as_array().unwrap() {
        let name = case["case"].as_str().unwrap();
        let ours = verdict(&server, case);
        let outcome = if case["code"].as_u64().unwrap() < 300 { "accepted" } else { "refused" };
        *counts.entry(outcome).or_default() += 1;
        for field in ["code", "reason", "message", "causes", "stored"] {
            let Some(theirs) = case.get(field) else { continue };
            let (theirs, mine) = match field {
                "message" | "causes" if SHOWN_OTHERWISE.contains(&name) => {
                    (without_values(theirs), without_values(&ours[field]))
                }
                "message" | "causes" if OTHER_PARSER.contains(&name) => {
                    (without_parser(theirs), without_parser(&ours[field]))
                }
                _ => (theirs.clone(), ours[field].clone()),
            };
            if theirs != mine {
                differing
                    .push(format!("{name}\n  {field} theirs {theirs}\n  {field} ours   {mine}"));
            }
        }
    }
    println!("{counts:?}");
    assert!(differing.is_empty(), "{} differences:\n{}", differing.len(), differing.join("\n"));
    assert!(counts["refused"] >= 150 && counts["accepted"] >= 70, "{counts:?}");
}

/// Messages without the shown value.
fn without_values(value: &Value) -> Value {
    texts(value, &|text| {
        let from = text.find("Invalid value: ").unwrap();
        let to = text.rfind("}: ").or(text.rfind("]: ")).unwrap();
        format!("{}…{}", &text[..from], &text[to + 1..])
    })
}

/// Messages up to the place at which the parser speaks.
fn without_parser(value: &Value) -> Value {
    texts(value, &|text| text[..text.find("ERROR: <input>").unwrap()].to_owned())
}

/// `value` with `change` made to each message in it.
fn texts(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) if text.contains("Invalid value: ") => change(text).into(),
        Value::Array(items) => items.iter().map(|item| texts(item, change)).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), texts(v, change))).collect(),
        other => other.clone(),
    }
}
