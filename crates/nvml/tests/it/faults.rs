//! What goes wrong with single GPUs, functions and the whole driver, on the simulated node:
//! the broken GPU is named, its neighbours and the absent attributes are as they should be.

use gpu_dra_model::inventory::{Gpu, Mig, MigMode};
use gpu_dra_nvml::{GpuError, Gpus, OpenError, Session};
use gpu_dra_sim_data::StateError;
use gpu_dra_sim_data::control::{Fault, Lost};

use crate::node::{Node, uuids};

/// `one-bad-gpu-of-four`.
#[test]
fn one_bad_gpu_of_four() {
    let node = Node::stage("4xh100");
    let whole = node.session().probe().unwrap();
    node.fail("nvmlDeviceGetName", "1", 999);
    let session = node.session();
    let inventory = session.probe().unwrap();
    let all = uuids(&whole);
    assert_eq!(uuids(&inventory), [all[0].clone(), all[2].clone(), all[3].clone()]);
    let [broken] = &*inventory.broken else { panic!("one broken: {inventory:?}") };
    assert_eq!(broken.uuid.as_ref(), Some(&all[1]));
    assert_eq!(broken.pci_bus_id.as_ref(), Some(&whole.gpus[1].pci_bus_id));
    assert_eq!(broken.reason, "nvmlDeviceGetName: unknown driver error (NVML 999)");
    assert!(!broken.lost);
    assert!(session.fingerprint().unwrap().outdates(&inventory), "worth another look");

    node.control(|control| control.faults.clear());
    assert_eq!(session.probe().unwrap(), whole);
}

#[test]
fn lost_gpu_is_lost_and_not_asked_again() {
    let node = Node::stage("4xh100");
    let session = node.session();
    let whole = session.probe().unwrap();
    node.gpu("2", |gpu| gpu.lost = Some(Lost::Error));
    let now = session.fingerprint().unwrap();
    assert!(now.outdates(&whole));
    let inventory = session.probe().unwrap();
    assert_eq!(inventory.gpus.len(), 3);
    let [broken] = &*inventory.broken else { panic!("one broken: {inventory:?}") };
    assert!(broken.lost && broken.reason.contains("fallen off the bus"), "{broken:?}");
    assert!(!now.outdates(&inventory));
}

/// A drained GPU is no longer counted, and comes back (device count 8, 7, 8).
#[test]
fn dropped_gpu_is_noticed_and_so_is_its_return() {
    let node = Node::stage("8xh100");
    let driver = node.driver();
    let whole = driver.probe().unwrap();
    node.gpu("0", |gpu| gpu.lost = Some(Lost::Dropped));
    assert!(driver.fingerprint().unwrap().outdates(&whole));
    let less = driver.probe().unwrap();
    assert_eq!((less.gpus.len(), less.broken.len()), (7, 0));
    assert_eq!(uuids(&less), uuids(&whole)[1..]);
    assert!(matches!(
        driver.minor_of(&whole.gpus[0].uuid),
        Err(GpuError::Gone { .. } | GpuError::Call { .. })
    ));

    node.control(|control| control.gpus.clear());
    assert!(driver.fingerprint().unwrap().outdates(&less));
    assert_eq!(driver.probe().unwrap(), whole);
}

