//! Classes that take nothing, values that come near, devices that others hold, and what is not
//! to be said because it isn't known.

use gpu_dra_explain::{Cluster, Explainer, Question, Report, Slices, Verdict, text};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use crate::world::{INVENTORY, reports};

/// One node for each list of devices.
fn explained(nodes: &[Vec<Value>], class: &str, request: &Value, held: &[ResourceClaim]) -> Report {
    let slices = nodes.iter().enumerate().map(|(number, devices)| {
        let name = format!("node-{number}");
        serde_json::from_value::<ResourceSlice>(json!({
            "metadata": {"name": name},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}},
        }))
        .unwrap()
    });
    let slices: Slices = slices.collect();
    let named = |number| json!({"metadata": {"name": format!("node-{number}")}});
    let all: Vec<Node> =
        (0..nodes.len()).map(|number| serde_json::from_value(named(number)).unwrap()).collect();
    let classes: Vec<DeviceClass> = serde_json::from_value(json!([
        {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": class}}]}},
    ]))
    .unwrap();
    let claim = claim("asked", request, &Value::Null);
    let cluster = Cluster {
        slices: &slices,
        classes: &classes,
        claims: held,
        nodes: &all,
        admin_access: None,
    };
    Explainer::new(cluster).explain(&Question::of_claim(&claim), &mut |_| {})
}

fn claim(name: &str, request: &Value, status: &Value) -> ResourceClaim {
    let mut exactly = request.clone();
    exactly["deviceClassName"] = "c".into();
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"}, "status": status,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }))
    .unwrap()
}

fn selecting(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

fn gpu(name: &str, product: &str, memory: &str) -> Value {
    json!({
        "name": name, "capacity": {"memory": {"value": memory}},
        "attributes": {
            "type": {"string": "gpu"}, "productName": {"string": product},
            "uuid": {"string": format!("GPU-{name}")}, "driverVersion": {"version": "580.0.0"},
        },
    })
}

const ANY: &str = "device.driver == 'gpu.nvidia.com'";
const MEMORY: &str = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0";
const PRODUCT: &str = "device.attributes['gpu.nvidia.com'].productName";

/// As case 10 and 24, in the class.
#[test]
fn a_class_that_takes_nothing_is_explained_as_a_selector_is() {
    for (class, problem, fix, near) in [
        (
            MEMORY.to_owned(),
            "the largest memory published is 81559Mi",
            "use quantity('79Gi')",
            "2 devices fail only by memory: 81559Mi (79.6Gi) < 80Gi; did you mean >= 79Gi?",
        ),
        (
            format!("{PRODUCT} == 'H100'"),
            "no productName equals \"H100\"",
            "it is the full NVML name: == \"NVIDIA H100 80GB HBM3\"",
            "4 devices fail only by productName: wanted == \"H100\"",
        ),
        // As a GpuClass is compiled.
        (
            "device.capacity['gpu.nvidia.com'].?memory.orValue(quantity('0')).compareTo(quantity('80Gi')) >= 0"
                .to_owned(),
            "the largest memory published is 81559Mi",
            "use quantity('79Gi')",
            "did you mean >= 79Gi?",
        ),
    ] {
        let expression = format!(
            "device.driver == 'gpu.nvidia.com' && \
             device.attributes['gpu.nvidia.com'].type == 'gpu' && {class}"
        );
        let documents = [
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "big"},
                "spec": {"selectors": [{"cel": {"expression": expression}}]}}),
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "big"}}]}}}),
        ];
        let [class, claim] = documents.map(|document| document.to_string());
        let report = reports(&[INVENTORY, &class, &claim]).remove(0);
        let shown = text::plain(&report);
        assert_eq!(report.verdict, Verdict::DoesNotFit, "{shown}");
        let [advice] = report.advice.as_slice() else { panic!("{shown}") };
        assert_eq!(advice.about, "class big, selector #0");
        assert!(advice.problem.contains(problem), "{shown}");
        assert_eq!(advice.fix.as_deref(), Some(fix), "{shown}");
        assert!(report.nearest[0].text.contains(near), "{shown}");
        assert!(report.sentence.contains("it has none: selector #0 of class big wants"), "{shown}");
        // MIG devices and other drivers' are no near misses: one line a node.
        let told = shown.lines().filter(|line| line.contains(": selector #0 of class big")).count();
        assert_eq!(told, 3 + 3 + 1, "{shown}");
    }
}

