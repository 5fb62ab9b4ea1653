//! From the incumbent's state to records of ours. Completed claims become prepared ones, as
//! they are; begun ones become claims that are being unprepared, if there is anything to undo.

use std::collections::BTreeMap;

use gpu_dra_model::{
    BootId, CdiDeviceId, ClaimRef, ClaimUid, DeviceName, DriverName, Inventory, PoolName,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::checkpoint::{Checkpoint, Entry, Progress, What};
use super::held::{Held, held};
use super::mig::{AdoptedMig, Origin};
use super::note::Note;
use super::rollback::{self, Others};
use crate::allocation::Allocation;
use crate::record::{Adopted, Phase, Record, VERSION};

/// The namespace of claims whose name nobody knows; no namespace is called so. Their name is
/// their UID.
pub const UNKNOWN_NAMESPACE: &str = "?";

/// Names a device of a claim, or a share of it, for the runtime; None where no name can be made.
pub type NameDevice<'a> = dyn Fn(&ClaimUid, &DeviceName, Option<&str>) -> Option<CdiDeviceId> + 'a;

/// The node that takes over.
pub struct Node<'a> {
    /// The driver's name.
    pub driver: &'a DriverName,
    /// This node's pool.
    pub pool: &'a PoolName,
    /// The running kernel's boot.
    pub boot_id: &'a BootId,
    /// The GPUs; None while NVML doesn't answer.
    pub inventory: Option<&'a Inventory>,
    /// Claims as the API server has them, as far as it could be asked: for their names, and
    /// for their allocations where the state has none.
    pub claims: &'a BTreeMap<ClaimUid, ResourceClaim>,
    /// Who made MIG devices, as far as published slices tell.
    pub origins: &'a BTreeMap<DeviceName, Origin>,
    /// What the operator says of them.
    pub mig: AdoptedMig,
    /// Names the devices of claims.
    pub cdi_device: &'a NameDevice<'a>,
}

/// What comes of a take-over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TakeOver {
    /// For the journal.
    pub records: Vec<Record>,
    /// For the operator.
    pub notes: Vec<Note>,
}

/// The GPUs have to be looked at, and can't.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("claims of NVIDIA's DRA driver can't be taken over before NVML answers")]
pub struct NeedsGpus;

/// Takes over. Nothing is decided by chance or time: a second call says the same.
///
/// # Errors
/// While NVML doesn't answer and the state has more than whole GPUs.
pub fn take_over(checkpoint: &Checkpoint, node: &Node<'_>) -> Result<TakeOver, NeedsGpus> {
    let entries = &checkpoint.entries;
    let mut result = TakeOver::default();
    if checkpoint.boot_id.as_ref().is_some_and(|boot| boot != node.boot_id) {
        if !entries.is_empty() {
            result.notes.push(Note::OtherBoot { claims: entries.len() });
        }
        return Ok(result);
    }
    if node.inventory.is_none() && entries.iter().any(needs_gpus) {
        return Err(NeedsGpus);
    }
    let notes = &mut result.notes;
    let odd = checkpoint.odd.iter();
    notes.extend(odd.map(|key| Note::NotUnderstood { key: key.clone() }));
    let of = |progress| entries.iter().filter(move |entry| entry.progress == progress);
    for entry in of(Progress::Completed) {
        let claim = reference(entry, node);
        let allocation = allocation(entry, &claim, node);
        let held = held(&claim, &entry.groups, allocation.as_ref(), node, notes);
        result.records.extend(record(claim, Phase::Prepared, held, node));
    }
    let completed = result.records.clone();
    let begun: Vec<_> = of(Progress::Started)
        .filter_map(|entry| {
            let claim = reference(entry, node);
            Some((allocation(entry, &claim, node)?, claim))
        })
        .collect();
    let places: Vec<_> =
        begun.iter().flat_map(|(allocation, _)| rollback::places(allocation, node)).collect();
    let unknown = !checkpoint.odd.is_empty();
    let others = Others { completed: &completed, begun: &places, unknown };
    for (allocation, claim) in begun {
        let held = rollback::begun(&claim, &allocation, node, &others, notes);
        if let Some(record) = record(claim.clone(), Phase::Unpreparing, held, node) {
            notes.push(Note::Undone { claim });
            result.records.push(record);
        }
    }
    if !completed.is_empty() {
        result.notes.insert(0, Note::TakenOver { claims: completed.len() });
    }
    Ok(result)
}

/// Whether anything but the UUID of a whole GPU has to be looked up.
fn needs_gpus(entry: &Entry) -> bool {
    let devices = || entry.groups.iter().flat_map(|group| &group.devices);
    let by_uuid = |what: &What| matches!(what, What::Gpu(_) | What::Passthrough);
    match entry.progress {
        Progress::Started => true,
        Progress::Completed => {
            devices().next().is_none() || !devices().all(|device| by_uuid(&device.what))
        }
    }
}

fn reference(entry: &Entry, node: &Node<'_>) -> ClaimRef {
    let object = node.claims.get(&entry.uid).map(|claim| &claim.metadata);
    let known = object.and_then(|data| Some((data.namespace.clone()?, data.name.clone()?)));
    let known = entry.name.clone().or(known);
    let (namespace, name) =
        known.unwrap_or_else(|| (UNKNOWN_NAMESPACE.to_owned(), entry.uid.to_string()));
    ClaimRef { uid: entry.uid.clone(), namespace, name }
}

/// Our part of the allocation that was prepared; else of the one that there is now.
fn allocation(entry: &Entry, claim: &ClaimRef, node: &Node<'_>) -> Option<Allocation> {
    let metadata = ObjectMeta { uid: Some(claim.uid.to_string()), ..ObjectMeta::default() };
    let then = ResourceClaim { metadata, status: entry.status.clone(), ..ResourceClaim::default() };
    let of = |object: &ResourceClaim| Allocation::of(object, claim, node.driver).ok();
    of(&then).or_else(|| node.claims.get(&entry.uid).and_then(of))
}

fn record(claim: ClaimRef, phase: Phase, held: Held, node: &Node<'_>) -> Option<Record> {
    let Held { devices, steps, mps } = held;
    (!devices.is_empty()).then(|| Record {
        version: VERSION,
        claim,
        phase,
        boot_id: node.boot_id.clone(),
        devices,
        steps,
        adopted: Some(Adopted { mps }),
        other: serde_json::Map::new(),
    })
}
