//! `state.json`: what real hardware keeps when the process that set it ends.
//!
//! MIG mode and instances, compute mode, persistence mode, time-slice interval. Each change
//! is one method on [`GpuState`]; files and locks are `state_dir`'s business.

use serde::{Deserialize, Serialize};

use crate::mig_rules::{self, Occupied, Refusal};
use crate::mig_table::{CiProfile, GiProfile, MigTable, MigToggle, Placement};
use crate::node::{Gpu, Node};

/// The changeable state of all GPUs, in the order of [`Node::gpus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareState {
    /// One for each GPU.
    pub gpus: Vec<GpuState>,
}

/// The changeable state of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuState {
    /// The mode that is in force.
    pub mig: bool,
    /// The mode after the next reset.
    pub mig_pending: bool,
    /// GPU instances, by id.
    pub instances: Vec<GpuInstance>,
    /// `nvmlComputeMode_t`: 0 default, 2 prohibited, 3 exclusive process.
    pub compute_mode: u32,
    /// Persistence mode.
    pub persistence: bool,
    /// Time-slice interval: 0 default, 1 short, 2 medium, 3 long.
    pub time_slice: u32,
    /// Counts changes of the MIG configuration; event sets tell them apart by it.
    pub mig_changes: u64,
    /// Counts changes of the MIG mode: handles of the GPU from before are no good after.
    pub mode_changes: u64,
}

/// A GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuInstance {
    /// Its id, which follows from the placement.
    pub id: u32,
    /// Its profile's id.
    pub profile: u32,
    /// Memory slices.
    pub placement: Placement,
    /// Tells it from an earlier instance of the same id.
    pub birth: u64,
    /// Compute instances, by id.
    pub compute: Vec<ComputeInstance>,
}

/// A compute instance: what a MIG device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeInstance {
    /// The lowest id that was free.
    pub id: u32,
    /// Its profile's id.
    pub profile: u32,
    /// Compute slices of its GPU instance.
    pub placement: Placement,
    /// The MIG device's index on its GPU, the lowest that was free.
    pub index: u32,
    /// Tells it from an earlier instance of the same ids.
    pub birth: u64,
}

/// Why the hardware refuses a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// The GPU has no MIG, or it is off.
    #[error("MIG isn't on")]
    MigOff,
    /// By the profile tables.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No instance of that id.
    #[error("no such instance")]
    NotFound,
    /// Something inside is left.
    #[error("it still has compute instances")]
    InUse,
}

/// What came of a request to change MIG mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// The mode is in force.
    Done,
    /// The mode is pending until the GPU is reset.
    ResetRequired,
    /// The mode is pending: instances are in the way.
    InUse,
}

impl HardwareState {
    /// The state of a node that was never touched.
    #[must_use]
    pub fn fresh(node: &Node) -> Self {
        let gpus = node
            .gpus
            .iter()
            .map(|gpu| GpuState {
                mig: gpu.mig_at_start,
                mig_pending: gpu.mig_at_start,
                ..GpuState::default()
            })
            .collect();
        Self { gpus }
    }

    /// Clears what a reboot clears; Ampere's MIG mode stays.
    pub fn reboot(&mut self, node: &Node) {
        for (state, gpu) in self.gpus.iter_mut().zip(&node.gpus) {
            let lasting = mig_of(gpu).is_some_and(|table| table.toggle == MigToggle::Reset);
            let mig = lasting && state.mig_pending;
            *state = GpuState {
                mig,
                mig_pending: mig,
                mig_changes: state.mig_changes + 1,
                mode_changes: state.mode_changes + u64::from(mig != state.mig),
                ..GpuState::default()
            };
        }
    }
}

fn mig_of(gpu: &Gpu) -> Option<&MigTable> {
    gpu.model.mig.as_ref()
}

impl GpuState {
    /// Asks for a MIG mode.
    pub fn set_mig(&mut self, table: &MigTable, on: bool) -> Activation {
        self.mig_pending = on;
        if self.mig == on {
            return Activation::Done;
        }
        if !self.instances.is_empty() {
            return Activation::InUse;
        }
        if table.toggle == MigToggle::Reset {
            return Activation::ResetRequired;
        }
        self.switch();
        self.mig_changes += 1;
        Activation::Done
    }

    /// A reset of this GPU: the pending mode comes into force, instances are gone.
    pub fn reset(&mut self) {
        self.switch();
        self.instances.clear();
        self.mig_changes += 1;
    }

