//! The rules by which the server takes or refuses objects: those of resource.k8s.io/v1 in full, of pods what
//! concerns claims and extended resources, of all objects their metadata. The sentences are the real server's.
//! Pure: values in, errors out; rules that look at other objects are in `api`.

mod capacity;
mod cel;
mod claim;
mod claim_status;
mod metadata;
mod names;
mod pod;
mod slice;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::Subresource;
use crate::error::FieldError;
use crate::kinds::Kind;

pub(crate) type Errors = Vec<FieldError>;

/// Judges a new object.
pub(crate) fn create(kind: &Kind, object: &Value) -> Errors {
    let mut errors = metadata::check(kind, object);
    match kind.kind {
        "ResourceSlice" => slice::check(&mut errors, &object["spec"]),
        "DeviceClass" => claim::check_class(&mut errors, &object["spec"]),
        "ResourceClaim" => claim::check(&mut errors, "spec", &object["spec"]),
        "ResourceClaimTemplate" => claim::check_template(&mut errors, &object["spec"]),
        "Pod" => pod::check(&mut errors, &object["spec"]),
        _ => {}
    }
    errors
}

/// Judges an object that takes another's place.
pub(crate) fn update(kind: &Kind, new: &Value, old: &Value, part: Subresource) -> Errors {
    let mut errors = metadata::check(kind, new);
    match (kind.kind, part) {
        ("ResourceSlice", _) => {
            slice::check(&mut errors, &new["spec"]);
            for field in ["driver", "pool/name", "nodeName"] {
                let path = format!("spec.{}", field.replace('/', "."));
                immutable(&mut errors, &path, &format!("/spec/{field}"), new, old);
            }
        }
        ("DeviceClass", _) => claim::check_class(&mut errors, &new["spec"]),
        ("ResourceClaim", Subresource::Status) => claim_status::check(&mut errors, new, old),
        ("ResourceClaim" | "ResourceClaimTemplate", _) => {
            immutable(&mut errors, "spec", "/spec", new, old);
        }
        ("Pod", Subresource::Main) => pod::check_update(&mut errors, &new["spec"], &old["spec"]),
        _ => {}
    }
    errors
}

/// Requests with `adminAccess` need a labelled namespace; `labelled` is asked only if there is one.
pub(crate) fn admin_access(kind: &Kind, object: &Value, labelled: impl FnOnce() -> bool) -> Errors {
    let requests = match kind.kind {
        "ResourceClaim" => object.pointer("/spec/devices/requests"),
        "ResourceClaimTemplate" => object.pointer("/spec/spec/devices/requests"),
        _ => None,
    };
    let requests = requests.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let asking: Vec<usize> = (0..requests.len())
        .filter(|&index| requests.get(index).is_some_and(|r| r["exactly"]["adminAccess"] == true))
        .collect();
    if asking.is_empty() || labelled() {
        return Errors::new();
    }
    let refuse = |index| {
        FieldError::forbidden(
            &format!("spec.devices.requests[{index}].adminAccess"),
            "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace",
        )
    };
    asking.into_iter().map(refuse).collect()
}

fn immutable(errors: &mut Errors, path: &str, pointer: &str, new: &Value, old: &Value) {
    let (new, old) = (new.pointer(pointer), old.pointer(pointer));
    if new != old {
        errors.push(FieldError::invalid(path, new.unwrap_or(&Value::Null), "field is immutable"));
    }
}

/// The text of a field, empty if unset.
fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of a list field, none if unset.
fn list<'v>(object: &'v Value, field: &str) -> &'v [Value] {
    object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The entries of a map field, by key.
fn map<'v>(object: &'v Value, field: &str) -> Vec<(&'v String, &'v Value)> {
    let mut entries: Vec<_> =
        object.get(field).and_then(Value::as_object).into_iter().flatten().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

/// A list of at most `most`, each judged by `check`, with unique keys where `key` finds one.
fn each<'v>(
    errors: &mut Errors,
    path: &str,
    (items, most): (&'v [Value], usize),
    key: impl Fn(&'v Value) -> Option<&'v str>,
    mut check: impl FnMut(&mut Errors, &str, &'v Value),
) {
    if items.len() > most {
        errors.push(FieldError::too_many(path, items.len(), most));
    }
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        check(errors, &path, item);
        if let Some(key) = key(item).filter(|key| !seen.insert(*key)) {
            errors.push(FieldError::duplicate(&path, &Value::from(key)));
        }
    }
}

/// For lists whose elements may repeat.
fn no_key(_: &Value) -> Option<&str> {
    None
}
