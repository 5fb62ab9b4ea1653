//! Tables as `kubectl get` shows them: columns per kind, and the cells of an object.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::answer;
use crate::kinds::Kind;

/// A column: name, type, and 0 when always shown, 1 with `-o wide` only.
type Column = (&'static str, &'static str, u8);

const NAME: Column = ("Name", "string", 0);
const AGE: Column = ("Age", "string", 0);

fn columns(kind: &Kind) -> &'static [Column] {
    const TEXT: &str = "string";
    match kind.kind {
        "Node" => &[
            NAME,
            ("Status", TEXT, 0),
            ("Roles", TEXT, 0),
            AGE,
            ("Version", TEXT, 0),
            ("Internal-IP", TEXT, 1),
            ("OS-Image", TEXT, 1),
            ("Kernel-Version", TEXT, 1),
            ("Container-Runtime", TEXT, 1),
        ],
        "Pod" => &[
            NAME,
            ("Ready", TEXT, 0),
            ("Status", TEXT, 0),
            ("Restarts", TEXT, 0),
            AGE,
            ("IP", TEXT, 1),
            ("Node", TEXT, 1),
        ],
        "ResourceSlice" => &[NAME, ("Node", TEXT, 0), ("Driver", TEXT, 0), ("Pool", TEXT, 0), AGE],
        "ResourceClaim" => &[NAME, ("State", TEXT, 0), AGE],
        "Namespace" => &[NAME, ("Status", TEXT, 0), AGE],
        "ConfigMap" => &[NAME, ("Data", "integer", 0), AGE],
        "Secret" => &[NAME, ("Type", TEXT, 0), ("Data", "integer", 0), AGE],
        "Lease" => &[NAME, ("Holder", TEXT, 0), AGE],
        "Event" => &[
            ("Last Seen", TEXT, 0),
            ("Type", TEXT, 0),
            ("Reason", TEXT, 0),
            ("Object", TEXT, 0),
            ("Message", TEXT, 0),
            ("Count", "integer", 1),
            ("Name", TEXT, 1),
        ],
        _ => &[NAME, AGE],
    }
}

/// A table of the objects. `include` is the request's `includeObject`; without `head` the columns are left out,
/// as in all but the first event of a watch.
pub(super) fn of<'v>(
    kind: &Kind,
    objects: impl Iterator<Item = &'v Value>,
    include: &str,
    head: bool,
) -> Value {
    let definitions: Vec<Value> = columns(kind)
        .iter()
        .map(|(name, format, priority)| {
            json!({
                "name": name, "type": format, "priority": priority, "description": "",
                "format": if *name == "Name" { "name" } else { "" },
            })
        })
        .collect();
    let mut revision = Value::from("");
    let rows: Vec<Value> = objects
        .map(|object| {
            revision = object["metadata"]["resourceVersion"].clone();
            let mut row = json!({"cells": cells(kind, object)});
            match include {
                "None" => {}
                "Object" => row["object"] = kind.shown(object),
                _ => row["object"] = answer::metadata(object),
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision},
        "columnDefinitions": if head { Value::Array(definitions) } else { Value::Null },
        "rows": rows,
    })
}

fn cells(kind: &Kind, object: &Value) -> Vec<Value> {
    let at = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let name = Value::from(at("/metadata/name").unwrap_or_default());
    let age = Value::from(age(at("/metadata/creationTimestamp")));
    let none = |text: Option<&str>| Value::from(text.unwrap_or("<none>"));
    let entries = |field: &str| {
        Value::from(object[field].as_object().map(serde_json::Map::len).unwrap_or_default())
    };
    match kind.kind {
        "Node" => {
            let info = |field: &str| none(object["status"]["nodeInfo"][field].as_str());
            let address = internal_address(object);
            vec![
                name,
                node_status(object).into(),
                node_roles(object).into(),
                age,
                object["status"]["nodeInfo"]["kubeletVersion"].clone(),
                none(address),
                info("osImage"),
                info("kernelVersion"),
                info("containerRuntimeVersion"),
            ]
        }
        "Pod" => {
            let (ready, restarts) = pod_counts(object);
            vec![
                name,
                ready.into(),
                pod_status(object).into(),
                restarts.into(),
                age,
                none(at("/status/podIP")),
                none(at("/spec/nodeName")),
            ]
        }
        "ResourceSlice" => vec![
            name,
            Value::from(at("/spec/nodeName").unwrap_or("<unset>")),
            none(at("/spec/driver")),
            none(at("/spec/pool/name")),
            age,
        ],
        "ResourceClaim" => vec![name, claim_state(object).into(), age],
        "Namespace" => vec![name, none(at("/status/phase")), age],
        "ConfigMap" => vec![name, entries("data"), age],
        "Secret" => vec![name, Value::from(at("/type").unwrap_or("Opaque")), entries("data"), age],
        "Lease" => vec![name, none(at("/spec/holderIdentity")), age],
        "Event" => event(object, name),
        _ => vec![name, age],
    }
}

