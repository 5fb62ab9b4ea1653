//! The incumbent's MIG devices on the GPUs as they are now: found by UUID or by name, and by
//! whom they were made, as far as anything says so.
//!
//! The incumbent writes static and dynamic MIG devices alike. What it published of them
//! differs (dynamic ones have no UUID there), so slices that are still there tell; without
//! them nobody knows, and what nobody knows to be the incumbent's own is never destroyed.

use gpu_dra_model::inventory::{ComputeCapability, GpuInstance, Mig, MigProfile};
use gpu_dra_model::{DeviceName, Gpu, GpuUuid, Inventory, MigDevice, MigUuid, Minor, Partition};

/// What becomes of the incumbent's MIG devices when their claims end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdoptedMig {
    /// Removed if its slices say that it made them, else kept.
    #[default]
    Auto,
    /// Removed: its gate `DynamicMIG` was on.
    Remove,
    /// Kept: an administrator made them.
    Keep,
}

/// Who made a MIG device, by what was published of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The incumbent, for a claim.
    Made,
    /// An administrator.
    Found,
}

/// From Hopper on the MIG mode changes without a reset, and the incumbent switches it too.
const SWITCHES_WITHOUT_RESET: ComputeCapability = ComputeCapability { major: 9, minor: 0 };

/// A place for a MIG device, and what lies there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) partition: Partition,
    pub(super) instance: Option<&'a GpuInstance>,
}

impl<'a> Place<'a> {
    /// Where the MIG device with this UUID is.
    pub(super) fn of_uuid(
        inventory: &'a Inventory,
        parent: Option<&GpuUuid>,
        uuid: &MigUuid,
    ) -> Option<Self> {
        let mut gpus = inventory.gpus.iter().filter(|gpu| parent.is_none_or(|p| gpu.uuid == *p));
        gpus.find_map(|gpu| {
            let has = |instance: &&GpuInstance| {
                instance.compute_instances.iter().any(|compute| compute.uuid == *uuid)
            };
            let instance = instances(gpu).iter().find(has)?;
            Some(Self { gpu, partition: partition(instance), instance: Some(instance) })
        })
    }

    /// The place that a device's name means: `gpu-<minor>-mig-<profile>-<profile id>-<start>`.
    pub(super) fn of_name(inventory: &'a Inventory, name: &DeviceName) -> Option<Self> {
        let (minor, rest) = name.as_str().strip_prefix("gpu-")?.split_once("-mig-")?;
        let (rest, start) = rest.rsplit_once('-')?;
        let (_, profile) = rest.rsplit_once('-')?;
        let gpu = by_minor(inventory, minor)?;
        let (profile, start): (u32, u32) = (profile.parse().ok()?, start.parse().ok()?);
        let table = profiles(gpu).iter().find(|known| known.id == profile)?;
        let placement = *table.placements.iter().find(|placement| placement.start == start)?;
        let partition = Partition { profile_id: profile, placement };
        let is = |instance: &&GpuInstance| self::partition(instance) == partition;
        Some(Self { gpu, partition, instance: instances(gpu).iter().find(is) })
    }

    /// The MIG device there: that with the UUID, or the only one.
    pub(super) fn device(&self, uuid: Option<&MigUuid>) -> Option<MigDevice> {
        let instance = self.instance?;
        let mut computes = instance.compute_instances.iter();
        let compute = computes.find(|compute| uuid.is_none_or(|uuid| compute.uuid == *uuid))?;
        let (instance, compute, uuid) = (instance.id, compute.id, compute.uuid.clone());
        Some(MigDevice { instance, compute, uuid })
    }

    /// Whether the GPU's MIG mode is switched on for the first instance and off after the last.
    pub(super) fn mode_is_free(&self) -> bool {
        let Mig::Supported { current, pending, .. } = &self.gpu.mig else { return false };
        let new = self.gpu.compute_capability.is_some_and(|cc| cc >= SWITCHES_WITHOUT_RESET);
        new && current == pending
    }
}

/// The whole GPU that a name means: `gpu-<minor>`.
pub(super) fn whole_gpu<'a>(inventory: &'a Inventory, name: &DeviceName) -> Option<&'a Gpu> {
    by_minor(inventory, name.as_str().strip_prefix("gpu-")?)
}

/// The GPU instances that are there.
pub(super) fn instances(gpu: &Gpu) -> &[GpuInstance] {
    match &gpu.mig {
        Mig::Supported { instances, .. } => instances,
        Mig::Unsupported => &[],
    }
}

/// Profile and place of an instance.
pub(super) fn partition(instance: &GpuInstance) -> Partition {
    Partition { profile_id: instance.profile_id, placement: instance.placement }
}

fn profiles(gpu: &Gpu) -> &[MigProfile] {
    match &gpu.mig {
        Mig::Supported { profiles, .. } => profiles,
        Mig::Unsupported => &[],
    }
}

fn by_minor<'a>(inventory: &'a Inventory, minor: &str) -> Option<&'a Gpu> {
    let minor = Minor(minor.parse().ok()?);
    inventory.gpus.iter().find(|gpu| gpu.minor == minor)
}
