//! Extended resources that classes stand for: the claim that the scheduler makes for a pod
//! that asks by `nvidia.com/gpu: 1` (KEP-5004; kube-scheduler 1.36,
//! `extendeddynamicresources.go`). Which node offers them by a device plugin is not known here.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};

/// What a container asks for.
struct Asking<'p> {
    /// Whether it ends before those after it start: an init container that is no sidecar.
    ends: bool,
    /// Each resource's place among all of the container, and how many of it are asked for.
    counts: BTreeMap<&'p str, (usize, i64)>,
}

/// Devices for a container.
#[derive(Clone)]
struct Part {
    request: String,
    count: i64,
}

/// The claim, and the resources that it stands for; None: the pod asks for none.
pub(crate) fn claim(pod: &Pod, classes: &[DeviceClass]) -> Option<(ResourceClaim, Vec<String>)> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten().map(|container| {
        let ends = container.restart_policy.as_deref() != Some("Always");
        Asking { ends, counts: counts(container) }
    });
    let regular = spec.containers.iter();
    let regular = regular.map(|container| Asking { ends: false, counts: counts(container) });
    let containers: Vec<Asking<'_>> = init.chain(regular).collect();
    let names: BTreeSet<&str> = containers.iter().flat_map(|c| c.counts.keys().copied()).collect();
    let (mut requests, mut standing_for) = (Vec::new(), Vec::new());
    for name in names {
        let Some(class) = class_for(name, classes) else { continue };
        standing_for.push(name.to_owned());
        requests.extend(parts(name, &containers).into_iter().map(|part| DeviceRequest {
            name: part.request,
            exactly: Some(ExactDeviceRequest {
                device_class_name: class.to_owned(),
                allocation_mode: Some("ExactCount".to_owned()),
                count: Some(part.count),
                ..ExactDeviceRequest::default()
            }),
            ..DeviceRequest::default()
        }));
    }
    if requests.is_empty() {
        return None;
    }
    requests.sort_by(|a, b| a.name.cmp(&b.name));
    let mut claim = ResourceClaim::default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    claim.metadata.name = Some(format!("{name}-extended-resources"));
    claim.metadata.namespace.clone_from(&pod.metadata.namespace);
    let devices = DeviceClaim { requests: Some(requests), ..DeviceClaim::default() };
    claim.spec = Some(ResourceClaimSpec { devices: Some(devices) });
    Some((claim, standing_for))
}

/// NVIDIA's resources that the pod asks for and no class stands for.
pub(crate) fn unserved(pod: &Pod, classes: &[DeviceClass]) -> BTreeSet<String> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    let names = containers.flat_map(|container| counts(container).into_keys());
    let unserved =
        names.filter(|n| n.starts_with("nvidia.com/") && class_for(n, classes).is_none());
    unserved.map(str::to_owned).collect()
}

/// What is more than nothing. The API server copies limits to requests, by whose order the
/// scheduler counts.
fn counts(container: &Container) -> BTreeMap<&str, (usize, i64)> {
    let Some(resources) = &container.resources else { return BTreeMap::new() };
    let given = resources.limits.iter().chain(&resources.requests).flatten();
    let all: BTreeMap<&str, &str> = given.map(|(name, q)| (name.as_str(), q.0.as_str())).collect();
    let placed = all.into_iter().enumerate().filter_map(|(place, (name, quantity))| {
        let count = quantity.parse::<Quantity>().ok()?.as_integer()?;
        (count > 0).then_some((name, (place, count)))
    });
    placed.collect()
}

/// The requests for one resource. What a container that ends needs is first looked for in
/// what those after it have; of the rest the largest serves all of them, one after the other.
fn parts(resource: &str, containers: &[Asking<'_>]) -> Vec<Part> {
    let part = |number: usize, asking: &Asking<'_>| {
        let (place, count) = *asking.counts.get(resource)?;
        Some(Part { request: format!("container-{number}-request-{place}"), count })
    };
    let all = || containers.iter().enumerate();
    let lasting: Vec<Option<Part>> =
        all().map(|(number, asking)| part(number, asking).filter(|_| !asking.ends)).collect();
    let mut largest: Option<Part> = None;
    for (number, asking) in all().filter(|(_, asking)| asking.ends) {
        let Some(mut part) = part(number, asking) else { continue };
        let later = lasting.iter().skip(number).flatten();
        part.count = later.fold(part.count, |left, later| left.saturating_sub(later.count));
        if part.count > largest.as_ref().map_or(0, |largest| largest.count) {
            largest = Some(part);
        }
    }
    largest.into_iter().chain(lasting.into_iter().flatten()).collect()
}

/// The class that an extended resource stands for: the newest that names it, then the first
/// by name.
fn class_for<'a>(resource: &'a str, classes: &'a [DeviceClass]) -> Option<&'a str> {
    if let Some(class) = resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
        return Some(class);
    }
    let named = classes.iter().filter(|class| {
        let spec = class.spec.as_ref();
        spec.and_then(|spec| spec.extended_resource_name.as_deref()) == Some(resource)
    });
    let newest = named.min_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(created), class.metadata.name.clone())
    })?;
    newest.metadata.name.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// `name×count` of each request for a pod with these init and regular containers.
    fn requests(init: &Value, regular: &Value) -> Vec<String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"}, "spec": {"initContainers": init, "containers": regular},
        }))
        .unwrap();
        let class: DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "nvidia.com/gpu"},
        }))
        .unwrap();
        let Some((made, _)) = claim(&pod, &[class]) else { return Vec::new() };
        let requests = made.spec.unwrap().devices.unwrap().requests.unwrap();
        let text = |r: DeviceRequest| format!("{}x{}", r.name, r.exactly.unwrap().count.unwrap());
        requests.into_iter().map(text).collect()
    }

    fn limits(count: &str) -> Value {
        json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": count}}})
    }

    #[test]
    fn a_container_that_asks_for_none_is_passed_over() {
        assert_eq!(
            requests(&json!([]), &json!([limits("0"), limits("2")])),
            ["container-1-request-0x2"]
        );
        assert_eq!(requests(&json!([]), &json!([limits("0")])), Vec::<String>::new());
    }

    #[test]
    fn init_containers_use_what_later_ones_have() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
        for (init, regular, want) in [
            (json!([limits("2")]), json!([limits("2")]), vec!["container-1-request-0x2"]),
            (
                json!([limits("3")]),
                json!([limits("1"), limits("1")]),
                vec![
                    "container-0-request-0x1",
                    "container-1-request-0x1",
                    "container-2-request-0x1",
                ],
            ),
            // Those that end take turns with the largest.
            (
                json!([limits("2"), limits("3")]),
                json!([limits("1")]),
                vec!["container-1-request-0x2", "container-2-request-0x1"],
            ),
            // A sidecar goes on: what it has is its own, but for those before it.
            (
                json!([sidecar, limits("1")]),
                json!([{"name": "c"}]),
                vec!["container-0-request-0x1", "container-1-request-0x1"],
            ),
            (
                json!([limits("1"), sidecar]),
                json!([{"name": "c"}]),
                vec!["container-1-request-0x1"],
            ),
        ] {
            assert_eq!(requests(&init, &regular), want, "{init} {regular}");
        }
    }

    #[test]
    fn the_place_counts_all_resources_of_the_container() {
        let container = json!({"name": "c", "resources": {
            "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"},
        }});
        assert_eq!(requests(&json!([]), &json!([container])), ["container-0-request-2x1"]);
    }
}
