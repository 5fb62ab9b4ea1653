//! Inventories of node types, built by hand, and slices as an API server would hold them.

use std::collections::BTreeSet;

use gpu_dra_model::inventory::{
    AddressingMode, BrokenGpu, ComputeCapability, CudaVersion, DriverVersions, Fabric, Mig, MigMode,
};
use gpu_dra_model::{DriverName, Gpu, GpuUuid, Inventory, Minor, NodeName, PciBusId, PoolName};
use gpu_dra_slices::{DesiredPool, Names, Owner, Policy, PoolRef, build};

pub(crate) fn uuid(number: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-{number:08x}-0000-0000-0000-000000000000")).unwrap()
}

/// An H100 on an HGX board, the `number`th of its node.
pub(crate) fn h100(number: u32) -> Gpu {
    Gpu {
        uuid: uuid(number),
        minor: Minor(number),
        index: number,
        pci_bus_id: PciBusId::new(format!("{:04x}:{:02x}:00.0", number / 128, 0x1b + number % 128))
            .unwrap(),
        product_name: "NVIDIA H100 80GB HBM3".to_owned(),
        brand: Some("Nvidia".to_owned()),
        architecture: Some("Hopper".to_owned()),
        compute_capability: Some(ComputeCapability { major: 9, minor: 0 }),
        memory_bytes: Some(81_559 << 20),
        memory_bus_width_bits: Some(5120),
        pcie_root: Some(format!("pci0000:{:02x}", 0x15 + number)),
        numa_node: Some(number / 4),
        addressing_mode: Some(AddressingMode::Hmm),
        module_id: Some(number + 1),
        fabric: Some(Fabric {
            cluster_uuid: "00000000-0000-0000-0000-000000000000".to_owned(),
            clique_id: 0,
        }),
        vgpu_guest: false,
        mig: Mig::Supported {
            current: MigMode::Disabled,
            pending: MigMode::Disabled,
            profiles: Vec::new(),
            instances: Vec::new(),
        },
    }
}

/// An L4: no fabric, no board, no MIG.
pub(crate) fn l4(number: u32) -> Gpu {
    Gpu {
        product_name: "NVIDIA L4".to_owned(),
        architecture: Some("Ada Lovelace".to_owned()),
        compute_capability: Some(ComputeCapability { major: 8, minor: 9 }),
        memory_bytes: Some(23_034 << 20),
        memory_bus_width_bits: Some(192),
        module_id: None,
        fabric: None,
        mig: Mig::Unsupported,
        ..h100(number)
    }
}

/// A GB10: unified memory, so NVML has no memory info, and no NUMA node.
pub(crate) fn gb10() -> Gpu {
    Gpu {
        product_name: "NVIDIA GB10".to_owned(),
        architecture: Some("Blackwell".to_owned()),
        compute_capability: Some(ComputeCapability { major: 12, minor: 1 }),
        memory_bytes: None,
        memory_bus_width_bits: None,
        pci_bus_id: PciBusId::from_nvml("0000000F:01:00.0").unwrap(),
        pcie_root: None,
        numa_node: None,
        addressing_mode: Some(AddressingMode::Ats),
        ..l4(0)
    }
}

pub(crate) fn node_with(gpus: impl IntoIterator<Item = Gpu>) -> Inventory {
    Inventory {
        driver: DriverVersions {
            driver: "570.124.06".to_owned(),
            cuda: Some(CudaVersion::from_nvml(12_080)),
            nvml: None,
        },
        gpus: gpus.into_iter().collect(),
        broken: Vec::new(),
    }
}

/// Moves the GPU with this number to the broken ones.
pub(crate) fn lose(node: &mut Inventory, number: u32) {
    node.gpus.retain(|gpu| gpu.uuid != uuid(number));
    node.broken.push(BrokenGpu {
        index: number,
        uuid: Some(uuid(number)),
        pci_bus_id: None,
        reason: "GPU is lost".to_owned(),
        lost: true,
    });
}

pub(crate) fn pool_of(node: &Inventory) -> DesiredPool {
    let mut names = Names::default();
    names.assign(node);
    build(node, &names, &Policy::default(), &BTreeSet::new()).pool
}

pub(crate) fn pool_ref() -> PoolRef {
    PoolRef {
        driver: DriverName::new("gpu.nvidia.com").unwrap(),
        node: NodeName::new("node-1").unwrap(),
        pool: PoolName::new("node-1").unwrap(),
    }
}

pub(crate) fn owner() -> Owner {
    Owner { uid: "289271bf-8881-4ffe-a14b-d103977e8106".to_owned() }
}

/// Compares with `tests/golden/<name>`, or writes it when `UPDATE_GOLDEN` is set.
#[allow(clippy::disallowed_methods, reason = "the crate reads no files, its tests do")]
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, golden, "{name} differs from what was reviewed");
}
