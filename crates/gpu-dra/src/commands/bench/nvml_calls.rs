//! What NVML itself takes for a MIG device, by a bare loop on a node of its own: the mode, the
//! GPU instance, the compute instance, and back. The rest of a Prepare is our own.

use std::time::Instant;

use anyhow::Context as _;
use gpu_dra_model::inventory::{Mig, MigMode};
use gpu_dra_model::{GpuUuid, Placement};
use gpu_dra_nvml::{Driver, Gpus as _};

use super::measure::Times;
use crate::commands::simulated::Simulated;

/// A simulated GPU that nobody else uses.
pub(super) struct NvmlCalls {
    gpu: GpuUuid,
    profile_id: u32,
    placement: Placement,
    driver: Driver,
    _node: Simulated,
}

impl NvmlCalls {
    /// On the first GPU of such a node that has the profile.
    pub(super) fn new(node: &str, profile: &str) -> anyhow::Result<Self> {
        let node = Simulated::stage(node)?;
        let place = node.place();
        let driver = gpu_dra_node::driver(place.root(), place.trees());
        let inventory = driver.probe()?;
        let found = inventory.gpus.iter().find_map(|gpu| {
            let Mig::Supported { profiles, .. } = &gpu.mig else { return None };
            let found = profiles.iter().find(|known| known.name == profile)?;
            Some((gpu.uuid.clone(), found.id, *found.placements.first()?))
        });
        let (gpu, profile_id, placement) =
            found.with_context(|| format!("no GPU of this node has MIG profile {profile}"))?;
        Ok(Self { gpu, profile_id, placement, driver, _node: node })
    }

    /// Makes the MIG device once and removes it again.
    pub(super) fn once(&self, make: &mut Times, remove: &mut Times) -> anyhow::Result<()> {
        let (driver, gpu) = (&self.driver, &self.gpu);
        let start = Instant::now();
        driver.set_mig_mode(gpu, MigMode::Enabled)?;
        let instance = driver.create_gpu_instance(gpu, self.profile_id, self.placement)?;
        let compute = driver.create_compute_instance(gpu, instance)?;
        make.add(start);
        let start = Instant::now();
        driver.destroy_compute_instance(gpu, instance, compute.id)?;
        driver.destroy_gpu_instance(gpu, instance)?;
        driver.set_mig_mode(gpu, MigMode::Disabled)?;
        remove.add(start);
        Ok(())
    }
}
