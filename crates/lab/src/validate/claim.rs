//! Rules for ResourceClaims, their templates, and DeviceClasses, which share selectors and configurations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::slice::TAINT_EFFECTS;
use super::{Errors, cel, each, list, metadata, names, no_key, text};
use crate::error::FieldError;

const MOST_REQUESTS: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const MOST_CONSTRAINTS: usize = 32;
const MOST_CONFIGS: usize = 32;
const MOST_SELECTORS: usize = 32;
/// Bytes of opaque parameters and of a device's status data.
const MOST_DATA: usize = 10 * 1024;
const UNKNOWN_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

pub(super) fn check_class(errors: &mut Errors, spec: &Value) {
    selectors(errors, "spec.selectors", spec);
    let configs = (list(spec, "config"), MOST_CONFIGS);
    each(errors, "spec.config", configs, no_key, opaque);
    if let Some(name) = spec.get("extendedResourceName")
        && !names::extended_resource_ok(name.as_str().unwrap_or_default())
    {
        let why = "must be a valid extended resource name";
        errors.push(FieldError::invalid("spec.extendedResourceName", name, why));
    }
}

pub(super) fn check_template(errors: &mut Errors, spec: &Value) {
    for field in ["name", "generateName"] {
        if spec["metadata"].get(field).is_some() {
            let path = format!("spec.metadata.{field}");
            errors.push(FieldError::forbidden(&path, "cannot be set"));
        }
    }
    metadata::labels(errors, "spec.metadata", &spec["metadata"]);
    check(errors, "spec.spec", &spec["spec"]);
}

pub(super) fn check(errors: &mut Errors, path: &str, spec: &Value) {
    let devices = &spec["devices"];
    let path = format!("{path}.devices");
    let requests = (list(devices, "requests"), MOST_REQUESTS);
    each(errors, &format!("{path}.requests"), requests, |r| r["name"].as_str(), check_request);
    let known = request_names(spec);
    let constraints = (list(devices, "constraints"), MOST_CONSTRAINTS);
    each(
        errors,
        &format!("{path}.constraints"),
        constraints,
        no_key,
        |errors, path, constraint| {
            check_constraint(errors, path, constraint, &known);
        },
    );
    let configs = (list(devices, "config"), MOST_CONFIGS);
    each(errors, &format!("{path}.config"), configs, no_key, |errors, path, config| {
        check_names(errors, path, config, &known);
        opaque(errors, path, config);
    });
}

/// `request`, and `request/subrequest` where it has alternatives.
pub(super) fn request_names(spec: &Value) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for request in list(&spec["devices"], "requests") {
        let name = text(request, "name");
        known.insert(name.to_owned());
        for alternative in list(request, "firstAvailable") {
            known.insert(format!("{name}/{}", text(alternative, "name")));
        }
    }
    known
}

pub(super) fn check_known(errors: &mut Errors, path: &str, name: &str, known: &BTreeSet<String>) {
    if !known.contains(name) {
        errors.push(FieldError::invalid(path, &name.into(), UNKNOWN_REQUEST));
    }
}

fn check_names(errors: &mut Errors, path: &str, object: &Value, known: &BTreeSet<String>) {
    let requests = (list(object, "requests"), MOST_REQUESTS);
    each(errors, &format!("{path}.requests"), requests, Value::as_str, |errors, path, name| {
        check_known(errors, path, name.as_str().unwrap_or_default(), known);
    });
}

fn check_request(errors: &mut Errors, path: &str, request: &Value) {
    names::label(errors, &format!("{path}.name"), text(request, "name"));
    let alternatives = list(request, "firstAvailable");
    let which = "exactly one of `exactly` or `firstAvailable` is required";
    match (request.get("exactly"), alternatives.is_empty()) {
        (None, true) => errors.push(FieldError::required(path, which)),
        (Some(_), false) => {
            let why = format!("{which}, but multiple fields are set");
            errors.push(FieldError::invalid(path, &Value::Null, why));
        }
        (Some(exactly), true) => check_devices(errors, &format!("{path}.exactly"), exactly),
        (None, false) => {
            let path = format!("{path}.firstAvailable");
            let alternatives = (alternatives, MOST_ALTERNATIVES);
            each(
                errors,
                &path,
                alternatives,
                |a| a["name"].as_str(),
                |errors, path, alternative| {
                    names::label(errors, &format!("{path}.name"), text(alternative, "name"));
                    check_devices(errors, path, alternative);
                },
            );
        }
    }
}

