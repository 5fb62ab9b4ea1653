//! Inventories from the simulator's recorded tables of GPU models.

use gpu_dra_model::inventory::{
    ComputeCapability, ComputeInstance, GpuInstance, Mig, MigMode, MigProfile,
};
use gpu_dra_model::{
    ComputeInstanceId, Gpu, GpuInstanceId, Inventory, MigUuid, Partition, Placement,
};
use gpu_dra_sim_data::NodeType;
use gpu_dra_sim_data::mig_table::{GiProfile, MigTable};

use crate::support::{h100, node_with};

/// Every model that can be partitioned, by its name on the command line.
pub(crate) fn models() -> impl Iterator<Item = (&'static str, &'static MigTable)> {
    let types: Vec<_> = NodeType::all().iter().collect();
    types.into_iter().filter_map(|(name, node_type)| Some((*name, node_type.mig.as_ref()?)))
}

/// The `number`th GPU of a node, MIG mode off and nothing pending.
pub(crate) fn gpu(model: &str, number: u32) -> Gpu {
    let node_type = NodeType::named(model).unwrap();
    let capability = node_type.compute_capability;
    Gpu {
        product_name: node_type.name.clone(),
        architecture: Some(node_type.architecture.as_str().to_owned()),
        compute_capability: Some(ComputeCapability {
            major: capability.major.try_into().unwrap(),
            minor: capability.minor.try_into().unwrap(),
        }),
        memory_bytes: node_type.memory.map(|memory| memory.total_mib << 20),
        memory_bus_width_bits: node_type.memory_bus_width_bits,
        mig: node_type.mig.as_ref().map_or(Mig::Unsupported, |table| Mig::Supported {
            current: MigMode::Disabled,
            pending: MigMode::Disabled,
            profiles: profiles(table),
            instances: Vec::new(),
        }),
        ..h100(number)
    }
}

/// `count` GPUs of one model.
pub(crate) fn node(model: &str, count: u32) -> Inventory {
    node_with((0..count).map(|number| gpu(model, number)))
}

/// Sets the MIG mode, in force and pending.
pub(crate) fn set_mode(gpu: &mut Gpu, mode: MigMode) {
    if let Mig::Supported { current, pending, .. } = &mut gpu.mig {
        (*current, *pending) = (mode, mode);
    }
}

/// The GPU with its mode on.
pub(crate) fn with_mig_on(mut gpu: Gpu) -> Gpu {
    set_mode(&mut gpu, MigMode::Enabled);
    gpu
}

/// Puts an instance on the GPU, with compute instances of so many slices.
pub(crate) fn add_instance(gpu: &mut Gpu, id: u32, partition: Partition, computes: &[u32]) {
    let Mig::Supported { instances, profiles, .. } = &mut gpu.mig else { panic!("no MIG") };
    let profile = profiles.iter().find(|profile| profile.id == partition.profile_id);
    let per_slice = profile.map_or(0, |profile| profile.multiprocessors / profile.slices);
    let compute = |(at, slices): (usize, &u32)| {
        let at = u32::try_from(at).unwrap();
        let uuid = format!("MIG-{:08x}-{id:04x}-{at:04x}-0000-000000000000", gpu.index);
        ComputeInstance {
            id: ComputeInstanceId(at),
            uuid: MigUuid::new(uuid).unwrap(),
            slices: *slices,
            multiprocessors: per_slice * slices,
        }
    };
    instances.push(GpuInstance {
        id: GpuInstanceId(id),
        profile_id: partition.profile_id,
        placement: partition.placement,
        compute_instances: computes.iter().enumerate().map(compute).collect(),
    });
}

/// Profile `profile_id` in memory slices `start` to `start + size`.
pub(crate) const fn partition(profile_id: u32, start: u32, size: u32) -> Partition {
    Partition { profile_id, placement: Placement { start, size } }
}

fn profiles(table: &MigTable) -> Vec<MigProfile> {
    table.profiles.iter().map(|(id, profile)| mig_profile(*id, profile)).collect()
}

fn mig_profile(id: u32, profile: &GiProfile) -> MigProfile {
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
        placements: profile
            .placements()
            .map(|placement| Placement { start: placement.start, size: placement.size })
            .collect(),
    }
}
