//! The controllers of the control plane: claims and the scheduler.

mod claims;
mod devices;
mod extended;
mod scheduler;

pub(crate) use claims::ClaimController;
pub(crate) use scheduler::Scheduler;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{ApiServer, PatchType, Subresource, WriteOptions};
use crate::error::ApiError;
use crate::kinds::Kind;

/// A text in an object, empty if it isn't there.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the pod ran to its end.
pub(crate) fn finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether someone wants the object gone.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// An owner reference to a pod.
pub(crate) fn owner(pod: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"], "controller": true,
    })
}

/// Merges into an object's status.
pub(crate) fn patch_status(
    server: &Arc<ApiServer>,
    kind: &'static Kind,
    at: (&str, &str),
    patch: Value,
    manager: &str,
) -> Result<(), ApiError> {
    let by = WriteOptions::by(manager);
    server.patch(kind, at, Subresource::Status, (PatchType::Merge, patch), &by).map(|_| ())
}
