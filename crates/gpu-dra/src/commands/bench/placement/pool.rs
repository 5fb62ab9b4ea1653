//! The pool of a node of simulated H100s, as the node agent would publish it.

use std::collections::BTreeSet;

use anyhow::Context as _;
use gpu_dra_model::inventory::{
    ComputeCapability, DriverVersions, Gpu, Inventory, Mig, MigMode, MigProfile, Placement,
};
use gpu_dra_model::{GpuUuid, Minor, PciBusId};
use gpu_dra_sim_data::NodeType;
use gpu_dra_sim_data::mig_table::{GiProfile, MigTable};
use gpu_dra_slices::{DesiredPool, Names, Policy, build};

/// The model that is measured.
const MODEL: &str = "h100-80";

/// The pool of `gpus` GPUs.
pub(super) fn pool(gpus: u32) -> anyhow::Result<DesiredPool> {
    let model = NodeType::named(MODEL).context("no such GPU model")?;
    let table = model.mig.as_ref().context("the model has no MIG")?;
    let gpus = (0..gpus).map(|number| gpu(number, model, table)).collect::<Result<_, _>>()?;
    let inventory = Inventory { driver: DriverVersions::default(), gpus, broken: Vec::new() };
    let mut names = Names::default();
    names.assign(&inventory);
    Ok(build(&inventory, &names, &Policy::default(), &BTreeSet::new()).pool)
}

fn gpu(number: u32, model: &NodeType, table: &MigTable) -> anyhow::Result<Gpu> {
    Ok(Gpu {
        uuid: GpuUuid::new(format!("GPU-{number:08x}-0000-0000-0000-000000000000"))?,
        minor: Minor(number),
        index: number,
        pci_bus_id: PciBusId::new(format!("0000:{:02x}:00.0", number + 1))?,
        product_name: model.name.clone(),
        brand: None,
        architecture: None,
        compute_capability: Some(ComputeCapability {
            major: model.compute_capability.major.try_into()?,
            minor: model.compute_capability.minor.try_into()?,
        }),
        memory_bytes: model.memory.map(|memory| memory.total_mib << 20),
        memory_bus_width_bits: None,
        pcie_root: None,
        numa_node: None,
        addressing_mode: None,
        module_id: None,
        fabric: None,
        vgpu_guest: false,
        mig: Mig::Supported {
            current: MigMode::Disabled,
            pending: MigMode::Disabled,
            profiles: table
                .profiles
                .iter()
                .map(|(id, profile)| mig_profile(*id, profile))
                .collect(),
            instances: Vec::new(),
        },
    })
}

fn mig_profile(id: u32, profile: &GiProfile) -> MigProfile {
    let placement = |start: &u32| Placement { start: *start, size: profile.size };
    MigProfile {
        id,
        name: profile.name.clone(),
        slices: profile.slices,
        max_instances: profile.max,
        memory_mib: profile.memory_mib,
        multiprocessors: profile.multiprocessors,
        copy_engines: profile.copy_engines,
        decoders: profile.decoders,
        encoders: profile.encoders,
        jpeg_engines: profile.jpeg_engines,
        ofa_engines: profile.ofa_engines,
        placements: profile.starts.iter().map(placement).collect(),
    }
}
