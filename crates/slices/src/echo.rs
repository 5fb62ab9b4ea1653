//! What the API server kept of what it was sent. A field whose feature gate is off is
//! removed without a word, so the answer to each write is compared with the request.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::resource::v1::{Device, ResourceSlice, ResourceSliceSpec};
use serde_json::Value;

use crate::pool::Feature;

/// The path of a field that was dropped, e.g. `spec.devices[gpu-0].taints`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    Item(String),
}

impl FieldPath {
    /// The feature that the field belongs to, if it is one that must not be lost silently.
    #[must_use]
    pub fn feature(&self) -> Option<Feature> {
        self.steps.iter().find_map(|step| match step {
            Step::Field(field) => match field.as_str() {
                "sharedCounters" | "consumesCounters" => Some(Feature::SharedCounters),
                "taints" => Some(Feature::Taints),
                "allowMultipleAllocations" | "requestPolicy" => Some(Feature::MultipleAllocations),
                _ => None,
            },
            Step::Item(_) => None,
        })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Field(name) if at == 0 => write!(f, "{name}")?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item(name) => write!(f, "[{name}]")?,
            }
        }
        Ok(())
    }
}

/// The fields of the spec that were sent and are not in the object that came back, in
/// order. What the server added or rewrote is not reported.
#[must_use]
pub fn dropped_fields(sent: &ResourceSlice, got: &ResourceSlice) -> Vec<FieldPath> {
    let mut dropped = Vec::new();
    // These types always serialise: all keys are strings and no value is a float.
    if let (Ok(sent), Ok(got)) = (serde_json::to_value(&sent.spec), serde_json::to_value(&got.spec))
    {
        let mut path = vec![Step::Field("spec".to_owned())];
        walk(&sent, Some(&got), &mut path, &mut dropped);
    }
    dropped
}

/// Whether the server stored what it was sent. What it fills in by itself doesn't count.
#[must_use]
pub fn same_meaning(sent: &ResourceSliceSpec, got: &ResourceSliceSpec) -> bool {
    let mut sent = sent.clone();
    keep_times(&mut sent, got);
    plain(sent) == plain(got.clone())
}

/// An absent list and an empty one are the same on the wire.
fn plain(mut spec: ResourceSliceSpec) -> ResourceSliceSpec {
    spec.devices = spec.devices.filter(|list| !list.is_empty());
    spec.shared_counters = spec.shared_counters.filter(|list| !list.is_empty());
    for device in spec.devices.iter_mut().flatten() {
        device.attributes = device.attributes.take().filter(|map| !map.is_empty());
        device.capacity = device.capacity.take().filter(|map| !map.is_empty());
        device.consumes_counters = device.consumes_counters.take().filter(|l| !l.is_empty());
        device.taints = device.taints.take().filter(|list| !list.is_empty());
    }
    spec
}

/// An unchanged taint keeps its `timeAdded`, which the server sets where nobody does. Two agents
/// side by side, in an update, may have seen the same event a second apart.
pub(crate) fn keep_times(wanted: &mut ResourceSliceSpec, existing: &ResourceSliceSpec) {
    let old: BTreeMap<&str, &Device> =
        existing.devices.iter().flatten().map(|device| (device.name.as_str(), device)).collect();
    for device in wanted.devices.iter_mut().flatten() {
        let Some(before) = old.get(device.name.as_str()) else { continue };
        for taint in device.taints.iter_mut().flatten() {
            let same = before.taints.iter().flatten().find(|other| {
                (&other.key, &other.value, &other.effect)
                    == (&taint.key, &taint.value, &taint.effect)
            });
            if let Some(known) = same.and_then(|same| same.time_added.as_ref()) {
                taint.time_added = Some(known.clone());
            }
        }
    }
}

fn walk(sent: &Value, got: Option<&Value>, path: &mut Vec<Step>, dropped: &mut Vec<FieldPath>) {
    if is_empty(sent) {
        return;
    }
    let Some(got) = got else {
        dropped.push(FieldPath { steps: path.clone() });
        return;
    };
    match sent {
        Value::Object(fields) => {
            for (key, value) in fields {
                path.push(step(key));
                walk(value, got.get(key), path, dropped);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push(Step::Item(label(item, at)));
                walk(item, got.get(at), path, dropped);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The server leaves out what is empty anyway.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Keys of maps (`resource.kubernetes.io/pciBusID`) may hold dots, names of fields not.
fn step(key: &str) -> Step {
    if key.bytes().all(|b| b.is_ascii_alphanumeric()) {
        Step::Field(key.to_owned())
    } else {
        Step::Item(key.to_owned())
    }
}

fn label(item: &Value, at: usize) -> String {
    let name = ["name", "counterSet", "key"].into_iter().find_map(|key| item.get(key)?.as_str());
    name.map_or_else(|| at.to_string(), str::to_owned)
}
