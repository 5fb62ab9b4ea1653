//! Sizes and numbers that nobody means well with, and the survey.

use gpu_dra_allocator::{AllocateError, Allocated, Allocator, Outcome, PoolProblem, Reason};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(name: &str) -> Node {
    read(json!({"metadata": {"name": name}}))
}

fn class() -> Vec<DeviceClass> {
    read(json!([{"metadata": {"name": "c"}, "spec": {}}]))
}

fn claim(name: &str, count: usize) -> ResourceClaim {
    read(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "c", "count": count,
        }}]}},
    }))
}

/// A pool named after its node: counters in one slice, devices that take them in another.
fn partitioned(node: &str, counter: &str, takes: &[&str]) -> [ResourceSlice; 2] {
    let slice = |part: &str, content: Value| {
        let mut slice = json!({
            "metadata": {"name": format!("{node}-{part}")},
            "spec": {
                "driver": "d", "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 2},
            },
        });
        for (field, value) in content.as_object().unwrap() {
            slice["spec"][field] = value.clone();
        }
        read(slice)
    };
    let devices: Vec<Value> = takes
        .iter()
        .enumerate()
        .map(|(number, takes)| {
            json!({"name": format!("dev-{number}"), "consumesCounters": [
                {"counterSet": "set", "counters": {"memory": {"value": takes}}},
            ]})
        })
        .collect();
    let set = json!({"name": "set", "counters": {"memory": {"value": counter}}});
    [
        slice("counters", json!({"sharedCounters": [set]})),
        slice("devices", json!({"devices": devices})),
    ]
}

fn allocate(allocator: &mut Allocator<'_>, on: &str, claims: &[ResourceClaim]) -> Outcome {
    let claims: Vec<&ResourceClaim> = claims.iter().collect();
    allocator.allocate(&node(on), &claims, &mut || "share".to_owned())
}

/// On a thread with the stack that a runtime's workers have.
#[test]
fn thousands_of_claims_need_no_stack() {
    let run = || {
        let devices: Vec<Value> =
            (0..3000).map(|number| json!({"name": format!("dev-{number}")})).collect();
        let slices: Vec<ResourceSlice> = read(json!([{
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d", "nodeName": "a", "devices": devices,
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            },
        }]));
        let claims: Vec<ResourceClaim> =
            (0..3000).map(|number| claim(&format!("claim-{number}"), 1)).collect();
        let classes = class();
        let mut allocator = Allocator::new(&slices, &classes, Allocated::default());
        let outcome = allocate(&mut allocator, "a", &claims);
        assert!(matches!(&outcome, Outcome::Allocated(results) if results.len() == 3000));

        // One too many: every combination fails at the end, so it must be given up.
        let mut allocator =
            Allocator::new(&slices, &classes, Allocated::default()).with_max_steps(1_000_000);
        let mut more = claims;
        more.push(claim("more", 1));
        let Outcome::Refused(refusal) = allocate(&mut allocator, "a", &more) else {
            panic!("3001 claims can't have 3000 devices")
        };
        assert!(matches!(refusal.error, Some(AllocateError::TooLong { steps: 1_000_000 })));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

/// Every node knows of every slice with counters; looking at all of them on each would make
/// some 10^8 looks here.
#[test]
fn thousands_of_partitioned_nodes_are_gone_through() {
    const NODES: usize = 5_000;
    let mut slices = Vec::new();
    for number in 0..NODES {
        slices.extend(partitioned(&format!("n{number}"), "2", &["1", "1", "1"]));
    }
    let classes = class();
    let mut allocator = Allocator::new(&slices, &classes, Allocated::default());
    let claims = [claim("two", 2)];
    for number in 0..NODES {
        let outcome = allocate(&mut allocator, &format!("n{number}"), &claims);
        assert!(matches!(outcome, Outcome::Allocated(_)), "{outcome:?}");
    }
    let too_many = [claim("three", 3)];
    let outcome = allocate(&mut allocator, "n17", &too_many);
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

/// What is wrong with a pool that has only counters for other nodes concerns all nodes, as in
/// the scheduler: "all devices" is unknown then.
#[test]
fn a_broken_pool_of_another_node_is_known() {
    let [counters, _] = partitioned("far", "2", &["1"]);
    let near: ResourceSlice = read(json!({
        "metadata": {"name": "near"},
        "spec": {
            "driver": "d", "nodeName": "near", "devices": [{"name": "dev"}],
            "pool": {"name": "near", "generation": 1, "resourceSliceCount": 1},
        },
    }));
    let slices = [counters, near];
    let classes = class();
    let mut allocator = Allocator::new(&slices, &classes, Allocated::default());
    let all: ResourceClaim = read(json!({
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "c", "allocationMode": "All",
        }}]}},
    }));
    let Outcome::Refused(refusal) = allocate(&mut allocator, "near", &[all]) else {
        panic!("an incomplete pool")
    };
    assert!(matches!(refusal.error, Some(AllocateError::AllUnknown { .. })), "{refusal:?}");
    let outcome = allocate(&mut allocator, "near", &[claim("one", 1)]);
    assert!(matches!(outcome, Outcome::Allocated(_)), "one device can still be had: {outcome:?}");
}

