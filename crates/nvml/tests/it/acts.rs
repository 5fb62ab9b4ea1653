//! The [`Gpus`] seam on a simulated node: what prepare asks and sets, from several threads,
//! and how few calls a quiet node costs.

use std::thread;

use gpu_dra_model::{GpuUuid, Minor};
use gpu_dra_nvml::{ComputeMode, GpuError, Gpus};

use crate::node::Node;

#[test]
fn minors_are_the_drivers_not_the_positions() {
    let node = Node::stage("4xa100-40");
    let driver = node.driver();
    let inventory = driver.probe().unwrap();
    let minors: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.minor.0).collect();
    assert_ne!(minors, [0, 1, 2, 3], "or this test shows nothing");
    for gpu in &inventory.gpus {
        assert_eq!(driver.minor_of(&gpu.uuid).unwrap(), gpu.minor);
    }
    let addresses: Vec<_> = inventory.gpus.iter().map(|gpu| &gpu.pci_bus_id).collect();
    assert!(addresses.is_sorted(), "{addresses:?}");
}

#[test]
fn compute_mode_and_persistence_are_set_and_outlive_the_session() {
    let node = Node::stage("2xh100");
    let driver = node.driver();
    let inventory = driver.probe().unwrap();
    let [first, second] = &*inventory.gpus else { panic!("two GPUs: {inventory:?}") };
    assert_eq!(driver.compute_mode(&first.uuid).unwrap(), ComputeMode::Default);
    for mode in [ComputeMode::ExclusiveProcess, ComputeMode::Prohibited] {
        driver.set_compute_mode(&first.uuid, mode).unwrap();
        driver.close();
        assert_eq!(driver.compute_mode(&first.uuid).unwrap(), mode);
        assert_eq!(driver.compute_mode(&second.uuid).unwrap(), ComputeMode::Default);
    }
    for on in [true, false] {
        driver.set_persistence(&second.uuid, on).unwrap();
        assert_eq!(driver.persistence(&second.uuid).unwrap(), on);
    }
}

#[test]
fn unknown_gpu_and_refusals_name_the_gpu() {
    let node = Node::stage("1xl4");
    let driver = node.driver();
    let known = driver.probe().unwrap().gpus[0].uuid.clone();
    let unknown = GpuUuid::new("GPU-00000000-0000-0000-0000-000000000000").unwrap();
    let error = driver.minor_of(&unknown).unwrap_err();
    assert!(matches!(&error, GpuError::Gone { uuid } if *uuid == unknown), "{error:?}");
    assert!(driver.is_open(), "one GPU that is gone is no reason to let the driver go");

    node.fail("nvmlDeviceSetComputeMode", "0", 4);
    let error = driver.set_compute_mode(&known, ComputeMode::Prohibited).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.to_string().contains(known.as_str()));
    assert_eq!(source, "nvmlDeviceSetComputeMode: no permission (NVML 4)");
}

#[test]
fn many_threads_share_one_session() {
    let node = Node::stage("8xh100");
    let driver = node.driver();
    let inventory = driver.probe().unwrap();
    thread::scope(|scope| {
        for gpu in &inventory.gpus {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(driver.minor_of(&gpu.uuid).unwrap(), Minor(gpu.minor.0));
                }
            });
        }
        scope.spawn(|| driver.close());
        scope.spawn(|| assert_eq!(driver.probe().unwrap(), inventory));
    });
}

#[test]
fn a_quiet_look_costs_few_calls() {
    let node = Node::stage("8xh100");
    let driver = node.driver();
    let inventory = driver.probe().unwrap();
    let look = node.calls(|| assert!(!driver.fingerprint().unwrap().outdates(&inventory)));
    let full = node.calls(|| drop(driver.probe().unwrap()));
    assert!(look <= 2 + 4 * 8, "{look} calls to look");
    assert!(full > 8 * look, "{full} calls for a full pass, {look} to look");
    let minor = node.calls(|| drop(driver.minor_of(&inventory.gpus[3].uuid)));
    assert_eq!(minor, 2);
}
