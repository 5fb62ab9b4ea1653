//! What makes an object the same object over its updates.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::store::Key;

/// Refuses an update that means another object, or an older state of this one.
pub(super) fn check_identity(
    kind: &Kind,
    key: &Key,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let metadata = &new["metadata"];
    let given = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    if let Some(name) = given("name").filter(|name| *name != key.name) {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.name
        )));
    }
    if given("namespace").is_some_and(|namespace| namespace != key.namespace) {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    if let Some(wanted) = given("uid").filter(|wanted| *wanted != uid) {
        return Err(ApiError::conflict(
            kind,
            &key.name,
            &format!(
                "Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            ),
        ));
    }
    let revision = given("resourceVersion").unwrap_or("0");
    if revision != "0" && old["metadata"]["resourceVersion"] != revision {
        return Err(ApiError::modified(kind, &key.name));
    }
    Ok(())
}

/// What no update changes.
pub(super) fn keep_identity(old: &Value, new: &mut Value) {
    for field in [
        "name",
        "namespace",
        "generateName",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "managedFields",
    ] {
        let kept = old["metadata"].get(field).cloned();
        let Some(metadata) = new["metadata"].as_object_mut() else {
            new["metadata"] = json!({});
            return keep_identity(old, new);
        };
        match kept {
            Some(value) => metadata.insert(field.to_owned(), value),
            None => metadata.remove(field),
        };
    }
}
