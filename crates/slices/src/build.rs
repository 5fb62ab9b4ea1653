//! The node's inventory to the pool that should be published. Whole GPUs: one device each,
//! in the order of their numbers, under the remembered names.
//!
//! A GPU that can't be offered is left out with a note and never takes the others along.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::inventory::{Mig, MigMode};
use gpu_dra_model::{DeviceName, Gpu, GpuUuid, Inventory, Quantity};
use k8s_openapi::api::resource::v1::{Device, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource as api;

use crate::attributes::{self, WHOLE_GPU};
use crate::names::Names;
use crate::note::{LeftOut, Note};
use crate::pool::DesiredPool;

/// What the operator wants published of what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// GPUs that are kept out of the pool, e.g. one that drives a display.
    pub excluded: BTreeSet<GpuUuid>,
}

/// The pool of a node. Same input, same output, whatever the inventory's order.
///
/// A GPU that is broken or lost is left out; its name stays reserved, so that no other
/// card can take over the claims made on it.
#[must_use]
pub fn build(inventory: &Inventory, names: &Names, policy: &Policy) -> DesiredPool {
    let mut notes = Vec::new();
    let mut published: BTreeMap<DeviceName, &Gpu> = BTreeMap::new();
    for gpu in &inventory.gpus {
        let name = names.name(&gpu.uuid);
        let why = if policy.excluded.contains(&gpu.uuid) {
            LeftOut::Excluded
        } else if matches!(gpu.mig, Mig::Supported { current: MigMode::Enabled, .. }) {
            LeftOut::MigEnabled
        } else if let Some(name) = &name {
            if !published.contains_key(name) {
                published.insert(name.clone(), gpu);
                continue;
            }
            LeftOut::SameUuid(gpu.uuid.clone())
        } else {
            LeftOut::Unnamed
        };
        notes.push(Note::GpuLeftOut { gpu: gpu.pci_bus_id.to_string(), name, why });
    }
    for broken in &inventory.broken {
        let gpu = match (&broken.uuid, &broken.pci_bus_id) {
            (Some(uuid), _) => uuid.to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => format!("with NVML index {}", broken.index),
        };
        let why = if broken.lost { LeftOut::Lost } else { LeftOut::Broken(broken.reason.clone()) };
        let name = broken.uuid.as_ref().and_then(|uuid| names.name(uuid));
        notes.push(Note::GpuLeftOut { gpu, name, why });
    }

    let mut in_order: Vec<_> = published.into_iter().collect();
    // gpu-2 before gpu-10: names differ in their number alone, so the shorter is the smaller.
    in_order.sort_by(|(a, _), (b, _)| {
        (a.as_str().len(), a.as_str()).cmp(&(b.as_str().len(), b.as_str()))
    });
    let mut devices: Vec<_> =
        in_order.iter().map(|(name, gpu)| whole_gpu(name, gpu, inventory, &mut notes)).collect();
    let order: Vec<_> = WHOLE_GPU.iter().map(|spec| spec.key).collect();
    attributes::drop_excess(&mut devices, &order, &mut notes);
    dedup(&mut notes);
    DesiredPool::new(devices, Vec::new(), notes)
}

fn whole_gpu(name: &DeviceName, gpu: &Gpu, node: &Inventory, notes: &mut Vec<Note>) -> Device {
    // None on unified memory: a selector on it then matches no such GPU, which is the truth.
    let memory = gpu.memory_bytes.map(|bytes| {
        let value = api::Quantity(Quantity::from_bytes_binary(bytes).to_string());
        BTreeMap::from([("memory".to_owned(), DeviceCapacity { value, request_policy: None })])
    });
    Device {
        name: name.to_string(),
        attributes: Some(attributes::of_whole_gpu(gpu, &node.driver, notes)),
        capacity: memory,
        ..Device::default()
    }
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
