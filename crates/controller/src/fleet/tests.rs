//! Counts of small fleets, against what a person would count; and of a large one, against the
//! same counted anew.

use gpu_dra_cel::Selector;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::*;

const GPU: &str = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'";
const MIG: &str = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'mig'";

fn selector(text: &str) -> Selector {
    Selector::compile(text).unwrap()
}

fn gpu(name: &str, product: &str) -> Value {
    json!({"name": name,
        "attributes": {"type": {"string": "gpu"}, "productName": {"string": product}, "uuid": {"string": name}},
        "capacity": {"memory": {"value": "81559Mi"}}})
}

fn slice_of(
    driver: &str,
    node: &str,
    (generation, count, index): (i64, i64, i64),
    devices: Vec<Value>,
) -> ResourceSlice {
    serde_json::from_value(json!({"metadata": {"name": format!("{node}-{index}")}, "spec": {
        "driver": driver, "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": count}}}))
    .unwrap()
}

fn slice(node: &str, devices: Vec<Value>) -> ResourceSlice {
    slice_of("gpu.nvidia.com", node, (1, 1, 0), devices)
}

fn claim(name: &str, results: Value) -> ResourceClaim {
    serde_json::from_value(json!({"metadata": {"namespace": "n", "name": name},
        "status": {"allocation": {"devices": {"results": results}}}}))
    .unwrap()
}

fn takes(pool: &str, device: &str) -> Value {
    json!({"request": "r", "driver": "gpu.nvidia.com", "pool": pool, "device": device})
}

fn tally(fleet: &mut Fleet, text: &str) -> (u64, u64, u64) {
    let Tally { devices, nodes, free, error } = fleet.tally(&selector(text));
    assert_eq!(error, None);
    (devices, nodes, free)
}

#[test]
fn devices_nodes_and_claims_come_and_go() {
    let mut fleet = Fleet::new("gpu.nvidia.com");
    assert_eq!(tally(&mut fleet, GPU), (0, 0, 0));
    for node in ["a", "b"] {
        fleet.put_slice(&slice(node, vec![gpu("gpu-0", "H100"), gpu("gpu-1", "H100")]));
    }
    fleet.put_slice(&slice_of("other.example.com", "c", (1, 1, 0), vec![gpu("gpu-0", "H100")]));
    assert_eq!(tally(&mut fleet, GPU), (4, 2, 4));
    assert_eq!(fleet.shapes(), 1, "four devices that no class can tell apart");

    fleet.put_claim(&claim("one", json!([takes("a", "gpu-0"), takes("b", "gpu-1")])));
    assert_eq!(tally(&mut fleet, GPU), (4, 2, 2));
    fleet.put_claim(&claim("one", json!([takes("a", "gpu-0")])));
    assert_eq!(tally(&mut fleet, GPU), (4, 2, 3));
    let mut admin = takes("a", "gpu-1");
    admin["adminAccess"] = json!(true);
    fleet.put_claim(&claim("admin", json!([admin])));
    assert_eq!(tally(&mut fleet, GPU), (4, 2, 3), "adminAccess takes nothing away");
    fleet.remove_claim("n/one");
    assert_eq!(tally(&mut fleet, GPU), (4, 2, 4));

    fleet.put_slice(&slice("a", vec![gpu("gpu-0", "H100")]));
    assert_eq!(tally(&mut fleet, GPU), (3, 2, 3));
    fleet.remove_slice("b-0");
    assert_eq!(tally(&mut fleet, GPU), (1, 1, 1));
    fleet.retain_slices(|_| false);
    assert_eq!(tally(&mut fleet, GPU), (0, 0, 0));
    assert!(fleet.nodes.is_empty() && fleet.numbers.is_empty() && fleet.pools.is_empty());
}

#[test]
fn a_claim_known_before_its_slices_counts() {
    let mut fleet = Fleet::new("gpu.nvidia.com");
    fleet.put_claim(&claim("one", json!([takes("a", "gpu-0")])));
    fleet.put_slice(&slice("a", vec![gpu("gpu-0", "H100")]));
    assert_eq!(tally(&mut fleet, GPU), (1, 1, 0));
    fleet.retain_claims(|key| key != "n/one");
    assert_eq!(tally(&mut fleet, GPU), (1, 1, 1));
}