fn event(object: &Value, name: Value) -> Vec<Value> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let times = [
        object["series"]["lastObservedTime"].as_str(),
        object["lastTimestamp"].as_str(),
        object["eventTime"].as_str(),
    ];
    let about = &object["involvedObject"];
    let about = format!(
        "{}/{}",
        about["kind"].as_str().unwrap_or_default().to_lowercase(),
        about["name"].as_str().unwrap_or_default()
    );
    let count = object["series"]["count"].as_i64().or_else(|| object["count"].as_i64());
    vec![
        age(times.into_iter().flatten().next()).into(),
        text("type").into(),
        text("reason").into(),
        about.into(),
        text("message").trim().into(),
        count.unwrap_or(1).into(),
        name,
    ]
}

fn condition<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

fn node_status(node: &Value) -> String {
    let ready = match condition(node, "Ready").map(|ready| &ready["status"]) {
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node["spec"]["unschedulable"] == true;
    if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object();
    let roles = labels.into_iter().flatten().filter_map(|(key, _)| {
        key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty())
    });
    let roles: Vec<&str> = roles.collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn internal_address(node: &Value) -> Option<&str> {
    let addresses = node["status"]["addresses"].as_array()?;
    addresses.iter().find(|address| address["type"] == "InternalIP")?["address"].as_str()
}

fn pod_counts(pod: &Value) -> (String, i64) {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let statuses = statuses.map(Vec::as_slice).unwrap_or_default();
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let all = pod["spec"]["containers"].as_array().map(Vec::len).unwrap_or_default();
    let restarts = statuses.iter().filter_map(|status| status["restartCount"].as_i64()).sum();
    (format!("{ready}/{all}"), restarts)
}

fn pod_status(pod: &Value) -> String {
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return "Terminating".to_owned();
    }
    let statuses = pod["status"]["containerStatuses"].as_array();
    for status in statuses.into_iter().flatten() {
        for state in ["waiting", "terminated"] {
            if let Some(reason) = status["state"][state]["reason"].as_str() {
                return reason.to_owned();
            }
        }
    }
    let reason = pod["status"]["reason"].as_str();
    reason.or_else(|| pod["status"]["phase"].as_str()).unwrap_or("Unknown").to_owned()
}

fn claim_state(claim: &Value) -> String {
    let mut states = Vec::new();
    if claim["metadata"].get("deletionTimestamp").is_some() {
        states.push("deleted");
    }
    if claim["status"].get("allocation").is_none() {
        states.push("pending");
    } else {
        states.push("allocated");
        let reserved = claim["status"]["reservedFor"].as_array();
        if reserved.is_some_and(|consumers| !consumers.is_empty()) {
            states.push("reserved");
        }
    }
    states.join(",")
}

/// The time since a timestamp as people read it: `45s`, `12m`, `3h`, `5d`.
fn age(since: Option<&str>) -> String {
    let Some(since) = since.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let seconds = (Timestamp::now().as_second() - since.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn every_kind_has_as_many_cells_as_columns() {
        for kind in KINDS {
            assert_eq!(cells(kind, &json!({})).len(), columns(kind).len(), "{}", kind.kind);
        }
    }

    #[test]
    fn ages() {
        let ago = |seconds: i64| {
            let then = Timestamp::from_second(Timestamp::now().as_second() - seconds).unwrap();
            age(Some(&then.to_string()))
        };
        assert_eq!(ago(0), "0s");
        assert_eq!(ago(300), "5m");
        assert_eq!(ago(7200), "120m");
        assert_eq!(ago(86_400), "24h");
        assert_eq!(ago(864_000), "10d");
        assert_eq!(age(None), "<unknown>");
    }
}