    /// The pending mode comes into force.
    fn switch(&mut self) {
        self.mode_changes += u64::from(self.mig != self.mig_pending);
        self.mig = self.mig_pending;
    }

    /// The instances as the placement rules see them.
    #[must_use]
    pub fn occupied(&self) -> Vec<Occupied> {
        self.instances
            .iter()
            .map(|instance| Occupied { profile: instance.profile, placement: instance.placement })
            .collect()
    }

    /// Creates a GPU instance; gives its id.
    ///
    /// # Errors
    /// Where MIG is off or the profile tables forbid it.
    pub fn create_gpu_instance(
        &mut self,
        table: &MigTable,
        profile: u32,
        wanted: Option<Placement>,
    ) -> Result<u32, HardwareError> {
        if !self.mig {
            return Err(HardwareError::MigOff);
        }
        let placement = mig_rules::place(table, &self.occupied(), profile, wanted)?;
        let id = table.instance_id(placement);
        self.mig_changes += 1;
        let birth = self.mig_changes;
        self.instances.push(GpuInstance { id, profile, placement, birth, compute: Vec::new() });
        self.instances.sort_by_key(|instance| instance.id);
        Ok(id)
    }

    /// Destroys a GPU instance.
    ///
    /// # Errors
    /// Where it isn't there or has compute instances.
    pub fn destroy_gpu_instance(&mut self, id: u32) -> Result<(), HardwareError> {
        if !self.instance(id)?.compute.is_empty() {
            return Err(HardwareError::InUse);
        }
        self.instances.retain(|instance| instance.id != id);
        self.mig_changes += 1;
        Ok(())
    }

    /// The GPU instance of that id.
    ///
    /// # Errors
    /// Where it isn't there.
    pub fn instance(&self, id: u32) -> Result<&GpuInstance, HardwareError> {
        self.instances.iter().find(|instance| instance.id == id).ok_or(HardwareError::NotFound)
    }

    /// Creates a compute instance; gives its id.
    ///
    /// # Errors
    /// Where the GPU instance isn't there, has no such profile or no room.
    pub fn create_compute_instance(
        &mut self,
        table: &MigTable,
        gpu_instance: u32,
        profile: u32,
        wanted: Option<Placement>,
    ) -> Result<u32, HardwareError> {
        let birth = self.mig_changes + 1;
        let used: Vec<_> = self.mig_devices().map(|(_, compute)| compute.index).collect();
        let index = (0..).find(|index| !used.contains(index)).ok_or(Refusal::NoRoom)?;
        let instance = self
            .instances
            .iter_mut()
            .find(|instance| instance.id == gpu_instance)
            .ok_or(HardwareError::NotFound)?;
        let kind = instance.profile(table)?;
        let ci = kind
            .ci_profiles(table)
            .into_iter()
            .find(|candidate| candidate.id == profile)
            .ok_or(Refusal::UnknownProfile)?;
        let taken: Vec<_> = instance.compute.iter().map(|other| other.placement).collect();
        let placement = mig_rules::place_compute(&ci.starts(), ci.slices, &taken, wanted)?;
        let id = (0..).find(|id| instance.compute.iter().all(|other| other.id != *id));
        let id = id.ok_or(Refusal::NoRoom)?;
        instance.compute.push(ComputeInstance { id, profile, placement, index, birth });
        instance.compute.sort_by_key(|compute| compute.id);
        self.mig_changes = birth;
        Ok(id)
    }

    /// Destroys a compute instance.
    ///
    /// # Errors
    /// Where it isn't there.
    pub fn destroy_compute_instance(
        &mut self,
        gpu_instance: u32,
        id: u32,
    ) -> Result<(), HardwareError> {
        let instance = self
            .instances
            .iter_mut()
            .find(|instance| instance.id == gpu_instance)
            .ok_or(HardwareError::NotFound)?;
        let before = instance.compute.len();
        instance.compute.retain(|compute| compute.id != id);
        if instance.compute.len() == before {
            return Err(HardwareError::NotFound);
        }
        self.mig_changes += 1;
        Ok(())
    }

    /// The MIG devices of the GPU, GPU instance by GPU instance.
    pub fn mig_devices(&self) -> impl Iterator<Item = (&GpuInstance, &ComputeInstance)> {
        self.instances
            .iter()
            .flat_map(|instance| instance.compute.iter().map(move |compute| (instance, compute)))
    }
}

