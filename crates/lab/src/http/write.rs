//! Create, update, patch, delete, deletecollection, and the binding of a pod to a node.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer;
use super::request::Call;
use crate::api::{self, ApiServer, DeleteOptions, PatchType, WriteOptions, Written};
use crate::error::ApiError;
use crate::json::{self, Document};

pub(super) fn serve(
    server: &Arc<ApiServer>,
    call: &Call,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let options = call.write_options()?;
    let at = (&*call.namespace, &*call.name);
    let written = match call.verb {
        "create" if call.subresource == "binding" => return bind(server, call, body, &options),
        "create" => {
            let document = object_body(call, body)?;
            server.create_document(call.kind, &call.namespace, &document, &options)
        }
        "update" => {
            let document = object_body(call, body)?;
            server.update_document(call.kind, at, call.part(), &document, &options)
        }
        "patch" => {
            let (patch_type, document) = patch_body(call, body)?;
            server.patch_document(call.kind, at, call.part(), (patch_type, &document), &options)
        }
        _ => return delete(server, call, body),
    }?;
    Ok(show(call, &written))
}

fn show(call: &Call, written: &Written) -> Response<Body> {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let value = call.form.object(call.kind, &written.object, call.param("includeObject"));
    let mut response = answer::json(code, &value);
    answer::warn(&mut response, &written.warnings);
    response
}

fn object_body(call: &Call, body: &[u8]) -> Result<Document, ApiError> {
    match &*call.content_type {
        "" | "application/json" => json::read_json(body),
        "application/yaml" => json::read_yaml(body),
        other => Err(unsupported(other)),
    }
}

fn patch_body(call: &Call, body: &[u8]) -> Result<(PatchType, Document), ApiError> {
    Ok(match &*call.content_type {
        "application/json-patch+json" => (PatchType::Json, json::read_json(body)?),
        "application/merge-patch+json" => (PatchType::Merge, json::read_json(body)?),
        "application/strategic-merge-patch+json" => (PatchType::Strategic, json::read_json(body)?),
        "application/apply-patch+yaml" => (PatchType::Apply, json::read_yaml(body)?),
        other => return Err(unsupported(other)),
    })
}

fn unsupported(media: &str) -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        format!("the body of the request was in an unknown format: {media}; send application/json"),
    )
}

fn delete(server: &Arc<ApiServer>, call: &Call, body: &[u8]) -> Result<Response<Body>, ApiError> {
    let options = delete_options(call, body)?;
    if call.verb == "deletecollection" {
        let selector = call.selector()?;
        let items = server.delete_collection(call.kind, &call.namespace, &selector, &options)?;
        let list = json!({
            "kind": format!("{}List", call.kind.kind), "apiVersion": call.kind.api_version(),
            "metadata": {}, "items": items.iter().map(|item| call.kind.shown(item)).collect::<Vec<_>>(),
        });
        return Ok(answer::json(StatusCode::OK, &list));
    }
    let last = server.delete(call.kind, &call.namespace, &call.name, &options)?;
    // These kinds answer with the object, the others with a Status.
    let shows_object = call.kind.group == "resource.k8s.io" || call.kind.plural == "pods";
    let value = if shows_object || last["metadata"].get("deletionTimestamp").is_some() {
        call.form.object(call.kind, &last, call.param("includeObject"))
    } else {
        api::success(call.kind, &call.name, &last["metadata"]["uid"])
    };
    Ok(answer::json(StatusCode::OK, &value))
}

fn delete_options(call: &Call, body: &[u8]) -> Result<DeleteOptions, ApiError> {
    let body = if body.is_empty() { Value::Null } else { json::read_yaml(body)?.value };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let grace = match call.param("gracePeriodSeconds") {
        "" => body["gracePeriodSeconds"].as_i64(),
        given => Some(given.parse().map_err(|_| {
            ApiError::bad_request(format!("gracePeriodSeconds is no number: {given}"))
        })?),
    };
    let policy = body["propagationPolicy"].as_str().unwrap_or(call.param("propagationPolicy"));
    let dry_run = call.param("dryRun") == "All"
        || body["dryRun"].as_array().is_some_and(|runs| runs.iter().any(|run| run == "All"));
    Ok(DeleteOptions {
        grace_period_seconds: grace,
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        orphan: policy == "Orphan" || body["orphanDependents"] == true,
        dry_run,
    })
}

/// `POST pods/x/binding`: the scheduler's way to give a pod its node.
fn bind(
    server: &Arc<ApiServer>,
    call: &Call,
    body: &[u8],
    options: &WriteOptions,
) -> Result<Response<Body>, ApiError> {
    let binding = json::read_json(body)?.value;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let at = (&*call.namespace, &*call.name);
    server.bind(at, node, options)?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(answer::json(StatusCode::CREATED, &status))
}
