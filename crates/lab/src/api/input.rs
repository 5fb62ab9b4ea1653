//! From a request's body to an object of its kind: type, unknown and doubled fields.

use serde_json::Value;

use super::ApiServer;
use crate::error::ApiError;
use crate::json::Document;
use crate::kinds::Kind;
use crate::schema;

/// What to do about unknown and doubled fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and say so in `Warning` headers.
    #[default]
    Warn,
    /// Refuse the object.
    Strict,
}

/// A body that was accepted: in the kept form, and what to warn about.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

impl ApiServer {
    pub(super) fn accept(
        &self,
        kind: &Kind,
        document: &Document,
        validation: FieldValidation,
    ) -> Result<Accepted, ApiError> {
        let body = &document.value;
        if !body.is_object() {
            return Err(ApiError::bad_request("the body is no object"));
        }
        check_type(kind, body)?;
        let decoded = self
            .faults
            .with_dropped(|dropped| schema::decode(kind.schema, body, dropped))
            .map_err(|mismatch| refused(kind, &mismatch.0))?;
        let duplicates =
            document.duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
        let unknown = decoded.unknown.iter().map(|path| format!("unknown field \"{path}\""));
        let complaints: Vec<String> = duplicates.chain(unknown).collect();
        let warnings = match validation {
            FieldValidation::Ignore => Vec::new(),
            FieldValidation::Warn => complaints,
            FieldValidation::Strict if complaints.is_empty() => complaints,
            FieldValidation::Strict => {
                let list = complaints.join(", ");
                return Err(refused(kind, &format!("strict decoding error: {list}")));
            }
        };
        let mut object = kind.to_stored(decoded.value);
        if kind.group != "events.k8s.io" {
            object["apiVersion"] = kind.api_version().into();
        }
        object["kind"] = kind.kind.into();
        Ok(Accepted { object, warnings })
    }
}

fn refused(kind: &Kind, why: &str) -> ApiError {
    let name = kind.kind;
    ApiError::bad_request(format!(
        "{name} in version \"{}\" cannot be handled as a {name}: {why}",
        kind.version
    ))
}

/// A body may leave out apiVersion and kind (the path says them), but may not contradict.
fn check_type(kind: &Kind, body: &Value) -> Result<(), ApiError> {
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let version = kind.api_version();
    if !text("apiVersion").is_empty() && text("apiVersion") != version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({version})",
            text("apiVersion")
        )));
    }
    if !text("kind").is_empty() && text("kind") != kind.kind {
        return Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: the path is of another kind",
            text("kind"),
            kind.version,
            kind.kind
        )));
    }
    Ok(())
}