/// Of a class that takes devices, those that it doesn't take are no news.
#[test]
fn a_class_that_works_is_passed_over() {
    let nodes = [vec![gpu("a", "NVIDIA H100", "80Gi"), gpu("b", "NVIDIA L4", "23Gi")]];
    let class = format!("{PRODUCT}.contains('H100')");
    let report = explained(&nodes, &class, &selecting(&format!("{PRODUCT} == 'x'")), &[]);
    assert!(report.advice.iter().all(|a| !a.about.starts_with("class")), "{:?}", report.advice);
    let [near] = report.nearest.as_slice() else { panic!("{:?}", report.nearest) };
    assert_eq!(near.devices, 1);
}

#[test]
fn a_class_of_another_driver_or_type_is_explained_too() {
    let nodes = [vec![gpu("a", "NVIDIA H100", "80Gi")]];
    for (class, problem) in [
        ("device.driver == 'nvidia.com'", "no driver is named \"nvidia.com\""),
        (
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'",
            "no type equals \"mig\"; published: gpu",
        ),
    ] {
        let report = explained(&nodes, class, &json!({}), &[]);
        let [advice] = report.advice.as_slice() else { panic!("{:?}", report.advice) };
        assert_eq!(
            (advice.about.as_str(), advice.problem.as_str()),
            ("class c, selector #0", problem)
        );
        assert!(report.nearest.is_empty(), "{:?}", report.nearest);
    }
}

/// A device by itself that fails a term of an `||` that others meet.
#[test]
fn one_side_of_an_or_is_not_blamed() {
    let nodes = [vec![gpu("a", "NVIDIA H100", "40Gi"), gpu("b", "NVIDIA L4", "23Gi")]];
    let either = format!("({PRODUCT} == 'NVIDIA H100' || {PRODUCT} == 'NVIDIA H200') && {MEMORY}");
    let report = explained(&nodes, ANY, &selecting(&either), &[]);
    let problems: Vec<&str> = report.advice.iter().map(|a| a.problem.as_str()).collect();
    assert!(!problems.iter().any(|problem| problem.contains("H200")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.contains("largest memory")), "{problems:?}");
}

#[test]
fn values_are_compared_in_the_case_that_is_written() {
    let nodes = [vec![gpu("a", "NVIDIA H100 80GB HBM3", "40Gi")]];
    let lower = format!("{PRODUCT}.lowerAscii()");
    for (term, problem, fix) in [
        (format!("{lower}.contains('h100')"), None, None),
        (format!("{lower} == 'nvidia h100 80gb hbm3'"), None, None),
        (
            format!("{lower}.contains('H100')"),
            Some("productName is compared in lower case, so that it never contains \"H100\""),
            Some("write \"h100\""),
        ),
        (
            format!("{lower}.startsWith('h100')"),
            Some(
                "no productName in lower case starts with \"h100\"; published: NVIDIA H100 80GB HBM3",
            ),
            Some("it is the full NVML name: startsWith(\"nvidia h100\")"),
        ),
        (
            format!("{PRODUCT}.upperAscii().contains('H200')"),
            Some(
                "no productName in upper case contains \"H200\"; published: NVIDIA H100 80GB HBM3",
            ),
            None,
        ),
    ] {
        // The other term keeps the device off in any case.
        let report = explained(&nodes, ANY, &selecting(&format!("{term} && {MEMORY}")), &[]);
        let found = report.advice.iter().find(|advice| advice.problem.contains("productName"));
        assert_eq!(found.map(|advice| advice.problem.as_str()), problem, "{term}");
        assert_eq!(found.and_then(|advice| advice.fix.as_deref()), fix, "{term}");
    }
}

/// `uuid == …` of a GPU that exists among many, and is held.
#[test]
fn that_no_device_has_a_value_is_said_of_few_values_only() {
    let asked = selecting("device.attributes['gpu.nvidia.com'].uuid == 'GPU-gpu-99'");
    let gpus = |count| (0..count).map(|n| gpu(&format!("gpu-{n:02}"), "NVIDIA L4", "23Gi"));
    let held = claim(
        "held",
        &json!({}),
        &json!({
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-0", "device": "gpu-99"},
            ]}},
            "reservedFor": [{"resource": "pods", "name": "first", "uid": "1"}],
        }),
    );
    let report = explained(&[gpus(100).collect()], ANY, &asked, &[held]);
    assert!(report.advice.is_empty(), "{:?}", report.advice);
    let near = report.nearest.iter().find(|near| near.text.contains("held by")).unwrap();
    assert_eq!(
        near.text,
        "1 device would do, but is held by other claims: default/held (pod first)"
    );
    assert!(near.fix.as_ref().unwrap().contains("no pod is preempted"), "{near:?}");
    let few = explained(&[gpus(48).collect()], ANY, &asked, &[]);
    assert!(few.advice[0].problem.contains("no uuid equals"), "{:?}", few.advice);
    let many = explained(&[gpus(49).collect()], ANY, &asked, &[]);
    assert!(many.advice.is_empty(), "{:?}", many.advice);
}

