//! The limits that a real API server was seen to enforce.

use gpu_dra_slices::{DesiredPool, Write, plan_writes, validate, validate_pool};
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

use crate::support::{h100, node_with, owner, pool_of, pool_ref};

fn good() -> Value {
    let pool = pool_of(&node_with([h100(0), h100(1)]));
    match plan_writes(&[], &pool, &pool_ref(), &owner()).remove(0) {
        Write::Create(slice) => serde_json::to_value(slice).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Sets the value at a JSON pointer of a good slice; the complaints, as text.
fn complaints(pointer: &str, value: Value) -> Vec<String> {
    let mut slice = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    slice.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key, value);
    let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
    validate(&slice).iter().map(ToString::to_string).collect()
}

#[test]
fn what_we_build_is_accepted() {
    assert_eq!(validate(&serde_json::from_value(good()).unwrap()), []);
}

#[test]
fn each_broken_rule_is_found() {
    let device = "/spec/devices/0";
    let at = |path: &str| format!("{device}{path}");
    let many = |n: usize| -> Value {
        (0..n)
            .map(|i| (format!("a{i}"), json!({"int": 1})))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let devices = |n: usize| -> Value {
        (0..n).map(|i| json!({"name": format!("gpu-{i}")})).collect::<Vec<_>>().into()
    };
    let mut tainted = devices(65);
    tainted[3]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
    let counters = json!([{"name": "s", "counters": {"memory": {"value": "1"}}}]);
    let taint = |key: &str, value: &str, effect: &str| json!([{"key": key, "value": value, "effect": effect}]);
    for (pointer, value) in [
        ("/spec/driver".to_owned(), json!("gpu_nvidia")),
        ("/spec/nodeName".to_owned(), json!("UPPER")),
        ("/spec/allNodes".to_owned(), json!(true)),
        ("/spec/sharedCounters".to_owned(), counters),
        ("/spec/devices".to_owned(), devices(129)),
        ("/spec/devices".to_owned(), tainted),
        ("/spec/devices".to_owned(), json!([{"name": "a"}, {"name": "a"}])),
        ("/spec/pool/name".to_owned(), json!("a//b")),
        ("/spec/pool/generation".to_owned(), json!(-1)),
        ("/spec/pool/resourceSliceCount".to_owned(), json!(0)),
        (at("/name"), json!("gpu-0-mig-1g.10gb")),
        (at("/nodeName"), json!("node-1")),
        (at("/bindsToNode"), json!(true)),
        (at("/attributes"), many(33)),
        (at("/attributes/1abc"), json!({"int": 1})),
        (at("/attributes/a-b"), json!({"int": 1})),
        (at("/attributes/_bad domain~1a"), json!({"int": 1})),
        (at(&format!("/attributes/{}", "a".repeat(33))), json!({"int": 1})),
        (at("/attributes/a"), json!({})),
        (at("/attributes/a"), json!({"int": 1, "bool": true})),
        (at("/attributes/a"), json!({"ints": [1]})),
        (at("/attributes/a"), json!({"string": "x".repeat(65)})),
        (at("/attributes/driverVersion"), json!({"version": "570.124.06"})),
        (at("/attributes/driverVersion"), json!({"version": "13.0"})),
        (at("/attributes/driverVersion"), json!({"version": "v1.2.3"})),
        (at("/attributes/driverVersion"), json!({"version": "1.2.3-01"})),
        (at("/capacity/memory"), json!({"value": "80 GB"})),
        (at("/capacity/memory"), json!({"value": "1Gi", "requestPolicy": {"default": "1Gi"}})),
        (at("/consumesCounters"), json!([{"counterSet": "s", "counters": {}}])),
        (
            at("/consumesCounters"),
            json!([{"counterSet": "s", "counters": {"copyEngines": {"value": "1"}}}]),
        ),
        (at("/taints"), taint("a/b/c", "1", "NoSchedule")),
        (at("/taints"), taint("gpu.nvidia.com/xid", "a b", "NoSchedule")),
        (at("/taints"), taint("gpu.nvidia.com/xid", "79", "PreferNoSchedule")),
    ] {
        let found = complaints(&pointer, value.clone());
        assert!(!found.is_empty(), "{pointer} = {value} should be refused");
    }
    assert_eq!(
        complaints(&at("/attributes/driverVersion"), json!({"version": "570.124.06"})),
        [
            "spec.devices[gpu-0].attributes[driverVersion]: SemVer 2.0.0: three numbers, no leading 0"
        ]
    );
}

#[test]
fn each_allowed_edge_passes() {
    for (pointer, value) in [
        ("/spec/devices", json!([])),
        ("/spec/devices/0/attributes/a", json!({"string": "x".repeat(64)})),
        ("/spec/devices/0/attributes/a", json!({"string": ""})),
        ("/spec/devices/0/attributes/a", json!({"version": "1.2.3-rc.1+build.05"})),
        ("/spec/devices/0/attributes/a", json!({"version": "0.0.0"})),
        ("/spec/devices/0/taints", json!([{"key": "xid", "effect": "None"}])),
    ] {
        assert_eq!(complaints(pointer, value.clone()), [""; 0], "{pointer} = {value}");
    }
}

#[test]
fn counters_must_be_known_in_the_pool() {
    let pool = |counter: &str| {
        let sets = json!([{"name": "gpu-0-counter-set", "counters": {"memory": {"value": "1"}}}]);
        let devices = json!([{"name": "gpu-0", "consumesCounters":
            [{"counterSet": "gpu-0-counter-set", "counters": {counter: {"value": "1"}}}]}]);
        DesiredPool::new(
            serde_json::from_value(devices).unwrap(),
            serde_json::from_value(sets).unwrap(),
            Vec::new(),
        )
    };
    assert_eq!(validate_pool(&pool("memory")), []);
    assert_eq!(validate_pool(&pool("decoders")).len(), 1);
}
