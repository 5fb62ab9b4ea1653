//! What an API server answers when it refuses: `Status` objects, and the field errors that an `Invalid` one
//! lists. The texts are the real server's, since clients and people match on them.

use std::fmt;

use serde_json::{Value, json};

use crate::kinds::Kind;

/// A refusal, as the API would answer it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, `Conflict` for example.
    pub reason: &'static str,
    /// The sentence for people.
    pub message: String,
    /// The object that is meant, if it is one.
    pub about: Option<Box<About>>,
    /// One entry per wrong field.
    pub causes: Vec<FieldError>,
    /// Seconds after which to try again.
    pub retry_after: Option<u32>,
}

/// The object that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Its API group.
    pub group: &'static str,
    /// Its resource, or its kind where its content is what is wrong.
    pub kind: &'static str,
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            about: None,
            causes: Vec::new(),
            retry_after: None,
        }
    }

    pub(crate) fn about(mut self, kind: &Kind, name: &str) -> Self {
        let about = About { name: name.to_owned(), group: kind.group, kind: kind.plural };
        self.about = Some(Box::new(about));
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified()))
            .about(kind, name)
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified()))
            .about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let what = kind.qualified();
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {what} \"{name}\": {why}"),
        )
        .about(kind, name)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: Vec<FieldError>) -> Self {
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{} \"{name}\" is invalid: {list}", kind.qualified_kind()),
        );
        let about = About { name: name.to_owned(), group: kind.group, kind: kind.kind };
        error.about = Some(Box::new(about));
        error.causes = causes;
        error
    }

    pub(crate) fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut details = serde_json::Map::new();
        let about = self.about.as_deref();
        let about = about
            .map(|about| [("name", &*about.name), ("group", about.group), ("kind", about.kind)]);
        for (key, value) in about.into_iter().flatten() {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(FieldError::to_cause).collect();
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldReason {
    /// The value breaks a rule.
    Invalid,
    /// No value where one is needed.
    Required,
    /// Not one of the known values.
    NotSupported,
    /// Another element has the same key.
    Duplicate,
    /// Not allowed here.
    Forbidden,
    /// More bytes than allowed.
    TooLong,
    /// More elements than allowed.
    TooMany,
    /// Names something that isn't there.
    NotFound,
    /// An apply meets a field of another manager.
    ManagerConflict,
}

impl FieldReason {
    /// The reason's name in `details.causes`.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::ManagerConflict => "FieldManagerConflict",
        }
    }
}

/// One wrong field: the path, and the sentence about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// What kind of mistake.
    pub reason: FieldReason,
    /// Such as `spec.devices[0].name`.
    pub field: String,
    /// Such as `Invalid value: "GPU-0": must not contain dots`.
    pub message: String,
}

impl FieldError {
    fn new(reason: FieldReason, field: &str, message: String) -> Self {
        Self { reason, field: field.to_owned(), message }
    }

    /// `value` is printed as JSON.
    pub(crate) fn invalid(field: &str, value: &Value, why: impl fmt::Display) -> Self {
        Self::new(FieldReason::Invalid, field, format!("Invalid value: {value}: {why}"))
    }

    pub(crate) fn required(field: &str, why: &str) -> Self {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        Self::new(FieldReason::Required, field, message)
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self::new(FieldReason::Forbidden, field, format!("Forbidden: {why}"))
    }

    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(FieldReason::Duplicate, field, format!("Duplicate value: {value}"))
    }

    pub(crate) fn too_many(field: &str, count: usize, most: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {most} items");
        Self::new(FieldReason::TooMany, field, message)
    }

    pub(crate) fn too_long(field: &str, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self::new(FieldReason::TooLong, field, message)
    }

    pub(crate) fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let message =
            format!("Unsupported value: \"{value}\": supported values: {}", list.join(", "));
        Self::new(FieldReason::NotSupported, field, message)
    }

    pub(crate) fn not_found(field: &str, value: &str, why: &str) -> Self {
        Self::new(FieldReason::NotFound, field, format!("Not found: \"{value}\": {why}"))
    }

    pub(crate) fn manager_conflict(field: String, message: String) -> Self {
        Self { reason: FieldReason::ManagerConflict, field, message }
    }

    fn to_cause(&self) -> Value {
        json!({"reason": self.reason.cause(), "message": self.message, "field": self.field})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