#[test]
fn only_the_newest_generation_counts_and_only_when_complete() {
    let mut fleet = Fleet::new("gpu.nvidia.com");
    let put = |fleet: &mut Fleet, place| {
        fleet.put_slice(&slice_of(
            "gpu.nvidia.com",
            "a",
            place,
            vec![gpu(&format!("gpu-{}", place.2), "H100")],
        ));
    };
    put(&mut fleet, (1, 2, 0));
    assert_eq!(tally(&mut fleet, GPU), (0, 0, 0), "one of two");
    put(&mut fleet, (1, 2, 1));
    assert_eq!(tally(&mut fleet, GPU), (2, 1, 2));
    put(&mut fleet, (2, 1, 0));
    assert_eq!(tally(&mut fleet, GPU), (1, 1, 1), "the old one is left behind");
}

#[test]
fn what_is_left_of_a_partitioned_gpu_is_counted() {
    let counters = |memory: u64| json!([{"counterSet": "gpu-0", "counters": {"memory": {"value": memory.to_string()}}}]);
    let part = |name: &str, memory| {
        let mut device = gpu(name, "H100");
        device["attributes"]["type"] =
            json!({"string": if name.contains("mig") { "mig" } else { "gpu" }});
        device["consumesCounters"] = counters(memory);
        device
    };
    let devices = vec![
        part("gpu-0", 4),
        part("gpu-0-mig-a", 2),
        part("gpu-0-mig-b", 2),
        part("gpu-0-mig-c", 3),
    ];
    let mut sets = slice_of("gpu.nvidia.com", "a", (1, 2, 0), vec![]);
    sets.spec.shared_counters =
        serde_json::from_value(json!([{"name": "gpu-0", "counters": {"memory": {"value": "4"}}}]))
            .unwrap();
    let mut fleet = Fleet::new("gpu.nvidia.com");
    fleet.put_slice(&sets);
    fleet.put_slice(&slice_of("gpu.nvidia.com", "a", (1, 2, 1), devices));
    assert_eq!(tally(&mut fleet, GPU), (1, 1, 1));
    assert_eq!(tally(&mut fleet, MIG), (3, 1, 3));
    fleet.put_claim(&claim("one", json!([takes("a", "gpu-0-mig-a")])));
    assert_eq!(tally(&mut fleet, GPU), (1, 1, 0), "a part of it is taken");
    assert_eq!(tally(&mut fleet, MIG), (3, 1, 1), "the one of 3 doesn't fit any more");
    fleet.put_claim(&claim("one", json!([takes("a", "gpu-0")])));
    assert_eq!(tally(&mut fleet, MIG), (3, 1, 0));
    fleet.remove_claim("n/one");
    assert_eq!(tally(&mut fleet, MIG), (3, 1, 3));
}