/// What `exactly` and the alternatives of `firstAvailable` have in common.
fn check_devices(errors: &mut Errors, path: &str, request: &Value) {
    let class = text(request, "deviceClassName");
    names::required_subdomain(errors, &format!("{path}.deviceClassName"), class);
    selectors(errors, &format!("{path}.selectors"), request);
    let count = request["count"].as_i64().unwrap_or_default();
    let path_of_count = format!("{path}.count");
    match text(request, "allocationMode") {
        "All" if count != 0 => errors.push(FieldError::invalid(
            &path_of_count,
            &count.into(),
            "must not be specified when allocationMode is 'All'",
        )),
        "All" => {}
        "ExactCount" if count <= 0 => errors.push(FieldError::invalid(
            &path_of_count,
            &count.into(),
            "must be greater than zero",
        )),
        "ExactCount" => {}
        other => errors.push(FieldError::not_supported(
            &format!("{path}.allocationMode"),
            other,
            &["All", "ExactCount"],
        )),
    }
    for (index, toleration) in list(request, "tolerations").iter().enumerate() {
        check_toleration(errors, &format!("{path}.tolerations[{index}]"), toleration);
    }
}

fn check_toleration(errors: &mut Errors, path: &str, toleration: &Value) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        names::label_key(errors, &format!("{path}.key"), key);
    }
    match text(toleration, "operator") {
        "Exists" if !value.is_empty() => errors.push(FieldError::invalid(
            &format!("{path}.value"),
            &value.into(),
            "must be empty for operator `Exists`",
        )),
        "Exists" => {}
        "Equal" => names::label_value(errors, &format!("{path}.value"), value),
        other => errors.push(FieldError::not_supported(
            &format!("{path}.operator"),
            other,
            &["Equal", "Exists"],
        )),
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
        let path = format!("{path}.effect");
        errors.push(FieldError::not_supported(&path, effect, &TAINT_EFFECTS));
    }
}

fn selectors(errors: &mut Errors, path: &str, object: &Value) {
    let selectors = (list(object, "selectors"), MOST_SELECTORS);
    each(errors, path, selectors, no_key, |errors, path, selector| match selector.get("cel") {
        None => errors.push(FieldError::required(&format!("{path}.cel"), "")),
        Some(selector) => {
            cel::check(errors, &format!("{path}.cel.expression"), text(selector, "expression"));
        }
    });
}

fn check_constraint(errors: &mut Errors, path: &str, constraint: &Value, known: &BTreeSet<String>) {
    check_names(errors, path, constraint, known);
    let set: Vec<&str> = ["matchAttribute", "distinctAttribute"]
        .into_iter()
        .filter(|field| constraint.get(field).is_some())
        .collect();
    if set.is_empty() {
        // The real server's sentence, though nothing is set.
        let why = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errors.push(FieldError::required(path, why));
    }
    for field in set {
        let path = format!("{path}.{field}");
        names::fully_qualified(errors, &path, text(constraint, field));
    }
}

/// The opaque parameters of a configuration; what they say is the driver's business.
pub(super) fn opaque(errors: &mut Errors, path: &str, config: &Value) {
    let path = format!("{path}.opaque");
    let Some(opaque) = config.get("opaque") else {
        errors.push(FieldError::required(&path, ""));
        return;
    };
    names::driver(errors, &format!("{path}.driver"), text(opaque, "driver"));
    let path = format!("{path}.parameters");
    match opaque.get("parameters") {
        None | Some(Value::Null) => errors.push(FieldError::required(&path, "")),
        Some(parameters) => data(errors, &path, parameters),
    }
}

/// A JSON object of limited size, of which nothing is shown.
pub(super) fn data(errors: &mut Errors, path: &str, data: &Value) {
    if data.to_string().len() > MOST_DATA {
        errors.push(FieldError::too_long(path, MOST_DATA));
    } else if !data.is_object() {
        let why = "must be a valid JSON object";
        errors.push(FieldError::invalid(path, &"<value omitted>".into(), why));
    }
}
