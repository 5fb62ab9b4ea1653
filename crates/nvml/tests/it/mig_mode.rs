//! Switching MIG mode: in force, pending, or refused, and never taken for done when it isn't.

use std::fs;

use gpu_dra_model::GpuUuid;
use gpu_dra_model::inventory::{MigMode, Placement};
use gpu_dra_nvml::{Code, GpuError, Gpus};
use gpu_dra_sim_data::control::Process;
use serde::Deserialize;

use crate::node::{Node, first};

use MigMode::{Disabled, Enabled};

#[test]
fn hopper_and_blackwell_switch_at_once() {
    for spec in ["1xh100", "1xh200", "1xb200", "1xrtx-pro-6000"] {
        let node = Node::stage(spec);
        let driver = node.driver();
        // Another program's session, from before the switch.
        let other = node.driver();
        let gpu = first(&other.probe().unwrap());
        for mode in [Enabled, Disabled, Enabled] {
            driver.set_mig_mode(&gpu, mode).unwrap();
            for driver in [&driver, &other] {
                assert_eq!(driver.mig_mode(&gpu).unwrap(), Some((mode, mode)), "{spec}");
                assert_eq!(driver.gpu_instances(&gpu).unwrap(), []);
                driver.minor_of(&gpu).unwrap();
            }
        }
    }
}

#[test]
fn a_mode_in_force_is_not_set_again() {
    let node = Node::stage("1xh100");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    node.fail("nvmlDeviceSetMigMode", "0", 999);
    driver.set_mig_mode(&gpu, Disabled).unwrap();
    node.heal();
    driver.set_mig_mode(&gpu, Enabled).unwrap();
    assert_eq!(node.calls(|| driver.set_mig_mode(&gpu, Enabled).unwrap()), 2);
}

