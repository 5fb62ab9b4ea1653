//! The GPUs that `mig` acts on: those that are meant and have the mode on.

use gpu_dra_sim_data::StateError;
use gpu_dra_sim_data::mig_table::{CiProfile, GiProfile, MigTable};
use gpu_dra_sim_data::state::{ComputeInstance, GpuInstance, GpuState};
use nvml_wrapper::Device;

use crate::failure::Failure;
use crate::target::{Smi, state_dir};

/// A GPU whose MIG mode is on, as it was when the program started.
pub(super) struct MigGpu<'smi> {
    pub(super) index: u32,
    pub(super) device: Device<'smi>,
    pub(super) table: MigTable,
    pub(super) state: GpuState,
}

/// # Errors
/// Where none of those that are meant has the mode on.
pub(super) fn enabled<'smi>(
    smi: &'smi Smi,
    ids: Option<&str>,
) -> Result<Vec<MigGpu<'smi>>, Failure> {
    let dir = state_dir()?;
    let failed = |error: StateError| Failure::new(255, error.to_string());
    let (node, state) = (dir.node().map_err(failed)?, dir.state().map_err(failed)?);
    let mut found = Vec::new();
    for target in smi.targets(ids)? {
        let uuid = target.device.uuid()?;
        let of = node.gpus.iter().zip(&state.gpus).find(|(gpu, _)| gpu.uuid == uuid);
        let Some((gpu, state)) = of.filter(|(_, state)| state.mig) else { continue };
        let Some(table) = gpu.model.mig.clone() else { continue };
        found.push(MigGpu {
            index: target.index,
            device: target.device,
            table,
            state: state.clone(),
        });
    }
    if found.is_empty() {
        return Err(Failure::new(6, "No MIG-enabled devices found."));
    }
    Ok(found)
}

impl MigGpu<'_> {
    /// Profiles with their ids in the order of the real program's lists.
    pub(super) fn profiles(&self) -> Vec<(u32, &GiProfile)> {
        let mut all: Vec<_> = self.table.profiles.iter().map(|(id, of)| (*id, of)).collect();
        all.sort_by_key(|(_, profile)| (profile.slices, profile.memory_mib, profile.index));
        all
    }

    /// The GPU instances of those ids, or all, profile by profile.
    pub(super) fn instances(&self, ids: Option<&[u32]>) -> Vec<(&GpuInstance, &GiProfile)> {
        let mut found = Vec::new();
        for (id, profile) in self.profiles() {
            found.extend(
                self.state
                    .instances
                    .iter()
                    .filter(|one| one.profile == id && wanted(ids, one.id))
                    .map(|one| (one, profile)),
            );
        }
        found
    }
}

/// The compute instances of those ids, or all.
pub(super) fn compute<'state>(
    instance: &'state GpuInstance,
    ids: Option<&[u32]>,
) -> impl Iterator<Item = &'state ComputeInstance> {
    instance.compute.iter().filter(move |one| wanted(ids, one.id))
}

fn wanted(ids: Option<&[u32]>, id: u32) -> bool {
    ids.is_none_or(|ids| ids.contains(&id))
}

/// `1c.3g.40gb`; without the first part where the compute instance has all of it.
pub(super) fn compute_name(whole: &GiProfile, part: &CiProfile) -> String {
    if part.slices < whole.slices {
        format!("{}c.{}", part.slices, whole.name)
    } else {
        whole.name.clone()
    }
}