#[test]
fn shares_are_free_until_nothing_is_left_and_tainted_devices_are_not() {
    let mut shared = gpu("gpu-0", "H100");
    shared["allowMultipleAllocations"] = json!(true);
    shared["capacity"]["memory"]["value"] = json!("80Gi");
    let mut tainted = gpu("gpu-1", "H100");
    tainted["taints"] = json!([{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]);
    let mut noted = gpu("gpu-2", "H100");
    noted["taints"] = json!([{"key": "gpu.nvidia.com/xid", "effect": "None"}]);
    let mut fleet = Fleet::new("gpu.nvidia.com");
    fleet.put_slice(&slice("a", vec![shared, tainted, noted]));
    assert_eq!(tally(&mut fleet, GPU), (3, 1, 2));
    let share = |memory: &str| {
        let mut result = takes("a", "gpu-0");
        result["shareID"] = json!("s");
        result["consumedCapacity"] = json!({"memory": memory});
        result
    };
    fleet.put_claim(&claim("one", json!([share("30Gi")])));
    assert_eq!(tally(&mut fleet, GPU), (3, 1, 2));
    fleet.put_claim(&claim("two", json!([share("50Gi")])));
    assert_eq!(tally(&mut fleet, GPU), (3, 1, 1));
}

#[test]
fn what_the_fleet_has_and_what_comes_near() {
    let mut fleet = Fleet::new("gpu.nvidia.com");
    let mut nameless = gpu("gpu-2", "H100");
    nameless["attributes"] = json!({});
    fleet.put_slice(&slice("a", vec![gpu("gpu-0", "H100"), gpu("gpu-1", "A100"), nameless]));
    assert_eq!(fleet.products().into_iter().collect::<Vec<_>>(), ["A100", "H100"]);
    assert_eq!(fleet.strangers(), 1);
    let asks = format!(
        "{GPU} && device.attributes['gpu.nvidia.com'].?productName.orValue('') == 'H100' \
        && device.capacity['gpu.nvidia.com'].?memory.orValue(quantity('0')).compareTo(quantity('80Gi')) >= 0"
    );
    assert_eq!(tally(&mut fleet, &asks), (0, 0, 0));
    let (devices, misses) = fleet.nearest_miss(&selector(&asks)).unwrap();
    assert_eq!((devices, misses.len()), (1, 1));
    assert_eq!(misses[0].field.as_ref().unwrap().to_string(), "gpu.nvidia.com/memory");
    assert_eq!(misses[0].seen.as_ref().unwrap().to_string(), "81559Mi");
    assert_eq!(misses[0].wanted.as_ref().unwrap().to_string(), "80Gi");

    // A value that nothing can read is told, since it stops pods.
    let mut unreadable = gpu("gpu-3", "H100");
    unreadable["attributes"]["driverVersion"] = json!({"version": "570.124.06"});
    fleet.put_slice(&slice("b", vec![unreadable]));
    assert!(fleet.tally(&selector(GPU)).error.is_some());
    assert_eq!(fleet.strangers(), 2);
    fleet.remove_slice("a-0");
    assert_eq!(fleet.pool_of_strangers(), Some("b"));
}

/// 5,000 nodes of eight GPUs: any sequence of changes comes to what counting anew gives, and
/// verdicts are asked for shapes, not devices.
#[test]
fn a_large_fleet_is_counted_by_its_changes() {
    let devices = |n: usize| {
        let product = ["H100", "A100", "L4"][n % 3];
        (0..8).map(|g| gpu(&format!("gpu-{g}"), product)).collect::<Vec<_>>()
    };
    let mut fleet = Fleet::new("gpu.nvidia.com");
    for n in 0..5_000 {
        fleet.put_slice(&slice(&format!("n{n}"), devices(n)));
    }
    for n in (0..5_000).step_by(2) {
        fleet.put_claim(&claim(&format!("c{n}"), json!([takes(&format!("n{n}"), "gpu-0")])));
    }
    for n in (0..5_000).step_by(5) {
        fleet.remove_slice(&format!("n{n}-0"));
    }
    for n in (0..5_000).step_by(4) {
        fleet.remove_claim(&format!("n/c{n}"));
    }
    let mut anew = Fleet::new("gpu.nvidia.com");
    for n in (0..5_000).filter(|n| n % 5 != 0) {
        anew.put_slice(&slice(&format!("n{n}"), devices(n)));
    }
    for n in (0..5_000).filter(|n| n % 2 == 0 && n % 4 != 0) {
        anew.put_claim(&claim(&format!("c{n}"), json!([takes(&format!("n{n}"), "gpu-0")])));
    }
    let total = tally(&mut fleet, GPU);
    assert_eq!(total, (32_000, 4_000, 32_000 - 1_000));
    for product in ["H100", "A100", "L4"] {
        let class = format!(
            "{GPU} && device.attributes['gpu.nvidia.com'].?productName.orValue('') == '{product}'"
        );
        assert_eq!(tally(&mut fleet, &class), tally(&mut anew, &class), "{product}");
    }
    assert_eq!(fleet.shapes(), 3);
}
