//! What a request asks: which kind, namespace, object and part, by which verb, with which options.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, header};

use super::answer::Form;
use crate::api::{FieldValidation, Subresource, WriteOptions};
use crate::error::ApiError;
use crate::kinds::{self, Kind};
use crate::selector::Selector;

/// Where a path leads.
#[derive(Debug)]
pub(super) enum Route {
    /// Discovery, version, OpenAPI, health.
    Document(String),
    /// A verb on a kind.
    Call(Box<Call>),
}

/// A request for objects.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) verb: &'static str,
    pub(super) kind: &'static Kind,
    /// Empty: all namespaces, or a cluster-scoped kind.
    pub(super) namespace: String,
    /// Empty for collections.
    pub(super) name: String,
    /// `status`, `binding`, or empty.
    pub(super) subresource: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) form: Form,
    pub(super) content_type: String,
    agent: String,
}

impl Call {
    /// `resourceclaims/status`, as rights and counts name it.
    pub(super) fn resource(&self) -> String {
        match &*self.subresource {
            "" => self.kind.plural.to_owned(),
            part => format!("{}/{part}", self.kind.plural),
        }
    }

    pub(super) fn part(&self) -> Subresource {
        if self.subresource == "status" { Subresource::Status } else { Subresource::Main }
    }

    pub(super) fn param(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.param(name), "true" | "1")
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.param(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("Invalid value: \"{text}\": {name} is no number"))
            }),
        }
    }

    /// Narrowed by selectors, and to one object where a collection's request names it.
    pub(super) fn selector(&self) -> Result<Selector, ApiError> {
        Selector::parse(self.kind, self.param("labelSelector"), self.param("fieldSelector"))
    }

    pub(super) fn write_options(&self) -> Result<WriteOptions, ApiError> {
        let field_validation = match self.param("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                return Err(ApiError::bad_request(format!(
                    "fieldValidation: Unsupported value: \"{other}\""
                )));
            }
        };
        let manager = match self.param("fieldManager") {
            // As the real server: the program's name from the user agent.
            "" if self.content_type != "application/apply-patch+yaml" => {
                self.agent.split('/').next().unwrap_or_default()
            }
            given => given,
        };
        Ok(WriteOptions {
            dry_run: self.param("dryRun") == "All",
            field_manager: manager.to_owned(),
            field_validation,
            force: self.flag("force"),
        })
    }
}

pub(super) fn route(parts: &http::request::Parts) -> Result<Route, ApiError> {
    let path = parts.uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ if parts.method == Method::GET => return Ok(Route::Document(path.to_owned())),
        _ => return Err(ApiError::no_such_path()),
    };
    let (namespace, plural, name, subresource) = match rest {
        ["namespaces", namespace, plural, rest @ ..] if !is_part_of_namespace(plural) => match rest
        {
            [] => (*namespace, *plural, "", ""),
            [name] => (*namespace, *plural, *name, ""),
            [name, part] => (*namespace, *plural, *name, *part),
            _ => return Err(ApiError::no_such_path()),
        },
        [plural] => ("", *plural, "", ""),
        [plural, name] => ("", *plural, *name, ""),
        [plural, name, part] => ("", *plural, *name, *part),
        _ => return Err(ApiError::no_such_path()),
    };
    let kind = kinds::by_path(group, version, plural).ok_or_else(ApiError::no_such_path)?;
    // A single object of a namespaced kind is found in its namespace only, and the other way round.
    if kind.namespaced == namespace.is_empty() && !(kind.namespaced && name.is_empty()) {
        return Err(ApiError::no_such_path());
    }
    let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
        .map_err(|err| ApiError::bad_request(err.to_string()))?;
    let mut call = Call {
        verb: "get",
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        query: query.0.into_iter().collect(),
        form: Form::accepted(text(&parts.headers, &header::ACCEPT))?,
        content_type: media_type(text(&parts.headers, &header::CONTENT_TYPE)),
        agent: text(&parts.headers, &header::USER_AGENT).to_owned(),
    };
    call.verb = verb(&parts.method, &call)?;
    check_subresource(&call)?;
    Ok(Route::Call(Box::new(call)))
}

fn is_part_of_namespace(segment: &str) -> bool {
    matches!(segment, "status" | "finalize")
}

fn verb(method: &Method, call: &Call) -> Result<&'static str, ApiError> {
    let one = !call.name.is_empty();
    match (method.as_str(), one) {
        ("GET", _) if call.flag("watch") => Ok("watch"),
        ("GET", true) => Ok("get"),
        ("GET", false) => Ok("list"),
        ("POST", false) => Ok("create"),
        ("POST", true) if call.subresource == "binding" => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) => Ok("delete"),
        ("DELETE", false) => Ok("deletecollection"),
        _ => Err(ApiError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    }
}

fn check_subresource(call: &Call) -> Result<(), ApiError> {
    let served = match &*call.subresource {
        "" => true,
        "status" => call.kind.status && matches!(call.verb, "get" | "update" | "patch"),
        "binding" => call.kind.plural == "pods" && call.verb == "create",
        _ => false,
    };
    if served { Ok(()) } else { Err(ApiError::no_such_path()) }
}

fn text<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Without parameters such as the character set.
fn media_type(text: &str) -> String {
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
