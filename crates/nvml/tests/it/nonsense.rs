//! Answers that no driver should give: counts without measure, texts without an end. What is
//! asked comes back all the same, soon and with no more than there can be.

use std::time::{Duration, Instant};

use gpu_dra_model::Inventory;
use gpu_dra_model::inventory::{Mig, Placement};
use gpu_dra_nvml::Gpus as _;
use gpu_dra_sim_data::control::Fault;

use crate::node::Node;

/// More than any hardware has of anything.
const MANY: usize = 300;
/// The profile 3g.40gb.
const HALF: u32 = 9;
/// Makes the number of instances of this profile 0, and hardly anything else of
/// `nvmlDeviceGetGpuInstanceProfileInfo`, while there is one.
const NO_ROOM: u64 = 0x4d_8f00;
/// A survey takes milliseconds.
const LONG: Duration = Duration::from_secs(10);

/// Surveys the node with each of many wrong answers of this function.
fn with_nonsense_of(function: &str, check: impl Fn(&Inventory)) {
    let node = Node::stage("h100:mig=on");
    let driver = node.driver();
    let uuid = &driver.probe().unwrap().gpus[0].uuid;
    let place = Placement { start: 4, size: 4 };
    let instance = driver.create_gpu_instance(uuid, HALF, place).unwrap();
    driver.create_compute_instance(uuid, instance).unwrap();
    let whole = driver.probe().unwrap();
    drop(driver);
    let mut other = 0;
    for seed in (0..60).chain([NO_ROOM]) {
        let garbage =
            Fault { function: function.to_owned(), garbage: Some(seed), ..Fault::default() };
        node.control(|control| control.faults = vec![garbage]);
        let begun = Instant::now();
        let driver = node.driver();
        let found = driver.probe();
        other += u32::from(found.as_ref().ok() != Some(&whole));
        found.iter().for_each(&check);
        // What they say is nonsense; that they come back is what counts.
        let _answers = (driver.fingerprint(), driver.gpu_instances(uuid));
        assert!(begun.elapsed() < LONG, "{function}, seed {seed}");
    }
    assert!(other > 0, "{function} is asked");
}

#[test]
fn counts_that_no_hardware_has_are_not_believed() {
    for function in [
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetGpuInstanceProfileInfo",
        "nvmlDeviceGetGpuInstanceProfileInfo*",
        "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        "nvmlDeviceGetGpuInstances",
    ] {
        with_nonsense_of(function, |inventory| {
            assert!(inventory.gpus.len() + inventory.broken.len() < MANY, "{function}");
            for gpu in &inventory.gpus {
                let Mig::Supported { profiles, instances, .. } = &gpu.mig else { continue };
                assert!(instances.len() < MANY, "{function}");
                assert!(profiles.iter().all(|p| p.placements.len() < MANY), "{function}");
            }
        });
    }
}

#[test]
fn texts_end_where_the_room_for_them_does() {
    for function in [
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetNVMLVersion",
    ] {
        with_nonsense_of(function, |inventory| {
            let nvml = inventory.driver.nvml.as_ref().map_or(0, String::len);
            assert!(inventory.driver.driver.len() < 80 && nvml < 80, "{:?}", inventory.driver);
            for gpu in &inventory.gpus {
                assert!(gpu.product_name.len() < 96, "{}", gpu.product_name);
            }
        });
    }
}
