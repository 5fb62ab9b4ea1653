//! "Fits" is said of a node exactly when Kubernetes' allocator allocates there: on recorded
//! clusters, with the verdict of k8s.io/dynamic-resource-allocation 0.36.3 for each node.

use gpu_dra_allocator::Rules;
use gpu_dra_explain::{Cluster, Explainer, NodeOutcome, Question, Slices, Verdict, text};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::Value;

const WORLDS: &str = include_str!("../data/worlds.jsonl");

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn fits_is_said_exactly_when_the_scheduler_allocates() {
    let (mut nodes_seen, mut fits_seen) = (0, 0);
    for (number, line) in WORLDS.lines().enumerate() {
        let world: Value = serde_json::from_str(line).unwrap();
        let slices: Slices = list::<ResourceSlice>(&world["slices"]).into_iter().collect();
        let mut classes: Vec<DeviceClass> = list(&world["classes"]);
        let taken: Vec<ResourceClaim> = list(&world["allocated"]);
        let nodes: Vec<Node> = list(&world["nodes"]);
        // The scheduler doesn't read configs; that the node agent does is another test's.
        for class in &mut classes {
            class.spec.iter_mut().for_each(|spec| spec.config = None);
        }
        let mut claims: Vec<ResourceClaim> = list(&world["claims"]);
        for claim in &mut claims {
            let devices = claim.spec.as_mut().and_then(|spec| spec.devices.as_mut());
            devices.into_iter().for_each(|devices| devices.config = None);
        }
        let question = Question { subject: "claims".to_owned(), claims, ..Question::default() };
        let verdicts = world["verdicts"].as_array().unwrap();
        // One question for all nodes, and one for each node by itself.
        let cluster = |nodes| Cluster {
            slices: &slices,
            classes: &classes,
            claims: &taken,
            nodes,
            admin_access: None,
        };
        let report = Explainer::new(cluster(&nodes)).explain(&question, &mut |_| {});
        let by_node = Explainer::new(cluster(&nodes)).with_devices_at_once(1);
        assert_eq!(by_node.explain(&question, &mut |_| {}), report, "world {number}, node by node");
        let counted: usize = report.nodes.iter().map(|group| group.count).sum();
        assert_eq!(counted, nodes.len(), "world {number}");
        let of = |outcome: NodeOutcome| -> usize {
            report.nodes.iter().filter(|g| g.outcome == outcome).map(|g| g.count).sum()
        };
        let fit = verdicts.iter().filter(|verdict| verdict.is_array()).count();
        let errors = verdicts.iter().filter(|verdict| **verdict == "error").count();
        nodes_seen += nodes.len();
        fits_seen += fit;
        let shown = text::plain(&report);
        assert_eq!(of(NodeOutcome::Fits), fit, "world {number}: {verdicts:?}\n{shown}");
        assert_eq!(of(NodeOutcome::Error), errors, "world {number}: {verdicts:?}\n{shown}");
        let want = match (errors, fit) {
            (0, 0) => Verdict::DoesNotFit,
            (0, _) => Verdict::Fits,
            _ => Verdict::Stopped,
        };
        assert_eq!(report.verdict, want, "world {number}\n{shown}");
        // What doesn't fit has a reason in words.
        for group in report.nodes.iter().filter(|group| group.outcome != NodeOutcome::Fits) {
            assert!(!group.why.is_empty() && group.why.len() < 500, "world {number}\n{shown}");
        }
    }
    assert!(nodes_seen >= 300 && fits_seen >= 75, "{nodes_seen} nodes, {fits_seen} fit");
}

/// Equal nodes are one group, however many.
#[test]
fn thousands_of_equal_nodes_are_one_line() {
    let mut slices = Slices::default();
    let mut nodes: Vec<Node> = Vec::new();
    for number in 0..1000 {
        let name = format!("node-{number:04}");
        slices.push(
            serde_json::from_value::<ResourceSlice>(serde_json::json!({
                "metadata": {"name": name},
                "spec": {
                    "driver": "gpu.nvidia.com", "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{
                        "name": "gpu-0",
                        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": format!("GPU-{number}")}},
                        "capacity": {"memory": {"value": "81559Mi"}},
                    }],
                },
            }))
            .unwrap(),
        );
        nodes
            .push(serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap());
    }
    let classes: Vec<DeviceClass> = serde_json::from_value(serde_json::json!([
        {"metadata": {"name": "gpu"}, "spec": {}},
    ]))
    .unwrap();
    let claim: ResourceClaim = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression":
                "device.attributes['gpu.nvidia.com'].uuid == 'GPU-x' && device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0"}}],
        }}]}},
    }))
    .unwrap();
    let cluster = Cluster {
        slices: &slices,
        classes: &classes,
        claims: &[],
        nodes: &nodes,
        admin_access: None,
    };
    let mut calls = 0;
    let report = Explainer::new(cluster).explain(&Question::of_claim(&claim), &mut |_| calls += 1);
    assert_eq!((report.nodes.len(), report.nodes[0].count, calls), (1, 1000, 1000));
    assert!(text::plain(&report).lines().count() < 20, "{}", text::plain(&report));
}

/// From Kubernetes 1.37 on another node's counters, of which the devices are missing, keep
/// nobody from all devices of this one.
#[test]
fn the_scheduler_that_is_asked_about_decides() {
    let read = |value: Value| serde_json::from_value::<ResourceSlice>(value).unwrap();
    let far = read(serde_json::json!({
        "metadata": {"name": "far"},
        "spec": {
            "driver": "d", "nodeName": "far",
            "pool": {"name": "far", "generation": 1, "resourceSliceCount": 2},
            "sharedCounters": [{"name": "gpu", "counters": {"m": {"value": "1"}}}],
        },
    }));
    let near = read(serde_json::json!({
        "metadata": {"name": "near"},
        "spec": {
            "driver": "d", "nodeName": "near", "devices": [{"name": "dev"}],
            "pool": {"name": "near", "generation": 1, "resourceSliceCount": 1},
        },
    }));
    let slices: Slices = [far, near].into_iter().collect();
    let nodes: Vec<Node> = list(&serde_json::json!([{"metadata": {"name": "near"}}]));
    let classes: Vec<DeviceClass> = list(&serde_json::json!([{"metadata": {"name": "c"}}]));
    let claim: ResourceClaim = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "c", "allocationMode": "All",
        }}]}},
    }))
    .unwrap();
    let cluster = Cluster {
        slices: &slices,
        classes: &classes,
        claims: &[],
        nodes: &nodes,
        admin_access: None,
    };
    for (rules, verdict) in [(Rules::UpTo136, Verdict::Stopped), (Rules::From137, Verdict::Fits)] {
        let explainer = Explainer::new(cluster).with_rules(rules);
        let report = explainer.explain(&Question::of_claim(&claim), &mut |_| {});
        assert_eq!(report.verdict, verdict, "{}", text::plain(&report));
    }
}
