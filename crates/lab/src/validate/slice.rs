//! Rules for ResourceSlices: pool, node, devices, attributes, counters, taints.

use serde_json::Value;

use super::{Errors, capacity, each, list, map, names, no_key, text};
use crate::error::FieldError;

const MOST_DEVICES: usize = 128;
/// As soon as one device has taints or consumes counters.
const MOST_DEVICES_WITH_EXTRAS: usize = 64;
const MOST_COUNTER_SETS: usize = 8;
const MOST_COUNTERS: usize = 32;
const MOST_CONSUMED_SETS: usize = 2;
const MOST_ATTRIBUTES_AND_CAPACITIES: usize = 32;
const MOST_TAINTS: usize = 16;
const MOST_BINDING_CONDITIONS: usize = 4;
/// Bytes of a string or version attribute.
const ATTRIBUTE_VALUE: usize = 64;

/// `oneOf` in the order of the API, with the fields' JSON names.
const NODE_FIELDS: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];

pub(super) fn check(errors: &mut Errors, spec: &Value) {
    names::driver(errors, "spec.driver", text(spec, "driver"));
    pool(errors, &spec["pool"]);
    node(errors, spec);
    let (devices, counters) = (list(spec, "devices"), list(spec, "sharedCounters"));
    if spec.get("devices").is_some() && spec.get("sharedCounters").is_some() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid("spec", &"".into(), why));
    }
    let extras = |device: &Value| {
        !list(device, "taints").is_empty() || !list(device, "consumesCounters").is_empty()
    };
    let most = if devices.iter().any(extras) { MOST_DEVICES_WITH_EXTRAS } else { MOST_DEVICES };
    let per_device = spec["perDeviceNodeSelection"] == true;
    each(
        errors,
        "spec.devices",
        (devices, most),
        |d| d["name"].as_str(),
        |errors, path, device| {
            check_device(errors, path, device, per_device);
        },
    );
    let sets = (counters, MOST_COUNTER_SETS);
    each(
        errors,
        "spec.sharedCounters",
        sets,
        |set| set["name"].as_str(),
        |errors, path, set| {
            names::label(errors, &format!("{path}.name"), text(set, "name"));
            check_counters(errors, &format!("{path}.counters"), set);
        },
    );
}

fn pool(errors: &mut Errors, pool: &Value) {
    names::pool(errors, "spec.pool.name", text(pool, "name"));
    if pool["resourceSliceCount"].as_i64().unwrap_or_default() <= 0 {
        errors.push(FieldError::invalid(
            "spec.pool.resourceSliceCount",
            &pool["resourceSliceCount"],
            "must be greater than zero",
        ));
    }
    if pool["generation"].as_i64().unwrap_or_default() < 0 {
        errors.push(FieldError::invalid(
            "spec.pool.generation",
            &pool["generation"],
            "must be greater than or equal to zero",
        ));
    }
}

/// A slice is for one node, for selected ones, for all, or leaves it to its devices.
fn node(errors: &mut Errors, spec: &Value) {
    let chosen = node_fields(errors, "spec", spec, &NODE_FIELDS);
    let which = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match chosen.as_slice() {
        [_] => {}
        [] => errors.push(FieldError::required("spec", which)),
        many => {
            let many: Vec<String> = many.iter().map(|field| format!("`{field}`")).collect();
            let value = format!("{{{}}}", many.join(", "));
            let why = format!("{which}, but multiple fields are set");
            errors.push(FieldError::invalid("spec", &value.into(), why));
        }
    }
}

/// Judges the fields that choose nodes and answers those that are rightly set.
fn node_fields<'f>(
    errors: &mut Errors,
    path: &str,
    object: &Value,
    wanted: &[&'f str],
) -> Vec<&'f str> {
    let mut chosen = Vec::new();
    for &field in wanted {
        let path = format!("{path}.{field}");
        let Some(value) = object.get(field) else { continue };
        match (field, value) {
            ("nodeName", value) if value == "" => errors.push(FieldError::invalid(
                &path,
                value,
                "must be either unset or set to a non-empty string",
            )),
            ("nodeName", value) => {
                names::subdomain(errors, &path, value.as_str().unwrap_or_default());
                chosen.push(field);
            }
            ("nodeSelector", selector) => {
                node_selector(errors, &path, selector);
                chosen.push(field);
            }
            (_, Value::Bool(true)) => chosen.push(field),
            (_, value) => {
                let why = "must be either unset or set to true";
                errors.push(FieldError::invalid(&path, value, why));
            }
        }
    }
    chosen
}

fn node_selector(errors: &mut Errors, path: &str, selector: &Value) {
    let terms = list(selector, "nodeSelectorTerms");
    if terms.len() != 1 {
        errors.push(FieldError::invalid(
            &format!("{path}.nodeSelectorTerms"),
            &Value::from(terms.to_vec()),
            "must have exactly one node selector term",
        ));
    }
}

