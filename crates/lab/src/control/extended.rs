//! Extended resources backed by device classes: `nvidia.com/gpu: 2` in a container becomes a claim that nobody
//! wrote (KEP-5004).

use std::sync::Arc;

use gpu_dra_model::Quantity;
use serde_json::{Value, json};

use super::{owner, text};

/// Marks the claim that the scheduler makes for a pod's extended resources.
pub(super) const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// Before a class's name, this is a resource of that class without any setting in it.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// A claim for a pod's extended resources that isn't stored yet.
#[derive(Debug)]
pub(super) struct SpecialClaim {
    pub(super) claim: Value,
}

/// One request: container, resource, class, count.
struct Ask {
    container: String,
    resource: String,
    request: String,
    class: String,
    count: i64,
}

/// The class behind a resource name: the newest that names it, of equally old ones the first by name.
fn class_of(resource: &str, classes: &[Arc<Value>]) -> Option<String> {
    if let Some(name) = resource.strip_prefix(IMPLICIT) {
        let found = classes.iter().find(|class| text(class, "/metadata/name") == name);
        return found.map(|_| name.to_owned());
    }
    let named = classes.iter().filter(|c| text(c, "/spec/extendedResourceName") == resource);
    let newest = named.max_by(|a, b| {
        let created = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
        let name = |class: &Value| text(class, "/metadata/name").to_owned();
        created(a).cmp(&created(b)).then_with(|| name(b).cmp(&name(a)))
    });
    newest.map(|class| text(class, "/metadata/name").to_owned())
}

fn asks(pod: &Value, class: impl Fn(&str) -> Option<String>) -> Vec<Ask> {
    let list = |field: &str| pod["spec"][field].as_array().into_iter().flatten();
    let mut asks = Vec::new();
    for (index, container) in list("initContainers").chain(list("containers")).enumerate() {
        let mut wanted: Vec<(&String, i64)> = container["resources"]["requests"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, count)| Some((name, whole(count)?)))
            .filter(|(name, count)| name.contains('/') && *count > 0)
            .collect();
        wanted.sort();
        for (position, (resource, count)) in wanted.into_iter().enumerate() {
            if let Some(class) = class(resource) {
                asks.push(Ask {
                    container: text(container, "/name").to_owned(),
                    resource: resource.clone(),
                    request: format!("container-{index}-request-{position}"),
                    class,
                    count,
                });
            }
        }
    }
    asks
}

fn whole(count: &Value) -> Option<i64> {
    count.as_str()?.parse::<Quantity>().ok()?.as_integer()
}

/// The claim for a pod, if it asks for a resource that a class stands behind.
pub(super) fn claim(pod: &Value, classes: &[Arc<Value>]) -> Option<SpecialClaim> {
    let asks = asks(pod, |resource| class_of(resource, classes));
    if asks.is_empty() {
        return None;
    }
    let requests: Vec<Value> = asks
        .iter()
        .map(|ask| {
            json!({"name": ask.request, "exactly": {
                "deviceClassName": ask.class, "allocationMode": "ExactCount", "count": ask.count,
            }})
        })
        .collect();
    let name = text(pod, "/metadata/name");
    let claim = json!({
        "metadata": {
            "generateName": format!("{name}-extended-resources-"),
            "namespace": pod["metadata"]["namespace"],
            "annotations": {ANNOTATION: "true"}, "ownerReferences": [owner(pod)],
        },
        "spec": {"devices": {"requests": requests}},
    });
    Some(SpecialClaim { claim })
}

/// The pod's `extendedResourceClaimStatus`: which container gets which request of the claim.
pub(super) fn status(pod: &Value, claim: &Value) -> Value {
    let requests = claim.pointer("/spec/devices/requests").and_then(Value::as_array);
    let named = |name: &str| requests.into_iter().flatten().any(|request| request["name"] == name);
    let asks = asks(pod, |resource| Some(resource.to_owned()));
    let mappings: Vec<Value> = asks
        .iter()
        .filter(|ask| named(&ask.request))
        .map(|ask| {
            json!({
                "containerName": ask.container, "resourceName": ask.resource,
                "requestName": ask.request,
            })
        })
        .collect();
    json!({"resourceClaimName": claim["metadata"]["name"], "requestMappings": mappings})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, created: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"extendedResourceName": "nvidia.com/gpu"},
        }))
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [
                {"name": "a", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2", "other.com/x": "1"}}},
                {"name": "b", "resources": {"requests": {"deviceclass.resource.kubernetes.io/old": "1"}}},
            ]},
        })
    }

    #[test]
    fn the_newest_class_stands_behind_the_name() {
        let classes = [
            class("old", "2026-01-01T00:00:00Z"),
            class("b", "2026-02-01T00:00:00Z"),
            class("a", "2026-02-01T00:00:00Z"),
        ];
        let special = claim(&pod(), &classes).unwrap();
        assert_eq!(
            special.claim["spec"]["devices"]["requests"],
            json!([
                {"name": "container-0-request-0", "exactly": {"deviceClassName": "a", "allocationMode": "ExactCount", "count": 2}},
                {"name": "container-1-request-0", "exactly": {"deviceClassName": "old", "allocationMode": "ExactCount", "count": 1}},
            ])
        );
        let mut stored = special.claim;
        stored["metadata"]["name"] = "made".into();
        assert_eq!(
            status(&pod(), &stored),
            json!({"resourceClaimName": "made", "requestMappings": [
                {"containerName": "a", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"},
                {"containerName": "b", "resourceName": "deviceclass.resource.kubernetes.io/old", "requestName": "container-1-request-0"},
            ]})
        );
        assert!(claim(&pod(), &[]).is_none());
    }
}
