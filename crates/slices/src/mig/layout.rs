//! What one GPU offers: itself, partitions made on demand, the instances that are there, or
//! nothing. Decided from its MIG state, the policy and what claims of ours hold.

use std::collections::BTreeSet;

use gpu_dra_model::inventory::{ComputeCapability, GpuInstance, Mig, MigMode, MigProfile};
use gpu_dra_model::{Gpu, Partition};

use super::counters::Account;
use crate::build::MigPolicy;
use crate::note::LeftOut;

/// From Hopper on the MIG mode changes without a reset.
const SWITCHES_WITHOUT_RESET: ComputeCapability = ComputeCapability { major: 9, minor: 0 };

/// What a GPU offers.
#[derive(Debug)]
pub(crate) enum Layout<'a> {
    /// The whole GPU, and nothing else.
    Whole,
    /// Every placement of every profile.
    Partitions {
        /// The driver's table.
        profiles: &'a [MigProfile],
        /// What keeps apart those that can't coexist.
        account: Account,
        /// The mode is ours to switch, so that the whole GPU is offered beside.
        mode_is_free: bool,
        /// Instances that no claim of ours holds, and that may be in the way.
        foreign: Vec<&'a GpuInstance>,
    },
    /// Instances that others made.
    Instances {
        /// The driver's table.
        profiles: &'a [MigProfile],
        /// The instances, at least one.
        instances: Vec<&'a GpuInstance>,
    },
    /// Nothing.
    Nothing(LeftOut),
}

/// Decides for one GPU; `own` are its instances that claims of ours hold or will create.
pub(crate) fn layout<'a>(gpu: &'a Gpu, policy: MigPolicy, own: &BTreeSet<Partition>) -> Layout<'a> {
    let Mig::Supported { current, pending, profiles, instances } = &gpu.mig else {
        return Layout::Whole;
    };
    let is_on = *current == MigMode::Enabled;
    let is_foreign = |instance: &&GpuInstance| !own.contains(&place(instance));
    let foreign: Vec<_> = instances.iter().filter(is_foreign).collect();

    let ours_to_cut = !gpu.vgpu_guest && (foreign.is_empty() || !own.is_empty());
    let account = (policy == MigPolicy::Dynamic && ours_to_cut).then(|| Account::of(profiles));
    if let Some(Some(account)) = account {
        let can_switch = gpu.compute_capability.is_some_and(|cc| cc >= SWITCHES_WITHOUT_RESET);
        let mode_is_free = can_switch && current == pending;
        return if mode_is_free || is_on {
            Layout::Partitions { profiles, account, mode_is_free, foreign }
        } else {
            Layout::Whole
        };
    }
    match policy {
        _ if !is_on => Layout::Whole,
        MigPolicy::Off => Layout::Nothing(LeftOut::MigEnabled),
        _ if !foreign.is_empty() => Layout::Instances { profiles, instances: foreign },
        MigPolicy::Static => Layout::Nothing(LeftOut::NoInstances),
        MigPolicy::Dynamic => Layout::Nothing(LeftOut::MigEnabled),
    }
}

/// Profile and place of an instance.
pub(crate) fn place(instance: &GpuInstance) -> Partition {
    Partition { profile_id: instance.profile_id, placement: instance.placement }
}
