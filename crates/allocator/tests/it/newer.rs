//! What Kubernetes 1.37 decides otherwise, each on one world by both rules.

use gpu_dra_allocator::{AllocateError, Rules};
use serde_json::{Value, json};

use crate::rules::{device, exactly, pods, requests, slice};
use crate::world::{Pod, World};

/// What becomes of the world's last pod: by the older rules, by the newer ones.
fn last_by_both(world: &World) -> [Pod; 2] {
    [Rules::UpTo136, Rules::From137].map(|rules| {
        let mut world = world.clone();
        world.rules = rules;
        world.schedule().pop().unwrap()
    })
}

/// The devices by both rules; "nothing fits", or how the error begins.
fn shown(world: &World) -> [String; 2] {
    last_by_both(world).map(|pod| match &pod {
        Pod::Running(..) => pod.devices().1.join(" "),
        Pod::Pending(refusals) => match refusals.iter().find_map(|(_, r)| r.error.clone()) {
            None => "nothing fits".to_owned(),
            Some(AllocateError::AllUnknown { .. }) => "all is unknown".to_owned(),
            Some(AllocateError::Unreckonable { .. }) => "unreckonable".to_owned(),
            Some(error) => panic!("{error}"),
        },
    })
}

fn all() -> Value {
    requests(&[exactly("r", json!({"allocationMode": "All"}))])
}

fn memory(size: &str) -> Value {
    requests(&[exactly("r", json!({"capacity": {"requests": {"memory": size}}}))])
}

/// A slice with a counter of 2, and a slice of devices that take 1 each.
fn partitions(driver: &str, pool: &str, devices: &[Value]) -> [String; 2] {
    let counters = json!({
        "kind": "ResourceSlice", "metadata": {"name": format!("{driver}-{pool}-counters")},
        "spec": {
            "driver": driver, "nodeName": "a",
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 2},
            "sharedCounters": [{"name": "gpu", "counters": {"m": {"value": "2"}}}],
        },
    });
    let slice = slice(&format!("{driver}-{pool}"), "a", 1, 2, devices);
    let mut slice: Value = serde_json::from_str(&slice).unwrap();
    slice["spec"]["driver"] = json!(driver);
    slice["spec"]["pool"]["name"] = json!(pool);
    [counters.to_string(), slice.to_string()]
}

fn partition(name: &str, more: Value) -> Value {
    let mut device = json!({"name": name, "consumesCounters": [
        {"counterSet": "gpu", "counters": {"m": {"value": "1"}}},
    ]});
    device.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    device
}

