//! Partitions that are made on demand: every placement of every profile of one GPU, as
//! devices in the order in which the scheduler should take them.

use gpu_dra_model::inventory::{GpuInstance, MigProfile};
use gpu_dra_model::{DeviceKind, Partition};
use k8s_openapi::api::resource::v1::Device;

use super::attributes::{self, Facts};
use super::counters::{Account, Amounts};
use super::foreign::{self, Foreign};
use super::order::{self, Rank};
use super::{Parent, Published, name};

/// The partitions of one GPU.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    /// Those that share the GPU, the smallest first.
    pub(crate) sharing: Vec<Published>,
    /// Those that need all of it.
    pub(crate) taking_all: Vec<Published>,
}

/// One placement of a profile.
struct Placed<'a> {
    profile: &'a MigProfile,
    partition: Partition,
    amounts: Amounts,
}

/// The partitions of a GPU with these profiles.
pub(crate) fn partitions(
    parent: Parent<'_>,
    profiles: &[MigProfile],
    account: &Account,
    foreign: &Foreign<'_>,
    mode_is_free: bool,
) -> Partitions {
    let mut all: Vec<_> = profiles.iter().flat_map(|profile| placed(profile, account)).collect();
    all.sort_by_key(|placed| placed.partition);
    all.dedup_by_key(|placed| placed.partition);
    let amounts: Vec<_> = all.iter().map(|placed| (placed.profile.id, &placed.amounts)).collect();
    let mut ranked: Vec<(Rank, Option<&GpuInstance>, &Placed<'_>)> =
        order::ranks(&amounts, &account.totals)
            .into_iter()
            .zip(&all)
            .map(|(rank, placed)| (rank, foreign.in_the_way(&placed.amounts), placed))
            .collect();
    // The scheduler forgets to give back the counters of a device that it then rejects for
    // its taint, so those come last.
    ranked.sort_by_key(|(rank, blocker, placed)| {
        let (profile, size) = (placed.profile, placed.partition.placement.size);
        (blocker.is_some(), size, profile.slices, profile.id, rank.nth)
    });
    let mut partitions = Partitions::default();
    for (rank, blocker, placed) in ranked {
        let published = placed.published(parent, blocker, mode_is_free);
        if rank.takes_all {
            partitions.taking_all.extend(published);
        } else {
            partitions.sharing.extend(published);
        }
    }
    partitions
}

/// What an empty GPU can't hold, for the driver's own count of instances, is no placement.
fn placed<'a>(profile: &'a MigProfile, account: &Account) -> Vec<Placed<'a>> {
    let place = |placement: &gpu_dra_model::Placement| Placed {
        profile,
        partition: Partition { profile_id: profile.id, placement: *placement },
        amounts: account.amounts(profile, *placement),
    };
    let fits = |placed: &Placed<'_>| placed.amounts.fits_in(&account.totals);
    profile.placements.iter().map(place).filter(fits).collect()
}

impl Placed<'_> {
    fn published(
        &self,
        parent: Parent<'_>,
        blocker: Option<&GpuInstance>,
        mode_is_free: bool,
    ) -> Option<Published> {
        let name = name::partition(parent.name, self.profile, self.partition)?;
        let facts = Facts {
            gpu: parent.gpu,
            profile: &self.profile.name,
            placement: self.partition.placement,
            uuid: None,
        };
        let device = Device {
            name: name.to_string(),
            attributes: Some(attributes::attributes(facts, parent.attributes)),
            capacity: Some(attributes::capacities(self.profile, self.profile.multiprocessors)),
            consumes_counters: Some(vec![self.amounts.consumption(&parent.counter_set())]),
            taints: blocker.map(|instance| vec![foreign::taint(instance)]),
            ..Device::default()
        };
        let kind = DeviceKind::Partition {
            gpu: parent.gpu.uuid.clone(),
            partition: self.partition,
            mode_is_free,
        };
        Some(Published { name, device, kind })
    }
}