fn check_device(errors: &mut Errors, path: &str, device: &Value, per_device: bool) {
    names::label(errors, &format!("{path}.name"), text(device, "name"));
    let (attributes, capacities) = (map(device, "attributes"), map(device, "capacity"));
    for (key, value) in &attributes {
        names::qualified(errors, &format!("{path}.attributes"), key);
        check_attribute(errors, &format!("{path}.attributes[{key}]"), value);
    }
    let many = device["allowMultipleAllocations"] == true;
    for (key, value) in &capacities {
        names::qualified(errors, &format!("{path}.capacity"), key);
        capacity::check(errors, &format!("{path}.capacity[{key}]"), value, many);
    }
    let count = attributes.len() + capacities.len();
    if count > MOST_ATTRIBUTES_AND_CAPACITIES {
        let why = format!(
            "the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES_AND_CAPACITIES}"
        );
        errors.push(FieldError::invalid(path, &count.into(), why));
    }
    let taints = (list(device, "taints"), MOST_TAINTS);
    each(errors, &format!("{path}.taints"), taints, no_key, check_taint);
    let consumed = (list(device, "consumesCounters"), MOST_CONSUMED_SETS);
    each(
        errors,
        &format!("{path}.consumesCounters"),
        consumed,
        |c| c["counterSet"].as_str(),
        |errors, path, set| {
            if text(set, "counterSet").is_empty() {
                errors.push(FieldError::required(&format!("{path}.counterSet"), ""));
            } else {
                names::label(errors, &format!("{path}.counterSet"), text(set, "counterSet"));
            }
            check_counters(errors, &format!("{path}.counters"), set);
        },
    );
    device_node(errors, path, device, per_device);
    binding_conditions(errors, path, device);
}

fn check_attribute(errors: &mut Errors, path: &str, attribute: &Value) {
    let set = attribute.as_object().map(serde_json::Map::len).unwrap_or_default();
    if set != 1 {
        let shown = if set == 0 { Value::from("") } else { attribute.clone() };
        errors.push(FieldError::invalid(path, &shown, "exactly one value must be specified"));
    }
    for field in ["string", "version"] {
        let Some(value) = attribute.get(field).and_then(Value::as_str) else { continue };
        let path = format!("{path}.{field}");
        if value.len() > ATTRIBUTE_VALUE {
            errors.push(FieldError::too_long(&path, ATTRIBUTE_VALUE));
        }
        if field == "version" && !names::semver_ok(value) {
            let why = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(&path, &value.into(), why));
        }
    }
}

fn check_counters(errors: &mut Errors, path: &str, set: &Value) {
    let counters = map(set, "counters");
    if counters.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if counters.len() > MOST_COUNTERS {
        errors.push(FieldError::too_many(path, counters.len(), MOST_COUNTERS));
    }
    for (name, _) in counters {
        names::label(errors, path, name);
    }
}

pub(super) const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

fn check_taint(errors: &mut Errors, path: &str, taint: &Value) {
    names::label_key(errors, &format!("{path}.key"), text(taint, "key"));
    names::label_value(errors, &format!("{path}.value"), text(taint, "value"));
    let path = format!("{path}.effect");
    match text(taint, "effect") {
        "" => errors.push(FieldError::required(&path, "")),
        known if TAINT_EFFECTS.contains(&known) => {}
        other => errors.push(FieldError::not_supported(&path, other, &TAINT_EFFECTS)),
    }
}

fn device_node(errors: &mut Errors, path: &str, device: &Value, per_device: bool) {
    const FIELDS: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
    if !per_device {
        if FIELDS.iter().any(|field| device.get(field).is_some()) {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.push(FieldError::invalid(path, &Value::Null, why));
        }
        return;
    }
    let which = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match node_fields(errors, path, device, &FIELDS).as_slice() {
        [_] => {}
        [] => errors.push(FieldError::required(path, which)),
        _ => errors.push(FieldError::invalid(path, &Value::Null, which)),
    }
}

/// Conditions for readiness and failure come in pairs.
fn binding_conditions(errors: &mut Errors, path: &str, device: &Value) {
    const PAIR: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for (field, other) in [(PAIR[0], PAIR[1]), (PAIR[1], PAIR[0])] {
        let conditions = list(device, field);
        let path_of = |field| format!("{path}.{field}");
        each(
            errors,
            &path_of(field),
            (conditions, MOST_BINDING_CONDITIONS),
            Value::as_str,
            |errors, path, item| {
                names::label_key(errors, path, item.as_str().unwrap_or_default());
            },
        );
        if !conditions.is_empty() && list(device, other).is_empty() {
            let why = format!("{other} are required to use {field}");
            errors.push(FieldError::invalid(&path_of(other), &Value::Null, why));
        }
    }
}