#[test]
fn a_broken_pool_of_counters_is_known_on_its_own_nodes_only() {
    let [counters, _] = partitions("d", "far", &[]);
    let far = counters.replace(r#""nodeName":"a""#, r#""nodeName":"far""#);
    let near = slice("near", "a", 1, 1, &[device("dev", json!({}))]);
    assert_eq!(shown(&pods(&[far, near.clone()], &[all()])), ["all is unknown", "r=dev"]);
    assert_eq!(shown(&pods(&[counters, near], &[all()])), ["all is unknown"; 2]);
}

#[test]
fn counters_of_another_nodes_slice_are_found_where_a_device_takes_of_them() {
    let [counters, devices] = partitions("d", "p", &[partition("x", json!({}))]);
    let far = counters.replace(r#""nodeName":"a""#, r#""nodeName":"far""#);
    let three = requests(&[exactly("r", json!({}))]);
    assert_eq!(shown(&pods(&[far, devices], &[three])), ["r=x"; 2]);
}

#[test]
fn drivers_with_equal_pool_names_do_not_disturb_each_other() {
    let [one, of_one] = partitions("d", "p", &["a", "b"].map(|n| partition(n, json!({}))));
    let [other, of_other] = partitions("e", "p", &["c", "d"].map(|n| partition(n, json!({}))));
    let four = requests(&[exactly("r", json!({"count": 4}))]);
    let world = pods(&[one, of_one, other, of_other], &[four]);
    assert_eq!(shown(&world), ["nothing fits", "r=a r=b r=c r=d"]);
}

#[test]
fn all_includes_a_device_whose_capacity_is_used_up() {
    let shared = |name: &str| {
        json!({
            "name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "8Gi"}},
        })
    };
    let slices = [slice("s", "a", 1, 1, &["x", "y"].map(shared))];
    let half = json!({"allocationMode": "All", "capacity": {"requests": {"memory": "4Gi"}}});
    let half = requests(&[exactly("r", half)]);
    assert_eq!(shown(&pods(&slices, std::slice::from_ref(&half))), ["r=x r=y"; 2]);
    let most = pods(&slices, &[memory("6Gi"), half]);
    assert_eq!(shown(&most), ["r=y", "nothing fits"]);
}

#[test]
fn a_share_without_capacity_has_its_counters_counted() {
    let shared = partition("x", json!({"allowMultipleAllocations": true}));
    let slices = partitions("d", "p", &[shared, partition("y", json!({}))]);
    let one = || requests(&[exactly("r", json!({}))]);
    let two = requests(&[exactly("r", json!({"count": 2}))]);
    // `x` is taken already: of the counter of 2 one is left, which another share needs not.
    assert_eq!(shown(&pods(&slices, &[one(), two])), ["nothing fits", "r=x r=y"]);
}

#[test]
fn distinct_means_each_device_of_a_request() {
    let with = |name: &str, n: i64| device(name, json!({"n": {"int": n}}));
    let slices = [slice("s", "a", 1, 1, &[with("x", 1), with("y", 2), with("z", 1)])];
    let claim = json!({
        "requests": [exactly("r", json!({"count": 3}))],
        "constraints": [{"distinctAttribute": "d/n"}],
    });
    assert_eq!(shown(&pods(&slices, &[claim])), ["r=x r=y r=z", "nothing fits"]);
}

#[test]
fn what_cannot_be_reckoned_ends_the_attempt() {
    let shared = json!({
        "name": "x", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "8", "requestPolicy": {
            "default": "1", "validRange": {"min": "200m", "step": "100m"},
        }}},
    });
    let slices = [slice("s", "a", 1, 1, &[shared])];
    for (wanted, expected) in [
        ("250m", ["r=x"; 2]),
        ("1u", ["r=x"; 2]),
        ("1500001u", ["r=x", "unreckonable"]),
        ("10P", ["nothing fits", "unreckonable"]),
        ("9", ["nothing fits"; 2]),
    ] {
        assert_eq!(shown(&pods(&slices, &[memory(wanted)])), expected, "{wanted}");
    }
    let unknown = requests(&[exactly("r", json!({"capacity": {"requests": {"cores": "1"}}}))]);
    assert_eq!(shown(&pods(&slices, &[unknown])), ["nothing fits"; 2]);
}

#[test]
fn a_config_is_listed_once_and_names_no_request_where_it_means_all() {
    let opaque =
        |names: Value| json!({"requests": names, "opaque": {"driver": "d", "parameters": {}}});
    let claim = json!({
        "requests": [
            exactly("p", json!({})),
            {"name": "q", "firstAvailable": [
                {"name": "a", "deviceClassName": "c", "count": 9}, {"name": "b", "deviceClassName": "c"},
            ]},
            exactly("r", json!({})),
        ],
        "config": [
            opaque(json!(["p", "q"])), opaque(json!(["p", "q/b", "r"])), opaque(json!(["q/a"])),
            opaque(json!([])),
        ],
    });
    let three = ["x", "y", "z"].map(|name| device(name, json!({})));
    let world = pods(&[slice("s", "a", 1, 1, &three)], &[claim]);
    let names = last_by_both(&world).map(|pod| {
        let Pod::Running(_, allocations) = pod else { panic!("{pod:?}") };
        let config = allocations[0].devices.as_ref().unwrap().config.clone().unwrap();
        let names = config.iter().map(|c| c.requests.clone().unwrap_or_default().join(","));
        names.collect::<Vec<_>>()
    });
    assert_eq!(names[0], ["p,q", "p,q", "p,q/b,r", "p,q/b,r", "p,q/b,r", ""]);
    assert_eq!(names[1], ["p,q", "", ""]);
}