impl GpuInstance {
    /// Its profile in the table.
    ///
    /// # Errors
    /// Where a state file names a profile that the type doesn't have.
    pub fn profile<'table>(
        &self,
        table: &'table MigTable,
    ) -> Result<&'table GiProfile, HardwareError> {
        Ok(table.profiles.get(&self.profile).ok_or(Refusal::UnknownProfile)?)
    }

    /// How many more compute instances of a profile could be created now.
    #[must_use]
    pub fn remaining(&self, profile: &CiProfile) -> u32 {
        let mut taken: Vec<_> = self.compute.iter().map(|other| other.placement).collect();
        let mut count = 0;
        while let Ok(placement) =
            mig_rules::place_compute(&profile.starts(), profile.slices, &taken, None)
        {
            taken.push(placement);
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::NodeSpec;

    fn node(text: &str) -> (Node, HardwareState) {
        let node = Node::build(&NodeSpec::parse(text).unwrap());
        let state = HardwareState::fresh(&node);
        (node, state)
    }

    #[test]
    fn hopper_switches_at_once_and_forgets_over_a_reboot() {
        let (node, mut state) = node("h100");
        let table = mig_of(&node.gpus[0]).unwrap();
        assert_eq!(state.gpus[0].set_mig(table, true), Activation::Done);
        assert!(state.gpus[0].mig);
        state.reboot(&node);
        assert!(!state.gpus[0].mig && !state.gpus[0].mig_pending);
    }

    #[test]
    fn ampere_waits_for_a_reset_and_remembers_over_a_reboot() {
        let (node, mut state) = node("a100-80");
        let table = mig_of(&node.gpus[0]).unwrap();
        assert_eq!(state.gpus[0].set_mig(table, true), Activation::ResetRequired);
        assert!(!state.gpus[0].mig && state.gpus[0].mig_pending);
        state.gpus[0].reset();
        assert!(state.gpus[0].mig);
        state.gpus[0].create_gpu_instance(table, 19, None).unwrap();
        state.gpus[0].compute_mode = 3;
        state.gpus[0].time_slice = 3;
        state.reboot(&node);
        let after = &state.gpus[0];
        assert!(after.mig && after.instances.is_empty());
        assert_eq!((after.compute_mode, after.time_slice), (0, 0));
    }

    #[test]
    fn instances_live_and_die_in_order() {
        let (node, mut state) = node("h100:mig=on");
        let table = mig_of(&node.gpus[0]).unwrap();
        let gpu = &mut state.gpus[0];
        let id = gpu.create_gpu_instance(table, 9, None).unwrap();
        assert_eq!(id, 1);
        assert_eq!(gpu.create_compute_instance(table, id, 0, None), Ok(0));
        assert_eq!(
            gpu.create_compute_instance(table, id, 1, None),
            Err(HardwareError::Refused(Refusal::NoRoom))
        );
        assert_eq!(gpu.create_compute_instance(table, id, 0, None), Ok(1));
        assert_eq!(gpu.destroy_gpu_instance(id), Err(HardwareError::InUse));
        gpu.destroy_compute_instance(id, 0).unwrap();
        assert_eq!(gpu.create_compute_instance(table, id, 0, None), Ok(0), "the lowest free id");
        gpu.destroy_compute_instance(id, 0).unwrap();
        gpu.destroy_compute_instance(id, 1).unwrap();
        assert_eq!(gpu.destroy_compute_instance(id, 1), Err(HardwareError::NotFound));
        gpu.destroy_gpu_instance(id).unwrap();
        assert_eq!(gpu.destroy_gpu_instance(id), Err(HardwareError::NotFound));
    }

    #[test]
    fn the_mode_cannot_change_under_instances() {
        let (node, mut state) = node("h100:mig=on");
        let table = mig_of(&node.gpus[0]).unwrap();
        state.gpus[0].create_gpu_instance(table, 0, None).unwrap();
        assert_eq!(state.gpus[0].set_mig(table, false), Activation::InUse);
        assert!(state.gpus[0].mig);
    }

    #[test]
    fn a_double_memory_instance_offers_its_own_compute_profile() {
        let (node, _) = node("h100:mig=on");
        let table = mig_of(&node.gpus[0]).unwrap();
        let profile = &table.profiles[&15];
        let ids: Vec<_> = profile.ci_profiles(table).iter().map(|ci| ci.id).collect();
        assert_eq!(ids, [7]);
        let seven = &table.profiles[&0];
        let sms: Vec<_> = seven.ci_profiles(table).iter().map(|ci| ci.multiprocessors).collect();
        assert_eq!(sms, [16, 32, 48, 64, 132]);
    }
}
