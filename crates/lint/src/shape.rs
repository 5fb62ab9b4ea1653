//! The shape of objects: what the API server's strict decoding refuses, and versions that go
//! away. What strict decoding would say is found by decoding and writing the object again:
//! fields that are gone then are not the API's.

use gpu_dra_explain::Advice;
use gpu_dra_explain::manifest::Manifests;
use gpu_dra_model::config::nearest;
use serde_json::Value;

use crate::finding::{Findings, Rule, Severity};
use crate::object::{Object, pod_spec};
use crate::path::Path;

/// Fields of the resource API, to find the one that was meant.
const FIELDS: &[&str] = &[
    "adminAccess",
    "allocationMode",
    "capacity",
    "cel",
    "claims",
    "config",
    "constraints",
    "count",
    "deviceClassName",
    "devices",
    "distinctAttribute",
    "driver",
    "effect",
    "exactly",
    "expression",
    "extendedResourceName",
    "firstAvailable",
    "key",
    "matchAttribute",
    "metadata",
    "name",
    "opaque",
    "operator",
    "parameters",
    "request",
    "requests",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "selectors",
    "spec",
    "tolerations",
    "value",
];

/// What is wrong with the shape; `manifests` is the object alone, brought to v1.
pub(crate) fn lint(object: &Object<'_>, manifests: &Manifests, findings: &mut Findings) {
    for advice in manifests.refused.iter().map(|refusal| &refusal.advice) {
        let path = place(object, advice);
        findings.add(object, &path, Severity::Error, Rule::ApiShape, sentence(advice));
    }
    deprecated(object, manifests, findings);
    let decoded = if let Some(class) = manifests.classes.first() {
        serde_json::to_value(class)
    } else if let Some(claim) = manifests.claims.first() {
        serde_json::to_value(claim)
    } else if let Some(template) = manifests.templates.first() {
        serde_json::to_value(template)
    } else {
        return pod_fields(object, findings);
    };
    // With fields of another version there is nothing to compare; that is said already.
    if manifests.refused.is_empty()
        && !is_flat(object)
        && let Ok(decoded) = decoded
    {
        compare(object, &object.root, object.value, &decoded, findings);
    }
}

/// The first part that must be an object and isn't; then nothing can be looked for in it.
pub(crate) fn unsound(value: &Value) -> Option<&'static str> {
    const OBJECTS: &[&str] = &[
        "/metadata",
        "/spec",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/spec",
        "/spec/jobTemplate",
        "/spec/jobTemplate/spec",
        "/spec/jobTemplate/spec/template",
        "/spec/jobTemplate/spec/template/metadata",
        "/spec/jobTemplate/spec/template/spec",
    ];
    let is_other = |part: &Value| !part.is_object() && !part.is_null();
    OBJECTS.iter().copied().find(|pointer| value.pointer(pointer).is_some_and(is_other))
}

/// `problem: fix`.
pub(crate) fn sentence(advice: &Advice) -> String {
    match &advice.fix {
        Some(fix) => format!("{}: {fix}", advice.problem.trim_end_matches(':')),
        None => advice.problem.clone(),
    }
}

/// v1beta1 has the fields of requests without `exactly`.
fn is_flat(object: &Object<'_>) -> bool {
    object.value["apiVersion"] == "resource.k8s.io/v1beta1"
}

fn deprecated(object: &Object<'_>, manifests: &Manifests, findings: &mut Findings) {
    let version = object.value["apiVersion"].as_str().unwrap_or_default();
    let Some(version) = version.strip_prefix("resource.k8s.io/") else { return };
    let old = version.starts_with("v1beta") || version.starts_with("v1alpha");
    if !old
        || !matches!(
            object.kind.as_str(),
            "DeviceClass" | "ResourceClaim" | "ResourceClaimTemplate"
        )
    {
        return;
    }
    let message = match manifests.warnings.first() {
        Some(advice) => sentence(advice),
        None => format!(
            "resource.k8s.io/{version} is deprecated and goes with Kubernetes 1.38: write \
             apiVersion: resource.k8s.io/v1"
        ),
    };
    let path = object.root.key("apiVersion");
    findings.add(object, &path, Severity::Warning, Rule::DeprecatedApi, message);
}

