//! Attributes: the same keys on all nodes, values that the API takes, nothing guessed.

use std::collections::BTreeSet;

use gpu_dra_model::Gpu;
use gpu_dra_model::inventory::{Mig, MigMode};
use gpu_dra_slices::attributes::{WHOLE_GPU, markdown, mig_markdown};
use gpu_dra_slices::{LeftOut, Names, Note, Policy, build};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use serde_json::Value;

use crate::support::{assert_golden, gb10, h100, l4, lose, node_with, pool_of, uuid};

fn only_device(gpu: Gpu) -> Device {
    pool_of(&node_with([gpu])).devices().next().unwrap().clone()
}

fn text(device: &Device, key: &str) -> Option<String> {
    device.attributes.as_ref().unwrap().get(key)?.string.clone()
}

fn version(device: &Device, key: &str) -> Option<String> {
    device.attributes.as_ref().unwrap().get(key)?.version.clone()
}

/// A GPU of which nothing is known but that it is there.
fn silent() -> Gpu {
    Gpu {
        product_name: String::new(),
        brand: None,
        architecture: None,
        compute_capability: None,
        memory_bytes: None,
        memory_bus_width_bits: None,
        pcie_root: None,
        numa_node: None,
        addressing_mode: None,
        module_id: None,
        fabric: None,
        ..l4(0)
    }
}

#[test]
fn every_gpu_has_the_same_keys_in_the_drivers_domain() {
    let own = |device: Device| -> BTreeSet<String> {
        device.attributes.unwrap().into_keys().filter(|key| !key.contains('/')).collect()
    };
    let keys = own(only_device(h100(0)));
    assert_eq!(keys.len(), 14);
    for gpu in [l4(0), gb10(), silent()] {
        assert_eq!(own(only_device(gpu)), keys);
    }
}

#[test]
fn standard_attributes_are_left_out_when_unknown() {
    let device = only_device(silent());
    let standard: Vec<_> =
        device.attributes.as_ref().unwrap().keys().filter(|key| key.contains('/')).collect();
    assert_eq!(standard, ["resource.kubernetes.io/pciBusID"]);
    assert_eq!(device.capacity, None, "no memory info, no memory");
}

#[test]
fn gpus_without_fabric_share_no_clique() {
    let node = node_with([l4(0), l4(1)]);
    let cliques: BTreeSet<_> =
        pool_of(&node).devices().map(|device| text(device, "cliqueID").unwrap()).collect();
    assert_eq!(cliques.len(), 2);
}

#[test]
fn incumbents_names_and_types() {
    // Captured from a running dra-driver-nvidia-gpu with simulated H100s.
    let captured: Value =
        serde_json::from_str(include_str!("../data/resourceslice-incumbent-h100.json")).unwrap();
    let slice: ResourceSlice = serde_json::from_value(captured).unwrap();
    let ours = only_device(h100(0));
    let (ours, theirs) = (ours.attributes.unwrap(), slice.spec.devices.unwrap());
    let theirs = theirs.first().unwrap().attributes.as_ref().unwrap();
    for (key, attribute) in theirs {
        let own = &ours[key];
        assert_eq!(own.string.is_some(), attribute.string.is_some(), "{key}");
        assert_eq!(own.version.is_some(), attribute.version.is_some(), "{key}");
        if ["type", "architecture", "brand", "productName", "cudaComputeCapability"]
            .contains(&key.as_str())
        {
            assert_eq!(own, attribute, "{key}");
        }
    }
}

#[test]
fn values_that_the_api_refuses_are_normalised_and_noted() {
    let mut node = node_with([l4(0), l4(1)]);
    node.gpus[0].product_name = format!("{}ü", "x".repeat(63));
    node.gpus[1].pcie_root = Some("pci".repeat(30));
    let pool = pool_of(&node);
    let devices: Vec<_> = pool.devices().collect();
    assert_eq!(text(devices[0], "productName"), Some("x".repeat(63)));
    assert_eq!(version(devices[0], "driverVersion").as_deref(), Some("570.124.6"));
    assert_eq!(text(devices[1], "resource.kubernetes.io/pcieRoot"), None, "never half a name");
    let notes: Vec<_> = pool.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 3, "one for the driver, not one per GPU: {notes:?}");
    assert_eq!(notes[1], r#"attribute driverVersion: "570.124.06" is published as "570.124.6""#);

    node.driver.driver = "unknown".to_owned();
    let pool = pool_of(&node);
    assert_eq!(version(pool.devices().next().unwrap(), "driverVersion").unwrap(), "0.0.0");
    assert!(pool.notes.iter().any(|note| matches!(note, Note::Unusable { .. })));
}

#[test]
fn gpus_that_cannot_be_offered_whole_are_left_out_by_name() {
    let mut node = node_with([h100(0), h100(1), h100(2), h100(3)]);
    node.gpus[1].mig = Mig::Supported {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
        profiles: Vec::new(),
        instances: Vec::new(),
    };
    let mut twin = h100(4);
    twin.uuid = uuid(0);
    node.gpus.push(twin);
    let mut names = Names::default();
    names.assign(&node);
    lose(&mut node, 3);
    node.gpus.push(h100(9));
    let policy = Policy { excluded: [uuid(2)].into(), ..Policy::default() };
    let pool = build(&node, &names, &policy, &BTreeSet::new()).pool;
    let published: Vec<_> = pool.devices().map(|device| device.name.as_str()).collect();
    assert_eq!(published, ["gpu-0"]);
    let why: Vec<_> = pool
        .notes
        .iter()
        .filter_map(|note| match note {
            Note::GpuLeftOut { why, name, .. } => Some((why, name.as_ref().map(|n| n.as_str()))),
            _ => None,
        })
        .collect();
    assert_eq!(
        why,
        [
            (&LeftOut::Excluded, Some("gpu-2")),
            (&LeftOut::SameUuid(uuid(0)), Some("gpu-0")),
            (&LeftOut::Unnamed, None),
            (&LeftOut::Lost, Some("gpu-3")),
            (&LeftOut::MigEnabled, Some("gpu-1")),
        ]
    );
}

#[test]
fn whole_gpus_stay_within_the_limit() {
    assert!(WHOLE_GPU.len() < 32, "with memory, no row is ever dropped");
}

#[test]
fn documentation_is_the_table() {
    assert_golden("attributes.md", &markdown());
    assert_golden("mig-attributes.md", &mig_markdown());
}