/// Sums beyond what can be reckoned are too much, never nothing.
#[test]
fn counters_beyond_reckoning_are_not_there() {
    let most = "9223372036854775807";
    let slices = partitioned("a", most, &[most, most, "1"]);
    let classes = class();
    let mut allocator = Allocator::new(&slices, &classes, Allocated::default());
    for (count, fits) in [(1, true), (2, false), (3, false)] {
        let outcome = allocate(&mut allocator, "a", &[claim("x", count)]);
        assert_eq!(matches!(outcome, Outcome::Allocated(_)), fits, "{count}: {outcome:?}");
    }
    let holder: ResourceClaim = read(json!({
        "metadata": {"name": "holder", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "d", "pool": "a", "device": "dev-0"},
            {"request": "r", "driver": "d", "pool": "a", "device": "dev-1"},
        ]}}},
    }));
    let mut allocator = Allocator::new(&slices, &classes, Allocated::from_claims([&holder]));
    let outcome = allocate(&mut allocator, "a", &[claim("x", 1)]);
    assert!(matches!(outcome, Outcome::Refused(_)), "overdrawn: {outcome:?}");
}

/// Every obstacle of a device is told, not only the first, and the terms to blame.
#[test]
fn a_survey_tells_all_that_keeps_a_device_off() {
    let slices: Vec<ResourceSlice> = read(json!([{
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d", "nodeName": "a",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": "free", "attributes": {"n": {"int": 1}}, "capacity": {"m": {"value": "2Gi"}}},
                {"name": "bad", "attributes": {"n": {"int": 5}}, "capacity": {"m": {"value": "1Gi"}},
                 "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "l", "effect": "NoExecute"}]},
            ],
        },
    }]));
    let holder: ResourceClaim = read(json!({
        "metadata": {"name": "holder", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": [
            {"request": "r", "driver": "d", "pool": "p", "device": "bad"},
        ]}}},
    }));
    let wants: ResourceClaim = read(json!({
        "metadata": {"name": "wants", "namespace": "default"},
        "spec": {"devices": {
            "requests": [{"name": "r", "exactly": {
                "deviceClassName": "c", "capacity": {"requests": {"m": "2Gi"}},
                "selectors": [
                    {"cel": {"expression": "device.attributes['d'].n == 1 && device.driver == 'd'"}},
                    {"cel": {"expression": "device.capacity['d'].m.compareTo(quantity('2Gi')) >= 0"}},
                ],
            }}],
            "constraints": [{"requests": [], "matchAttribute": "d/other"}],
        }},
    }));
    let classes = class();
    let mut allocator = Allocator::new(&slices, &classes, Allocated::from_claims([&holder]));
    let survey = allocator.survey(&node("a"), &[&wants]).unwrap();
    let devices = &survey.requests[0].devices;
    let reasons = |device: usize| -> Vec<String> {
        devices[device].obstacles.iter().map(|obstacle| obstacle.reason.to_string()).collect()
    };
    assert_eq!(reasons(0), ["constraint #0 on d/other: it hasn't the attribute"]);
    assert_eq!(
        reasons(1),
        [
            "selector #0 of the request doesn't match",
            "selector #1 of the request doesn't match",
            "claim default/holder holds it",
            "1Gi of m are left, 2Gi are needed",
            "taint k=v:NoSchedule is not tolerated",
            "taint l=:NoExecute is not tolerated",
            "constraint #0 on d/other: it hasn't the attribute",
        ]
    );
    let terms = &devices[1].obstacles[0].terms;
    assert_eq!(terms.len(), 1);
    assert_eq!(terms[0].text, "device.attributes['d'].n == 1");
    assert!(matches!(devices[0].obstacles[0].reason, Reason::Constraint { .. }));
    let none: Vec<PoolProblem> = Vec::new();
    assert_eq!(survey.pools, none);
}