/// Only those that the bound would take are counted, and the nearest makes the bound.
#[test]
fn a_bound_is_told_with_the_devices_that_it_would_take() {
    let version = |name: &str, text: &str| {
        let mut device = gpu(name, "NVIDIA L4", "23Gi");
        device["attributes"]["driverVersion"]["version"] = text.into();
        device
    };
    let nodes = [
        vec![version("a", "9.0.0"), version("b", "535.1.0")],
        vec![version("a", "550.0.0"), version("b", "550.0.0")],
    ];
    let asked =
        "device.attributes['gpu.nvidia.com'].driverVersion.compareTo(semver('580.0.0')) >= 0";
    let report = explained(&nodes, ANY, &selecting(asked), &[]);
    let [near] = report.nearest.as_slice() else { panic!("{:?}", report.nearest) };
    assert_eq!(
        near.text,
        "2 devices fail only by driverVersion: 550.0.0 < 580.0.0; did you mean >= 550.0.0?"
    );
    assert_eq!((near.devices, near.nodes), (2, 1));

    // Two values above the rounded bound, one below.
    let nodes = [
        vec![gpu("a", "A", "79Gi"), gpu("b", "B", "81559Mi")],
        vec![gpu("a", "A", "79Gi"), gpu("b", "C", "40Gi")],
    ];
    let report = explained(&nodes, ANY, &selecting(MEMORY), &[]);
    let near = &report.nearest[0];
    assert_eq!(
        near.text,
        "3 devices fail only by memory: 81559Mi (79.6Gi), 79Gi < 80Gi; did you mean >= 79Gi?"
    );
    assert_eq!((near.devices, near.nodes), (3, 2));
    let at_most = MEMORY.replace(">= 0", "< 0").replace("80Gi", "30Gi");
    let report = explained(&nodes, ANY, &selecting(&at_most), &[]);
    assert!(report.nearest[0].text.contains("did you mean <= 40Gi?"), "{:?}", report.nearest);
}

#[test]
fn what_nobody_uses_is_not_used_by_others() {
    let mut shared = gpu("a", "NVIDIA L4", "23Gi");
    shared["allowMultipleAllocations"] = true.into();
    let asked = json!({"capacity": {"requests": {"memory": "24Gi"}}});
    let report = explained(&[vec![shared.clone()]], ANY, &asked, &[]);
    let shown = text::plain(&report);
    assert!(!shown.contains("other claims use"), "{shown}");
    assert!(
        shown.contains("no device has 24Gi of memory: the largest has 23Gi (NVIDIA L4)"),
        "{shown}"
    );
    assert!(shown.contains("1 device fails only by memory: less than is asked for"), "{shown}");

    let held = claim(
        "held",
        &json!({}),
        &json!({"allocation": {"devices": {"results": [{
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-0", "device": "a",
            "shareID": "c7a12eb3-3ed5-4a0b-ba0f-8e1d3d4a7f11", "consumedCapacity": {"memory": "20Gi"},
        }]}}}),
    );
    let asked = json!({"capacity": {"requests": {"memory": "4Gi"}}});
    let report = explained(&[vec![shared]], ANY, &asked, &[held]);
    let shown = text::plain(&report);
    assert!(
        shown.contains("1 device fails only because other claims use too much of memory"),
        "{shown}"
    );
}

#[test]
fn two_things_are_both_named() {
    let mut tainted = gpu("a", "NVIDIA L4", "23Gi");
    tainted["taints"] = json!([{"key": "broken", "value": "yes", "effect": "NoSchedule"}]);
    let report = explained(&[vec![tainted.clone()]], ANY, &selecting(MEMORY), &[]);
    let [near] = report.nearest.as_slice() else { panic!("{:?}", report.nearest) };
    assert_eq!(
        near.text,
        "1 device fails by two things: memory >= 80Gi, and taint broken=yes:NoSchedule"
    );
    // One thing is nearer than two.
    let nodes = [vec![tainted, gpu("b", "NVIDIA L4", "23Gi")]];
    let report = explained(&nodes, ANY, &selecting(MEMORY), &[]);
    assert!(
        report.nearest.iter().all(|near| !near.text.contains("two things")),
        "{:?}",
        report.nearest
    );
}

