//! The defaults that the server writes into objects, per kind, and which parts a request can't touch.

use serde_json::{Value, json};

use super::identity;
use super::write::Subresource;
use crate::kinds::Kind;

pub(super) fn prepare_create(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "Namespace" => object["status"] = json!({"phase": "Active"}),
        "Pod" => {
            default_pod(object);
            object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
        }
        "ResourceClaim" => object["status"] = json!({}),
        _ => {}
    }
    default_resources(kind, object);
}

pub(super) fn prepare_update(kind: &Kind, old: &Value, new: &mut Value, part: Subresource) {
    default_resources(kind, new);
    match kind.kind {
        "Pod" if part == Subresource::Main => default_pod(new),
        "ResourceSlice" => keep_taint_times(old, new),
        // A claim without devices has no status of devices.
        "ResourceClaim" if new["status"].get("allocation").is_none() => {
            if let Some(status) = new["status"].as_object_mut() {
                status.remove("devices");
            }
        }
        _ => {}
    }
}

/// What is left out of an accepted object: to the rules an empty list of devices or counters counts as given.
pub(super) fn finish(kind: &Kind, object: &mut Value) {
    if let ("ResourceSlice", Some(spec)) = (kind.kind, object["spec"].as_object_mut()) {
        spec.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
    }
}

fn default_resources(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "ResourceClaim" => default_claim(&mut object["spec"]),
        "ResourceClaimTemplate" => default_claim(&mut object["spec"]["spec"]),
        "ResourceSlice" => {
            let devices = object.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
            for device in devices.into_iter().flatten() {
                let taints = device.get_mut("taints").and_then(Value::as_array_mut);
                for taint in taints.into_iter().flatten() {
                    if taint.get("timeAdded").is_none() {
                        taint["timeAdded"] = identity::now().into();
                    }
                }
            }
        }
        _ => {}
    }
}

fn default_claim(spec: &mut Value) {
    let requests = spec.pointer_mut("/devices/requests").and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly") {
            default_request(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().for_each(default_request);
    }
}

fn default_request(request: &mut Value) {
    if request.get("allocationMode").is_none() {
        request["allocationMode"] = "ExactCount".into();
    }
    if request["allocationMode"] == "ExactCount" && request.get("count").is_none() {
        request["count"] = 1.into();
    }
    let tolerations = request.get_mut("tolerations").and_then(Value::as_array_mut);
    for toleration in tolerations.into_iter().flatten() {
        if toleration.get("operator").is_none() {
            toleration["operator"] = "Equal".into();
        }
    }
}

/// A taint that stays keeps the time at which it came.
fn keep_taint_times(old: &Value, new: &mut Value) {
    let names = |taint: &Value| {
        ["key", "value", "effect"].map(|field| taint.get(field).cloned().unwrap_or_default())
    };
    let old_devices = old["spec"]["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let devices = new.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten() {
        let before = old_devices.iter().find(|before| before["name"] == device["name"]);
        let before = before.and_then(|before| before["taints"].as_array());
        let taints = device.get_mut("taints").and_then(Value::as_array_mut);
        for taint in taints.into_iter().flatten() {
            let same = before.into_iter().flatten().find(|old| names(old) == names(taint));
            if let Some(time) = same.and_then(|same| same.get("timeAdded")) {
                taint["timeAdded"] = time.clone();
            }
        }
    }
}

fn default_pod(pod: &mut Value) {
    let Some(spec) = pod["spec"].as_object_mut() else { return };
    let mut default = |field: &str, value: Value| {
        spec.entry(field).or_insert(value);
    };
    default("restartPolicy", "Always".into());
    default("terminationGracePeriodSeconds", 30.into());
    default("dnsPolicy", "ClusterFirst".into());
    default("securityContext", json!({}));
    default("schedulerName", "default-scheduler".into());
    default("enableServiceLinks", true.into());
    default("preemptionPolicy", "PreemptLowerPriority".into());
    default("priority", 0.into());
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(default_container);
    }
}

fn default_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let pull = if tag.is_none_or(|tag| tag == "latest") { "Always" } else { "IfNotPresent" };
    let Some(fields) = container.as_object_mut() else { return };
    fields.entry("imagePullPolicy").or_insert(pull.into());
    fields.entry("terminationMessagePath").or_insert("/dev/termination-log".into());
    fields.entry("terminationMessagePolicy").or_insert("File".into());
    // A limit without a request is also the request.
    let limits = fields.get("resources").and_then(|resources| resources.get("limits")).cloned();
    if let (Some(Value::Object(limits)), Some(resources)) = (limits, fields.get_mut("resources")) {
        if resources.get("requests").is_none() {
            resources["requests"] = json!({});
        }
        if let Some(requests) = resources["requests"].as_object_mut() {
            for (name, limit) in limits {
                requests.entry(name).or_insert(limit);
            }
        }
    }
}
