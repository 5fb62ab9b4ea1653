//! The forms of an answer: whole objects, their metadata alone, or a table for people.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::table;
use crate::error::ApiError;
use crate::kinds::Kind;

/// The form that a client asks for by its `Accept` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Full,
    Table,
    Metadata,
}

impl Form {
    /// The first form in the list that can be served.
    pub(super) fn accepted(accept: &str) -> Result<Self, ApiError> {
        if accept.is_empty() {
            return Ok(Self::Full);
        }
        for choice in accept.split(',') {
            let mut parts = choice.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "application/*" | "*/*") {
                continue;
            }
            let mut form = Some(Self::Full);
            for part in parts {
                match part {
                    "as=Table" => form = Some(Self::Table),
                    "as=PartialObjectMetadata" | "as=PartialObjectMetadataList" => {
                        form = Some(Self::Metadata);
                    }
                    "v=v1" | "g=meta.k8s.io" => {}
                    other if other.starts_with("v=") || other.starts_with("g=") => form = None,
                    _ => {}
                }
            }
            if let Some(form) = form {
                return Ok(form);
            }
        }
        Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ))
    }

    /// One object in this form.
    pub(super) fn object(self, kind: &Kind, stored: &Value, include: &str) -> Value {
        match self {
            Self::Full => kind.shown(stored),
            Self::Table => table::of(kind, std::iter::once(stored), include, true),
            Self::Metadata => metadata(stored),
        }
    }

    /// An object of a watch; a table names its columns only the first time.
    pub(super) fn event(self, kind: &Kind, stored: &Value, include: &str, first: bool) -> Value {
        match self {
            Self::Table => table::of(kind, std::iter::once(stored), include, first),
            form => form.object(kind, stored, include),
        }
    }
}

pub(super) fn metadata(stored: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": stored["metadata"],
    })
}

pub(super) fn json(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - {}", Value::from(warning.as_str()));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

pub(super) fn error(err: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(err.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &err.to_status());
    if let Some(seconds) = err.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A response that could not be built.
pub(super) fn broken(err: &http::Error) -> ApiError {
    ApiError::new(500, "InternalError", format!("Internal error occurred: {err}"))
}