/// The place that the advice is about, which it names in its words.
fn place(object: &Object<'_>, advice: &Advice) -> Path {
    let position = |list: &str, name: &str| {
        let items = object.value.pointer(&format!("/{}", list.replace('.', "/")));
        let items = items.and_then(Value::as_array);
        items.and_then(|items| items.iter().position(|item| item["name"] == name))
    };
    let lists = if let Some((_, name)) = advice.about.split_once(", request ") {
        [("spec.devices.requests", name), ("spec.spec.devices.requests", name)]
    } else if let Some((_, rest)) = advice.about.split_once(", resourceClaims[") {
        let name = rest.trim_end_matches(']');
        let spec = pod_spec(&object.kind).unwrap_or("spec");
        let path = format!("{spec}.resourceClaims");
        return match position(&path, name) {
            Some(place) => object.root.keys(&path).index(place),
            None => object.root.keys(spec),
        };
    } else {
        return object.root.clone();
    };
    let found = lists.iter().find_map(|(list, name)| Some((list, position(list, name)?)));
    found.map_or_else(|| object.root.clone(), |(list, place)| object.root.keys(list).index(place))
}

/// Fields that decoding doesn't know.
fn compare(
    object: &Object<'_>,
    path: &Path,
    written: &Value,
    decoded: &Value,
    findings: &mut Findings,
) {
    match (written, decoded) {
        (Value::Object(written), Value::Object(decoded)) => {
            for (name, value) in written.iter().filter(|(_, value)| !value.is_null()) {
                let path = path.key(name);
                match decoded.get(name) {
                    Some(decoded) => compare(object, &path, value, decoded, findings),
                    None if name == "status" => {}
                    None => unknown(object, &path, name, FIELDS, findings),
                }
            }
        }
        (Value::Array(written), Value::Array(decoded)) => {
            for (place, (value, decoded)) in written.iter().zip(decoded).enumerate() {
                compare(object, &path.index(place), value, decoded, findings);
            }
        }
        _ => {}
    }
}

fn unknown(object: &Object<'_>, path: &Path, name: &str, known: &[&str], findings: &mut Findings) {
    let fix = match nearest(name, known) {
        Some(near) if near != name => format!("did you mean {near}?"),
        Some(_) => "it belongs elsewhere".to_owned(),
        None => "remove it".to_owned(),
    };
    let message = format!("unknown field {name}: {fix}");
    findings.add(object, path, Severity::Error, Rule::UnknownField, message);
}

/// The fields of pods that name claims.
fn pod_fields(object: &Object<'_>, findings: &mut Findings) {
    let Some(spec) = pod_spec(&object.kind) else { return };
    let pointer = format!("/{}", spec.replace('.', "/"));
    let Some(value) = object.value.pointer(&pointer) else { return };
    let root = object.root.keys(spec);
    let mut check = |list: &Value, path: &Path, known: &[&str]| {
        for (place, entry) in list.as_array().into_iter().flatten().enumerate() {
            for name in entry.as_object().into_iter().flat_map(serde_json::Map::keys) {
                // `source` has a sentence of its own.
                if !known.contains(&name.as_str()) && name != "source" {
                    unknown(object, &path.index(place).key(name), name, known, findings);
                }
            }
        }
    };
    let known = ["name", "resourceClaimName", "resourceClaimTemplateName"];
    check(&value["resourceClaims"], &root.key("resourceClaims"), &known);
    for list in ["initContainers", "containers"] {
        for (place, container) in value[list].as_array().into_iter().flatten().enumerate() {
            let path = root.key(list).index(place).keys("resources.claims");
            check(&container["resources"]["claims"], &path, &["name", "request"]);
        }
    }
}