/// Each function once NOT_SUPPORTED and once failing: what the GPU then is without.
#[test]
fn each_function_that_fails() {
    /// What a failure (999) does.
    enum Fails {
        Breaks,
        LeavesOut,
    }
    use Fails::{Breaks, LeavesOut};
    type Absent = Option<fn(&Gpu) -> bool>;
    let cases: &[(&str, Fails, Absent)] = &[
        ("nvmlDeviceGetUUID", Breaks, None),
        ("nvmlDeviceGetPciInfo_v3", Breaks, None),
        ("nvmlDeviceGetName", Breaks, None),
        ("nvmlDeviceGetMinorNumber", Breaks, None),
        ("nvmlDeviceGetBrand", Breaks, Some(|gpu| gpu.brand.is_none())),
        ("nvmlDeviceGetArchitecture", Breaks, Some(|gpu| gpu.architecture.is_none())),
        (
            "nvmlDeviceGetCudaComputeCapability",
            Breaks,
            Some(|gpu| gpu.compute_capability.is_none()),
        ),
        // Both versions, since the first stands in for the second.
        ("nvmlDeviceGetMemoryInfo*", Breaks, Some(|gpu| gpu.memory_bytes.is_none())),
        ("nvmlDeviceGetVirtualizationMode", Breaks, Some(|gpu| !gpu.vgpu_guest)),
        ("nvmlDeviceGetMigMode", Breaks, Some(|gpu| gpu.mig == Mig::Unsupported)),
        ("nvmlDeviceGetGpuInstanceProfileInfo", Breaks, Some(has_no_profiles)),
        ("nvmlDeviceGetGpuInstancePossiblePlacements_v2", Breaks, Some(has_no_profiles)),
        ("nvmlDeviceGetMemoryBusWidth", LeavesOut, Some(|gpu| gpu.memory_bus_width_bits.is_none())),
        ("nvmlDeviceGetAddressingMode", LeavesOut, Some(|gpu| gpu.addressing_mode.is_none())),
        ("nvmlDeviceGetModuleId", LeavesOut, Some(|gpu| gpu.module_id.is_none())),
        ("nvmlDeviceGetGpuFabricInfo*", LeavesOut, Some(|gpu| gpu.fabric.is_none())),
    ];
    let node = Node::stage_changed("2xh100", |node| node.gpus[1].virtualization = 2);
    let session = node.session();
    let whole = session.probe().unwrap();
    assert!(!whole.gpus[0].vgpu_guest && whole.gpus[1].vgpu_guest);
    for (function, fails, absent) in cases {
        for (code, breaks) in [(3, absent.is_none()), (999, matches!(fails, Breaks))] {
            node.fail(function, "1", code);
            let inventory = session.probe().unwrap();
            assert_eq!(inventory.gpus[0], whole.gpus[0], "{function} {code} touches no other GPU");
            assert_eq!(inventory.gpus.len(), if breaks { 1 } else { 2 }, "{function} {code}");
            assert_eq!(inventory.broken.len(), if breaks { 1 } else { 0 }, "{function} {code}");
            if let (Some(absent), Some(gpu)) = (absent, inventory.gpus.get(1)) {
                assert!(absent(gpu), "{function} {code}: {gpu:?}");
                assert!(!absent(&whole.gpus[1]), "{function} says something on a whole GPU");
            }
        }
        // A GPU that falls off the bus does so in the middle of whatever is asked.
        node.fail(function, "1", 15);
        let inventory = session.probe().unwrap();
        assert!(inventory.broken.iter().any(|gpu| gpu.lost), "{function}: {inventory:?}");
    }
}

fn has_no_profiles(gpu: &Gpu) -> bool {
    matches!(&gpu.mig, Mig::Supported { profiles, .. } if profiles.is_empty())
}

/// In a container that was given only some of the GPUs, the others are counted but refused.
#[test]
fn gpu_that_this_container_may_not_use() {
    let node = Node::stage("2xh100");
    let whole = node.session().probe().unwrap();
    node.control(|control| {
        control.faults = vec![Fault {
            function: "nvmlDeviceGetHandleByIndex_v2".to_owned(),
            error: Some(4),
            times: Some(1),
            ..Fault::default()
        }];
    });
    let inventory = node.session().probe().unwrap();
    assert_eq!(inventory.gpus, whole.gpus[1..]);
    let [broken] = &*inventory.broken else { panic!("one broken: {inventory:?}") };
    assert_eq!((broken.index, &broken.uuid, broken.lost), (0, &None, false));
    assert_eq!(broken.reason, "nvmlDeviceGetHandleByIndex_v2: no permission (NVML 4)");
}

#[test]
fn gpu_that_needs_a_reset_says_so_whatever_was_asked() {
    let node = Node::stage("2xh100");
    node.fail("nvmlDeviceGetModuleId", "0", 16);
    let inventory = node.session().probe().unwrap();
    let [broken] = &*inventory.broken else { panic!("one broken: {inventory:?}") };
    assert!(!broken.lost && broken.reason.contains("nvidia-smi --gpu-reset"), "{broken:?}");
    assert_eq!(inventory.gpus.len(), 1);
}