#[test]
fn ampere_says_that_it_needs_a_reset() {
    let node = Node::stage("1xa100-80");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    for _ in 0..2 {
        let error = driver.set_mig_mode(&gpu, Enabled).unwrap_err();
        assert!(matches!(&error, GpuError::MigModePending { mode: Enabled, .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("nvidia-smi --gpu-reset -i {gpu}")));
        assert_eq!(driver.mig_mode(&gpu).unwrap(), Some((Disabled, Enabled)));
    }
    driver.set_mig_mode(&gpu, Disabled).unwrap();
    assert_eq!(driver.mig_mode(&gpu).unwrap(), Some((Disabled, Disabled)), "taken back");

    driver.set_mig_mode(&gpu, Enabled).unwrap_err();
    node.state().reset_gpu(0).unwrap();
    driver.set_mig_mode(&gpu, Enabled).unwrap();
    driver.create_gpu_instance(&gpu, 19, Placement { start: 0, size: 1 }).unwrap();
}

/// Clients, CUDA programs and instances keep the mode as it is.
#[test]
fn a_gpu_that_others_have_keeps_its_mode() {
    let node = Node::stage("1xh100");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let refused = |mode| {
        let error = driver.set_mig_mode(&gpu, mode).unwrap_err();
        assert!(matches!(&error, GpuError::MigModeInUse { mode: of, .. } if *of == mode));
        for remedy in ["dcgm", "persistenced"] {
            assert!(error.to_string().contains(remedy), "{error}");
        }
    };
    node.gpu("0", |gpu| gpu.mig_mode_held = true);
    refused(Enabled);
    assert_eq!(driver.mig_mode(&gpu).unwrap(), Some((Disabled, Enabled)));
    driver.set_mig_mode(&gpu, Disabled).unwrap();
    assert_eq!(driver.mig_mode(&gpu).unwrap(), Some((Disabled, Disabled)), "taken back");

    node.gpu("0", |gpu| {
        gpu.mig_mode_held = false;
        gpu.processes = vec![Process { pid: 4711, memory_mib: 100, ..Process::default() }];
    });
    refused(Enabled);
    node.heal();
    // Some drivers answer so at once.
    node.fail("nvmlDeviceSetMigMode", "0", 19);
    refused(Enabled);
    node.heal();
    driver.set_mig_mode(&gpu, Enabled).unwrap();
    driver.create_gpu_instance(&gpu, 0, Placement { start: 0, size: 8 }).unwrap();
    refused(Disabled);
    assert_eq!(driver.gpu_instances(&gpu).unwrap().len(), 1);
}

#[test]
fn other_refusals_are_the_drivers_own() {
    let node = Node::stage("1xh100+1xl4");
    let driver = node.driver();
    let inventory = driver.probe().unwrap();
    let named = |part: &str| {
        let gpu = inventory.gpus.iter().find(|gpu| gpu.product_name.contains(part)).unwrap();
        gpu.uuid.clone()
    };
    let (h100, l4) = (named("H100"), named("L4"));
    let code = |gpu: &GpuUuid| match driver.set_mig_mode(gpu, Enabled).unwrap_err() {
        GpuError::Call { source, .. } => source.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(driver.mig_mode(&l4).unwrap(), None);
    assert_eq!(driver.gpu_instances(&l4).unwrap(), []);
    assert_eq!(code(&l4), Code::NOT_SUPPORTED);
    for error in [Code::NO_PERMISSION, Code::UNKNOWN, Code::RESET_REQUIRED] {
        node.fail("nvmlDeviceSetMigMode", h100.as_str(), error.0);
        assert_eq!(code(&h100), error);
    }
    assert_eq!(driver.mig_mode(&h100).unwrap(), Some((Disabled, Disabled)));
    let gone = GpuUuid::new("GPU-00000000-0000-0000-0000-000000000000").unwrap();
    assert!(matches!(driver.set_mig_mode(&gone, Enabled), Err(GpuError::Gone { .. })));
    assert!(matches!(driver.mig_mode(&gone), Err(GpuError::Gone { .. })));
}

/// `cases/a100-vm-without-reset.yaml`.
#[derive(Deserialize)]
struct Case {
    driver: String,
    gpus: Vec<CaseGpu>,
}

#[derive(Deserialize)]
struct CaseGpu {
    minor: u32,
    uuid: GpuUuid,
    name: String,
    mig: CaseMig,
    instances: Vec<CaseInstance>,
}

#[derive(Deserialize)]
struct CaseMig {
    current: MigMode,
    pending: MigMode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CaseInstance {
    gi_profile: u32,
    start: u32,
    size: u32,
    gi: u32,
    ci: u32,
}

/// The admin's instance is seen and left alone, and an attempt to switch the mode says that
/// it is pending, is taken back, and has cost nothing.
#[test]
fn a100_vm_without_reset() {
    let path = format!("{}/tests/cases/a100-vm-without-reset.yaml", env!("CARGO_MANIFEST_DIR"));
    let case: Case = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let [gpu] = &*case.gpus else { panic!("one GPU") };
    let [theirs] = &*gpu.instances else { panic!("one instance") };
    let node = Node::stage_changed(&format!("1xa100-40:mig=on,driver={}", case.driver), |node| {
        node.gpus[0].uuid = gpu.uuid.to_string();
        node.gpus[0].minor = gpu.minor;
    });
    node.gpu("0", |gpu| gpu.reset_refused = true);
    let placement = Placement { start: theirs.start, size: theirs.size };
    let admin = node.driver();
    let made = admin.create_gpu_instance(&gpu.uuid, theirs.gi_profile, placement).unwrap();
    let compute = admin.create_compute_instance(&gpu.uuid, made).unwrap();
    assert_eq!((made.0, compute.id.0), (theirs.gi, theirs.ci));

    let driver = node.driver();
    let before = driver.probe().unwrap();
    assert_eq!(before.driver.driver, case.driver);
    assert_eq!(before.gpus[0].product_name, gpu.name);
    let mode = (gpu.mig.current, gpu.mig.pending);
    assert_eq!(driver.mig_mode(&gpu.uuid).unwrap(), Some(mode));
    let error = driver.set_mig_mode(&gpu.uuid, Disabled).unwrap_err();
    assert!(matches!(error, GpuError::MigModePending { mode: Disabled, .. }), "{error:?}");
    assert_eq!(driver.mig_mode(&gpu.uuid).unwrap(), Some((Enabled, Disabled)));
    driver.set_mig_mode(&gpu.uuid, Enabled).unwrap();
    assert_eq!(driver.probe().unwrap(), before);
}
