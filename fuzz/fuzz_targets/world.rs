//! A node and a claim on it, for targets that plan: a GPU of each way in which a device can be
//! given out, named after its request.
// Each target uses some of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gpu_dra_claims::{AllocatedDevice, GpuFacts, NodeView};
use gpu_dra_model::{
    BootId, CdiDeviceId, ClaimRef, ComputeInstanceId, DeviceKind, DeviceName, GpuInstanceId,
    IdError, MigDevice, MigUuid, Partition, Placement, PoolName, RequestName, Shares,
};
use gpu_dra_testkit::{POOL, claim_uid, gpu_uuid};

pub static NODE: LazyLock<NodeView> = LazyLock::new(|| {
    let placement = Placement { start: 4, size: 4 };
    let static_mig = MigDevice {
        instance: GpuInstanceId(1),
        compute: ComputeInstanceId(0),
        uuid: MigUuid::new("MIG-22222222-0000-0000-0000-000000000000").expect("as NVML has it"),
    };
    let gpu =
        |n, mig_may_be_on, shares| DeviceKind::Gpu { gpu: gpu_uuid(n), mig_may_be_on, shares };
    let devices = [
        ("gpu", gpu(0, true, Shares::Off)),
        ("old", gpu(1, false, Shares::Off)),
        ("mig", DeviceKind::StaticMig { gpu: gpu_uuid(2), placement, device: static_mig }),
        (
            "part",
            DeviceKind::Partition {
                gpu: gpu_uuid(0),
                partition: Partition { profile_id: 9, placement },
                mode_is_free: true,
            },
        ),
        ("share", gpu(3, false, Shares::Mps)),
        ("monitor", DeviceKind::Monitor { gpu: gpu_uuid(0) }),
    ];
    let facts = |n, before_volta| (gpu_uuid(n), GpuFacts { before_volta, memory_mib: 81559 });
    NodeView {
        pool: pool(),
        devices: devices.map(|(name, kind)| (device(name), kind)).into(),
        gpus: BTreeMap::from([facts(0, false), facts(1, true), facts(2, false), facts(3, false)]),
        boot_id: BootId::new("11111111-2222-3333-4444-555555555555").expect("a UUID"),
    }
});

pub fn claim(n: u32) -> ClaimRef {
    ClaimRef { uid: claim_uid(n), namespace: "team-a".to_owned(), name: "train".to_owned() }
}

pub fn device(name: &str) -> DeviceName {
    DeviceName::new(name).expect("a DNS label")
}

fn pool() -> PoolName {
    PoolName::new(POOL).expect("a DNS label")
}

/// The device of this name, for the request of the same name; a part of `share`.
pub fn result(name: &str) -> AllocatedDevice {
    match name {
        "share" => share_of(device(name)),
        _ => whole(device(name)),
    }
}

pub fn whole(device: DeviceName) -> AllocatedDevice {
    AllocatedDevice {
        request: RequestName::new(device.as_str()).expect("a DNS label"),
        pool: pool(),
        device,
        admin: false,
        share_id: None,
        consumed: BTreeMap::new(),
    }
}

pub fn share_of(device: DeviceName) -> AllocatedDevice {
    let memory = "40Gi".parse().expect("a quantity");
    AllocatedDevice {
        share_id: Some("33333333-0000-0000-0000-000000000000".to_owned()),
        consumed: BTreeMap::from([("memory".to_owned(), memory)]),
        ..whole(device)
    }
}

pub fn cdi_device(result: &AllocatedDevice) -> Result<CdiDeviceId, IdError> {
    CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={}-{}", claim(1).uid, result.device))
}