/// `gb10-unified-memory`: no memory info, no MIG, no NUMA node; neighbours unaffected.
#[test]
fn gb10_unified_memory() {
    let node = Node::stage("1xgb10+1xl4");
    let inventory = node.session().probe().unwrap();
    assert_eq!(inventory.broken, []);
    let gb10 = inventory.gpus.iter().find(|gpu| gpu.product_name == "NVIDIA GB10").unwrap();
    assert_eq!((gb10.memory_bytes, gb10.numa_node), (None, None));
    assert_eq!(gb10.mig, Mig::Unsupported);
    assert_eq!(gb10.brand.as_deref(), Some("NvidiaRTX"));
    assert_eq!(gb10.pci_bus_id.as_str(), "000f:01:00.0");
    let l4 = inventory.gpus.iter().find(|gpu| gpu.product_name == "NVIDIA L4").unwrap();
    assert_eq!(l4.memory_bytes, Some(23034 << 20));
}

/// A mode that waits for a reset is seen as pending, once, and nothing is changed by looking.
#[test]
fn pending_mode_is_seen() {
    let node = Node::stage("1xa100-40");
    let session = node.session();
    let before = session.probe().unwrap();
    node.state()
        .update(|_, state| {
            state.gpus[0].mig_pending = true;
            Ok::<_, StateError>(())
        })
        .unwrap();
    assert!(session.fingerprint().unwrap().outdates(&before));
    let after = session.probe().unwrap();
    let Mig::Supported { current, pending, profiles, .. } = &after.gpus[0].mig else {
        panic!("MIG: {after:?}")
    };
    assert_eq!((*current, *pending), (MigMode::Disabled, MigMode::Enabled));
    assert_eq!(profiles.len(), 7, "profiles are told while the mode is off");
    let state = node.state().state().unwrap();
    assert!(!session.fingerprint().unwrap().outdates(&after));
    assert_eq!(node.state().state().unwrap(), state);
}

#[test]
fn fabric_shows_once_it_is_joined() {
    let node = Node::stage("2xgb200:clique=7");
    let session = node.session();
    node.gpu("*", |gpu| gpu.fabric_state = Some(2));
    let joining = session.probe().unwrap();
    assert!(joining.gpus.iter().all(|gpu| gpu.fabric.is_none()));
    assert!(!session.fingerprint().unwrap().outdates(&joining));

    node.control(|control| control.gpus.clear());
    assert!(session.fingerprint().unwrap().outdates(&joining));
    let joined = session.probe().unwrap();
    assert!(joined.gpus.iter().all(|gpu| gpu.fabric.as_ref().is_some_and(|f| f.clique_id == 7)));
}

#[test]
fn driver_that_does_not_start_has_its_sentence() {
    let node = Node::stage("2xh100:driver=570.124.06");
    let open = || Session::open(&node.staged.library, &node.trees).map(|_| ()).unwrap_err();
    let with = |init| {
        node.control(|control| control.init = init);
        open()
    };
    assert!(matches!(with(Some(9)), OpenError::DriverNotLoaded));
    assert!(matches!(with(Some(4)), OpenError::NoPermission { .. }));
    assert!(matches!(with(Some(999)), OpenError::Init(_)));
    let mismatch = with(Some(18)).to_string();
    assert!(mismatch.contains("kernel driver 570.124.06"), "{mismatch}");

    node.control(|control| (control.init, control.no_gpus) = (None, true));
    assert!(matches!(open(), OpenError::GpusUnused { on_bus: 2 }), "{}", open());
    std::fs::remove_dir_all(&node.trees.dev).unwrap();
    assert!(matches!(open(), OpenError::NoDeviceNodes { .. }), "{}", open());
}

#[test]
fn driver_that_stops_is_let_go_and_opened_again() {
    let node = Node::stage("2xh100");
    let driver = node.driver();
    let whole = driver.probe().unwrap();
    assert!(driver.is_open());

    node.control(|control| (control.no_gpus, control.init) = (true, Some(9)));
    assert!(driver.fingerprint().is_err());
    assert!(!driver.is_open(), "nothing to drive, nothing held");
    assert!(matches!(driver.probe(), Err(OpenError::DriverNotLoaded)));

    node.control(|control| (control.no_gpus, control.init) = (false, None));
    assert_eq!(driver.probe().unwrap(), whole);
}
