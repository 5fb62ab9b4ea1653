//! The node's inventory to the pool that should be published, under the remembered names:
//! whole GPUs first, then MIG devices that exist, then partitions that can be made, then the
//! monitors of GPUs that have partitions.
//!
//! A GPU that can't be offered is left out with a note and never takes the others along.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::inventory::{BrokenGpu, Mig};
use gpu_dra_model::{DeviceKind, DeviceName, Gpu, GpuUuid, Inventory, Partition, Quantity, Shares};
use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCapacity, DeviceTaint};
use k8s_openapi::apimachinery::pkg::api::resource as api;

use crate::attributes::{self, HAS_MONITOR, WHOLE_GPU};
use crate::mig::foreign::{self, Foreign};
use crate::mig::layout::{Layout, layout};
use crate::mig::partitions::{self, Partitions};
use crate::mig::{Parent, Published, instances};
use crate::names::Names;
use crate::note::{LeftOut, Note};
use crate::pool::DesiredPool;
use crate::shares;

/// The taint of devices that are for monitoring alone.
const MONITORING: &str = "gpu.nvidia.com/monitoring";

/// What the operator wants published of what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// GPUs that are kept out of the pool, e.g. one that drives a display.
    pub excluded: BTreeSet<GpuUuid>,
    /// What is done with GPUs that can be partitioned.
    pub mig: MigPolicy,
    /// The same for single GPUs, which goes first.
    pub mig_by_gpu: BTreeMap<GpuUuid, MigPolicy>,
    /// Whether whole GPUs are given out in shares; such a GPU isn't partitioned.
    pub shares: Shares,
    /// The same for single GPUs, which goes first.
    pub shares_by_gpu: BTreeMap<GpuUuid, Shares>,
}

impl Policy {
    /// What is done with this GPU.
    fn of(&self, gpu: &Gpu) -> (MigPolicy, Shares) {
        let mig = self.mig_by_gpu.get(&gpu.uuid).copied().unwrap_or(self.mig);
        let shares = self.shares_by_gpu.get(&gpu.uuid).copied().unwrap_or(self.shares);
        match shares {
            Shares::Off => (mig, Shares::Off),
            // The scheduler counts counters of shared devices wrongly before 1.36.2
            // (kubernetes#139034), and one GPU is either cut or shared.
            shares => (MigPolicy::Off, shares),
        }
    }
}

/// What is done with a GPU that can be partitioned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MigPolicy {
    /// MIG devices that others made are published; none is made or destroyed.
    Static,
    /// Partitions are made on demand, unless others made instances there before.
    #[default]
    Dynamic,
    /// Whole GPUs only, and no counters: for schedulers that don't know them.
    Off,
}

/// A GPU instance that a claim of this driver holds or is about to create.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnInstance {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Profile and place.
    pub partition: Partition,
}

/// A pool, and what its devices are.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// What should be published.
    pub pool: DesiredPool,
    /// What stands behind each device of the pool.
    pub devices: BTreeMap<DeviceName, DeviceKind>,
}

/// The pool of a node. Same input, same output, whatever the inventory's order. `own` tells
/// the instances of claims from those that others made, which are never touched.
///
/// A GPU that is broken or lost is left out; its name stays reserved, so that no other
/// card can take over the claims made on it.
#[must_use]
pub fn build(
    inventory: &Inventory,
    names: &Names,
    policy: &Policy,
    own: &BTreeSet<OwnInstance>,
) -> Built {
    let mut notes = Vec::new();
    let mut parts = Parts::default();
    for (name, gpu) in named(inventory, names, policy, &mut notes) {
        let attributes = attributes::of_whole_gpu(gpu, &inventory.driver, &mut notes);
        let parent = Parent { gpu, name: &name, attributes: &attributes };
        let (mig, shares) = policy.of(gpu);
        let own = own.iter().filter(|own| own.gpu == gpu.uuid).map(|own| own.partition).collect();
        parts.add(parent, layout(gpu, mig, &own), shares, &mut notes);
    }
    parts.finish(notes)
}

/// The GPUs that have a name and are wanted, gpu-2 before gpu-10.
fn named<'a>(
    inventory: &'a Inventory,
    names: &Names,
    policy: &Policy,
    notes: &mut Vec<Note>,
) -> Vec<(DeviceName, &'a Gpu)> {
    let mut found: BTreeMap<DeviceName, &Gpu> = BTreeMap::new();
    for gpu in &inventory.gpus {
        let name = names.name(&gpu.uuid);
        let why = if policy.excluded.contains(&gpu.uuid) {
            LeftOut::Excluded
        } else if let Some(name) = &name {
            if !found.contains_key(name) {
                found.insert(name.clone(), gpu);
                continue;
            }
            LeftOut::SameUuid(gpu.uuid.clone())
        } else {
            LeftOut::Unnamed
        };
        notes.push(Note::GpuLeftOut { gpu: gpu.pci_bus_id.to_string(), name, why });
    }
    notes.extend(inventory.broken.iter().map(|broken| broken_note(broken, names)));
    let mut found: Vec<_> = found.into_iter().collect();
    // Names differ in their number alone, so the shorter is the smaller.
    found.sort_by(|(a, _), (b, _)| {
        (a.as_str().len(), a.as_str()).cmp(&(b.as_str().len(), b.as_str()))
    });
    found
}

fn broken_note(broken: &BrokenGpu, names: &Names) -> Note {
    let gpu = match (&broken.uuid, &broken.pci_bus_id) {
        (Some(uuid), _) => uuid.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => format!("with NVML index {}", broken.index),
    };
    let why = if broken.lost { LeftOut::Lost } else { LeftOut::Broken(broken.reason.clone()) };
    let name = broken.uuid.as_ref().and_then(|uuid| names.name(uuid));
    Note::GpuLeftOut { gpu, name, why }
}

