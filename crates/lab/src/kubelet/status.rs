//! What the kubelet writes into a pod's status, and which CDI ids each container gets.

use std::collections::BTreeSet;

use gpu_dra_kubelet::PreparedDevice;
use serde_json::{Value, json};

use super::claims::PodClaim;
use super::plugins::Plugins;
use crate::api::now;
use crate::control::text;

fn containers(pod: &Value) -> &[Value] {
    pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The entries of a container's claims: the pod's entry, and the request if only one is meant.
fn uses(pod: &Value, container: &Value) -> Vec<(String, Option<String>)> {
    let claims = container["resources"]["claims"].as_array().into_iter().flatten();
    let mut uses: Vec<_> = claims
        .map(|claim| {
            let request = text(claim, "/request");
            (text(claim, "/name").to_owned(), (!request.is_empty()).then(|| request.to_owned()))
        })
        .collect();
    let mappings = pod.pointer("/status/extendedResourceClaimStatus/requestMappings");
    for mapping in mappings.and_then(Value::as_array).into_iter().flatten() {
        if mapping["containerName"] == container["name"] {
            uses.push((String::new(), Some(text(mapping, "/requestName").to_owned())));
        }
    }
    uses
}

/// Names of the results are `request` or `request/subrequest`; containers name the request.
fn serves(device: &PreparedDevice, request: Option<&str>) -> bool {
    request.is_none_or(|request| {
        device.request_names.is_empty()
            || device.request_names.iter().any(|name| name.base() == request)
    })
}

/// The devices of one use, with their driver.
fn devices<'c>(
    claims: &'c [PodClaim],
    (entry, request): &(String, Option<String>),
) -> Vec<(&'c str, &'c PreparedDevice)> {
    let mine = claims.iter().filter(|claim| claim.entry == *entry);
    mine.flat_map(|claim| &claim.drivers)
        .flat_map(|(driver, devices)| devices.iter().map(move |device| (driver.as_str(), device)))
        .filter(|(_, device)| serves(device, request.as_deref()))
        .collect()
}

/// The CDI ids that the runtime is given for a container.
pub(super) fn cdi_ids(pod: &Value, container: &Value, claims: &[PodClaim]) -> Vec<String> {
    let uses = uses(pod, container);
    let devices = uses.iter().flat_map(|of| devices(claims, of));
    devices.flat_map(|(_, device)| &device.cdi_ids).map(|id| id.as_str().to_owned()).collect()
}

/// `allocatedResourcesStatus` of a container: the health of each of its devices.
fn health(pod: &Value, container: &Value, claims: &[PodClaim], plugins: &Plugins) -> Vec<Value> {
    let mut statuses = Vec::new();
    for of in uses(pod, container).iter().filter(|(entry, _)| !entry.is_empty()) {
        let mut seen = BTreeSet::new();
        let mut resources = Vec::new();
        for (driver, device) in devices(claims, of) {
            let (pool, name) = (device.pool.as_str(), device.device.as_str());
            let id = match device.cdi_ids.first() {
                Some(id) => id.as_str().to_owned(),
                None => format!("{driver}/{pool}/{name}"),
            };
            if !seen.insert(id.clone()) {
                continue;
            }
            let (health, message) = plugins.health(driver, pool, name);
            let mut resource = json!({"resourceID": id, "health": health});
            if !message.is_empty() {
                resource["message"] = message.into();
            }
            resources.push(resource);
        }
        let (entry, request) = of;
        let name = match request {
            Some(request) => format!("claim:{entry}/{request}"),
            None => format!("claim:{entry}"),
        };
        statuses.push(json!({"name": name, "resources": resources}));
    }
    statuses
}

/// The pod's conditions with these, each with the time since which it holds.
fn conditions(pod: &Value, ready: bool) -> Vec<Value> {
    let old = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let find = |name: &str| old.iter().find(|condition| condition["type"] == name);
    let mut conditions: Vec<Value> = find("PodScheduled").cloned().into_iter().collect();
    let status = |yes: bool| if yes { "True" } else { "False" };
    for (name, yes) in [
        ("PodReadyToStartContainers", ready),
        ("Initialized", true),
        ("Ready", ready),
        ("ContainersReady", ready),
    ] {
        let since = find(name).filter(|old| old["status"] == status(yes));
        let since = since.map_or_else(|| now().into(), |old| old["lastTransitionTime"].clone());
        conditions.push(json!({
            "type": name, "status": status(yes), "lastProbeTime": null, "lastTransitionTime": since,
        }));
    }
    conditions
}

fn start_time(pod: &Value) -> Value {
    match text(pod, "/status/startTime") {
        "" => now().into(),
        time => time.into(),
    }
}

fn container_status(container: &Value, state: Value, ready: bool) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "", "lastState": {},
        "ready": ready, "started": ready, "restartCount": 0, "state": state,
    })
}

/// All containers wait, for the given reason.
pub(super) fn waiting(pod: &Value, reason: &str, message: &str) -> Value {
    let mut waiting = json!({"reason": reason});
    if !message.is_empty() {
        waiting["message"] = message.into();
    }
    let statuses: Vec<Value> = containers(pod)
        .iter()
        .map(|container| container_status(container, json!({"waiting": waiting}), false))
        .collect();
    json!({
        "phase": "Pending", "startTime": start_time(pod), "conditions": conditions(pod, false),
        "containerStatuses": statuses, "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}],
    })
}

/// All containers run.
pub(super) fn running(pod: &Value, claims: &[PodClaim], plugins: &Plugins) -> Value {
    let old = pod["status"]["containerStatuses"].as_array();
    let statuses: Vec<Value> = containers(pod)
        .iter()
        .map(|container| {
            let before = old.into_iter().flatten().find(|old| old["name"] == container["name"]);
            let since = before.map_or("", |old| text(old, "/state/running/startedAt"));
            let since = if since.is_empty() { now() } else { since.to_owned() };
            let state = json!({"running": {"startedAt": since}});
            let mut status = container_status(container, state, true);
            let (uid, name) = (text(pod, "/metadata/uid"), text(container, "/name"));
            status["containerID"] = format!("simulated://{uid}/{name}").into();
            let health = health(pod, container, claims, plugins);
            if !health.is_empty() {
                status["allocatedResourcesStatus"] = health.into();
            }
            status
        })
        .collect();
    json!({
        "phase": "Running", "startTime": start_time(pod), "conditions": conditions(pod, true),
        "containerStatuses": statuses, "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
    })
}