/// Two groups of requests that together no node can give, in more ways than are tried.
#[test]
fn a_limit_of_its_own_is_no_error_of_the_cluster() {
    let gpus = |count| (0..count).map(|n| gpu(&format!("gpu-{n:02}"), "NVIDIA L4", "23Gi"));
    let nodes: Vec<Vec<Value>> = (0..3).map(|_| gpus(40).collect()).collect();
    let claims = vec![
        claim("asked", &json!({"count": 16}), &Value::Null),
        claim("more", &json!({"count": 30}), &Value::Null),
    ];
    let question = Question { subject: "it".into(), claims, ..Question::default() };
    let slices: Slices = nodes
        .iter()
        .enumerate()
        .map(|(number, devices)| {
            serde_json::from_value::<ResourceSlice>(json!({
                "metadata": {"name": number.to_string()},
                "spec": {"driver": "gpu.nvidia.com", "nodeName": number.to_string(), "devices": devices,
                    "pool": {"name": number.to_string(), "generation": 1, "resourceSliceCount": 1}},
            }))
            .unwrap()
        })
        .collect();
    let classes: Vec<DeviceClass> =
        serde_json::from_value(json!([{"metadata": {"name": "c"}, "spec": {}}])).unwrap();
    let all: Vec<Node> = serde_json::from_value(json!([
        {"metadata": {"name": "0"}}, {"metadata": {"name": "1"}}, {"metadata": {"name": "2"}},
    ]))
    .unwrap();
    let cluster = Cluster {
        slices: &slices,
        classes: &classes,
        claims: &[],
        nodes: &all,
        admin_access: None,
    };
    let explainer = Explainer::new(cluster).with_max_steps(2_000);
    let report = explainer.explain(&question, &mut |_| {});
    assert_eq!(report.verdict, Verdict::NotDecided, "{}", text::plain(&report));
    assert!(report.sentence.starts_with("it, 3 of 3 nodes: not decided"), "{}", report.sentence);
    assert!(report.sentence.contains("a limit of its own"), "{}", report.sentence);
}

/// An expression that takes a second on each of thousands of devices is tried on one of them.
#[test]
fn a_selector_that_takes_too_long_is_not_decided_and_tried_once() {
    let mut expression = "z.flatten(60).size() == 1 && 'x' != device.driver".to_owned();
    for level in (0..40).rev() {
        let name = if level == 39 { "z".to_owned() } else { format!("v{level}") };
        let of = match level {
            0 => "[[1], [1]]".to_owned(),
            _ => format!("[v{0}, v{0}]", level - 1),
        };
        expression = format!("cel.bind({name}, {of}, {expression})");
    }
    let gpus = |node: usize| -> Vec<Value> {
        let named = |n: usize| gpu(&format!("gpu-{n}"), &format!("GPU {node} {n}"), "80Gi");
        (0..8).map(named).collect()
    };
    let nodes: Vec<Vec<Value>> = (0..100).map(gpus).collect();
    let begun = std::time::Instant::now();
    let report = explained(&nodes, "true", &selecting(&expression), &[]);
    assert_eq!(report.verdict, Verdict::NotDecided, "{}", text::plain(&report));
    assert!(text::plain(&report).contains("write it simpler"), "{}", text::plain(&report));
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

/// A pod that runs by an extended resource has the claim that the scheduler made for it.
#[test]
fn a_running_pod_has_its_extended_resource() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "node-l4", "containers": [
            {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
        "status": {"extendedResourceClaimStatus": {
            "resourceClaimName": "p-extended-resources-x7k2p",
            "requestMappings": [{"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}],
        }},
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "p-extended-resources-x7k2p"},
        "spec": {"devices": {"requests": [{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": {"allocation": {"devices": {"results": [{
            "request": "container-0-request-0", "driver": "gpu.nvidia.com", "pool": "node-l4", "device": "gpu-0",
        }]}}},
    });
    let report = reports(&[INVENTORY, &pod.to_string(), &claim.to_string()]).remove(0);
    assert_eq!(report.verdict, Verdict::Allocated, "{}", text::plain(&report));
    assert!(report.sentence.contains("node-l4/gpu-0"), "{}", report.sentence);
}

/// What the API server refuses is told of what uses it: a claim that can't be read too.
#[test]
fn what_is_refused_is_not_called_missing() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
    }});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c"}, "spec": {"devices": {"requests": 3}}});
    let report = reports(&[INVENTORY, &pod.to_string(), &claim.to_string()]).remove(0);
    assert_eq!(report.verdict, Verdict::Rejected, "{}", text::plain(&report));
    assert!(
        report.sentence.contains("refuses ResourceClaim c: can't be read"),
        "{}",
        report.sentence
    );
}