/// The devices of all GPUs, by what they are.
#[derive(Default)]
struct Parts {
    whole: Vec<Published>,
    monitors: Vec<Published>,
    instances: Vec<Published>,
    /// Per GPU.
    partitions: Vec<Partitions>,
    counter_sets: Vec<CounterSet>,
}

impl Parts {
    fn add(
        &mut self,
        parent: Parent<'_>,
        layout: Layout<'_>,
        shares: Shares,
        notes: &mut Vec<Note>,
    ) {
        let (gpu, name) = (parent.gpu, parent.name);
        if let Mig::Supported { current, pending, .. } = &gpu.mig
            && current != pending
        {
            let (gpu, address) = (name.clone(), gpu.pci_bus_id.clone());
            notes.push(Note::ResetDue { gpu, address, pending: *pending });
        }
        match layout {
            Layout::Whole => {
                let whole = shares::offered(whole_gpu(parent, false), gpu, shares, notes);
                if whole.device.allow_multiple_allocations == Some(true) {
                    self.monitors.extend(monitor(parent));
                }
                self.whole.push(whole);
            }
            Layout::Nothing(why) => {
                let gpu = gpu.pci_bus_id.to_string();
                notes.push(Note::GpuLeftOut { gpu, name: Some(name.clone()), why });
            }
            Layout::Instances { profiles, instances } => {
                self.instances.extend(instances::instances(parent, profiles, &instances, notes));
            }
            Layout::Partitions { profiles, account, mode_is_free, foreign } => {
                let in_the_way = Foreign::new(&foreign, profiles, &account);
                self.counter_sets.push(account.totals.counter_set(&parent.counter_set()));
                self.partitions.push(partitions::partitions(
                    parent,
                    profiles,
                    &account,
                    &in_the_way,
                    mode_is_free,
                ));
                if mode_is_free {
                    let mut whole = whole_gpu(parent, true);
                    let all = account.totals.consumption(&parent.counter_set());
                    whole.device.consumes_counters = Some(vec![all]);
                    let blocker = in_the_way.in_the_way(&account.totals);
                    whole.device.taints = blocker.map(|instance| vec![foreign::taint(instance)]);
                    self.whole.push(whole);
                }
                self.monitors.extend(monitor(parent));
                notes.extend(foreign.into_iter().map(|instance| Note::ForeignInstance {
                    gpu: name.clone(),
                    instance: instance.id,
                }));
            }
        }
    }

    fn finish(self, mut notes: Vec<Note>) -> Built {
        let mut kinds = BTreeMap::new();
        let mut devices = Vec::new();
        // Partitions that share a GPU start at the last one, so that the first ones stay free
        // for claims that need all of a GPU.
        let (sharing, taking_all): (Vec<_>, Vec<_>) =
            self.partitions.into_iter().map(|p| (p.sharing, p.taking_all)).unzip();
        let partitions = sharing.into_iter().rev().chain(taking_all).flatten();
        let parts = self.whole.into_iter().chain(self.instances).chain(partitions);
        let parts = parts.chain(self.monitors);
        for Published { name, device, kind } in parts {
            kinds.insert(name, kind);
            devices.push(device);
        }
        let order: Vec<_> = WHOLE_GPU.iter().map(|spec| spec.key).collect();
        attributes::drop_excess(&mut devices, &order, &mut notes);
        dedup(&mut notes);
        let pool = DesiredPool::new(devices, self.counter_sets, notes);
        Built { pool, devices: kinds }
    }
}

fn whole_gpu(parent: Parent<'_>, mig_may_be_on: bool) -> Published {
    // None on unified memory: a selector on it then matches no such GPU, which is the truth.
    // Memory alone: the same keys on all nodes, and NVML counts no engines of a GPU that
    // can't be partitioned.
    let memory = parent.gpu.memory_bytes.map(|bytes| {
        let value = api::Quantity(Quantity::from_bytes_binary(bytes).to_string());
        BTreeMap::from([("memory".to_owned(), DeviceCapacity { value, request_policy: None })])
    });
    let mut attributes = parent.attributes.clone();
    attributes.insert(HAS_MONITOR.to_owned(), attributes::boolean(mig_may_be_on));
    let device = Device {
        name: parent.name.to_string(),
        attributes: Some(attributes),
        capacity: memory,
        ..Device::default()
    };
    let (gpu, shares) = (parent.gpu.uuid.clone(), Shares::Off);
    let kind = DeviceKind::Gpu { gpu, mig_may_be_on, shares };
    Published { name: parent.name.clone(), device, kind }
}

/// What monitoring claims get of a GPU that has partitions or shares: it consumes nothing, so
/// that it can be allocated whatever is in use, and is tainted, so that nobody gets it by chance.
fn monitor(parent: Parent<'_>) -> Option<Published> {
    let name = DeviceName::new(format!("{}-monitor", parent.name)).ok()?;
    let mut published = whole_gpu(parent, true);
    published.device.name = name.to_string();
    if let Some(attributes) = &mut published.device.attributes {
        attributes.insert("type".to_owned(), attributes::string("monitor".to_owned()));
    }
    published.device.taints = Some(vec![DeviceTaint {
        key: MONITORING.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..DeviceTaint::default()
    }]);
    let kind = DeviceKind::Monitor { gpu: parent.gpu.uuid.clone() };
    Some(Published { name, kind, ..published })
}

/// Eight GPUs of one driver say the same thing eight times.
fn dedup(notes: &mut Vec<Note>) {
    let mut seen: Vec<Note> = Vec::with_capacity(notes.len());
    for note in notes.drain(..) {
        if !seen.contains(&note) {
            seen.push(note);
        }
    }
    *notes = seen;
}
