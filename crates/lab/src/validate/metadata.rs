//! Names, labels, annotations and owners of any object.

use serde_json::{Value, json};

use super::{Errors, list, map, names, text};
use crate::error::FieldError;
use crate::kinds::Kind;

pub(super) fn check(kind: &Kind, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let metadata = &object["metadata"];
    let name = text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if kind.kind == "Namespace" {
        names::label(&mut errors, "metadata.name", name);
    } else {
        names::subdomain(&mut errors, "metadata.name", name);
    }
    labels(&mut errors, "metadata", metadata);
    for (key, _) in map(metadata, "annotations") {
        names::label_key(&mut errors, "metadata.annotations", &key.to_lowercase());
    }
    owners(&mut errors, metadata);
    for finalizer in list(metadata, "finalizers").iter().filter_map(Value::as_str) {
        names::label_key(&mut errors, "metadata.finalizers", finalizer);
    }
    errors
}

pub(super) fn labels(errors: &mut Errors, path: &str, metadata: &Value) {
    let path = format!("{path}.labels");
    for (key, value) in map(metadata, "labels") {
        names::label_key(errors, &path, key);
        names::label_value(errors, &path, value.as_str().unwrap_or_default());
    }
}

fn owners(errors: &mut Errors, metadata: &Value) {
    const PATH: &str = "metadata.ownerReferences";
    let owners = list(metadata, "ownerReferences");
    let mut controlling: Vec<String> = Vec::new();
    for owner in owners {
        let version = text(owner, "apiVersion");
        if version.split('/').next_back().unwrap_or_default().is_empty() {
            errors.push(FieldError::invalid(
                &format!("{PATH}.apiVersion"),
                &version.into(),
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                let path = format!("{PATH}.{field}");
                errors.push(FieldError::invalid(&path, &"".into(), "must not be empty"));
            }
        }
        if owner["controller"] == true {
            controlling.push(format!("{}/{}", text(owner, "kind"), text(owner, "name")));
        }
    }
    if let [first, second, ..] = controlling.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(FieldError::invalid(PATH, &json!(owners), why));
    }
}
