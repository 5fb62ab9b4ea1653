//! What a completed claim of the incumbent holds, as devices and steps of a record of ours.
//! The steps are those that the incumbent has done: they are there to be undone.

use gpu_dra_model::config::{DeviceConfig, GpuConfig, Interval, Sharing};
use gpu_dra_model::{ClaimRef, ComputeMode, DeviceName, GpuUuid, RequestName};

use super::checkpoint::{Group, Prepared, What};
use super::mig::{AdoptedMig, Origin, Place, whole_gpu};
use super::note::Note;
use super::take_over::Node;
use crate::allocation::{AllocatedDevice, Allocation};
use crate::record::{AdoptedMps, HeldDevice, HeldPart, HeldShare, KnownStep, Step};
use crate::resolve::{DeviceType, config_for};

/// What one claim holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) devices: Vec<HeldDevice>,
    pub(super) steps: Vec<Step>,
    pub(super) mps: Vec<AdoptedMps>,
}

/// Where a device is.
struct Found {
    gpu: GpuUuid,
    part: Option<HeldPart>,
    step: Option<KnownStep>,
}

/// What the claim holds; what can't be held has a note.
pub(super) fn held(
    claim: &ClaimRef,
    groups: &[Group],
    allocation: Option<&Allocation>,
    node: &Node<'_>,
    notes: &mut Vec<Note>,
) -> Held {
    let mut held = Held::default();
    let by_name = [of_allocation(allocation)];
    let prepared = groups.iter().any(|group| !group.devices.is_empty());
    for group in if prepared { groups } else { by_name.as_slice() } {
        let before = held.devices.len();
        for prepared in &group.devices {
            let Some(found) = find(claim, prepared, node, notes) else { continue };
            if held.devices.iter().any(|device| device.device == prepared.device) {
                continue;
            }
            for device in devices(claim, prepared, &found, allocation, node) {
                held.steps.extend(found.step.clone().map(Step::Known));
                held.devices.push(device);
            }
        }
        let devices = held.devices.get(before..).unwrap_or_default();
        held.steps.extend(shared(group, devices, allocation).into_iter().map(Step::Known));
        if let Some(daemon) = &group.mps {
            let devices = devices.iter().map(|device| device.device.clone()).collect();
            held.mps.push(AdoptedMps { daemon: daemon.clone(), devices });
            let deployment = format!("mps-control-daemon-{daemon}");
            notes.push(Note::MpsDeployment { claim: claim.clone(), deployment });
        }
    }
    held
}

/// Where nothing says what was prepared, it was what is allocated.
fn of_allocation(allocation: Option<&Allocation>) -> Group {
    let mut group = Group::default();
    for result in allocation.iter().flat_map(|allocation| &allocation.devices) {
        group.devices.push(Prepared {
            what: What::ByName,
            device: result.device.clone(),
            pool: Some(result.pool.clone()),
            requests: vec![result.request.to_string()],
            share_id: result.share_id.clone(),
        });
    }
    group
}

fn find(
    claim: &ClaimRef,
    prepared: &Prepared,
    node: &Node<'_>,
    notes: &mut Vec<Note>,
) -> Option<Found> {
    let device = || prepared.device.clone();
    let place = match (&prepared.what, node.inventory) {
        (What::Gpu(gpu), _) => return Some(Found { gpu: gpu.clone(), part: None, step: None }),
        (What::Passthrough, _) => {
            notes.push(Note::Passthrough { claim: claim.clone(), device: device() });
            return None;
        }
        (_, None) => None,
        (What::Mig { uuid, parent }, Some(inventory)) => {
            let place = Place::of_uuid(inventory, parent.as_ref(), uuid);
            place.and_then(|place| Some((place, place.device(Some(uuid))?)))
        }
        (What::ByName, Some(inventory)) => {
            if let Some(gpu) = whole_gpu(inventory, &prepared.device) {
                return Some(Found { gpu: gpu.uuid.clone(), part: None, step: None });
            }
            let place = Place::of_name(inventory, &prepared.device);
            place.and_then(|place| Some((place, place.device(None)?)))
        }
    };
    let Some((place, mig)) = place else {
        notes.push(Note::NotThere { claim: claim.clone(), device: device() });
        return None;
    };
    let gpu = place.gpu.uuid.clone();
    let placement = place.partition.placement;
    let made = match (node.mig, node.origins.get(&prepared.device)) {
        (AdoptedMig::Remove, _) | (AdoptedMig::Auto, Some(Origin::Made)) => true,
        (AdoptedMig::Keep, _) | (AdoptedMig::Auto, Some(Origin::Found)) => false,
        (AdoptedMig::Auto, None) => {
            let (claim, gpu) = (claim.clone(), gpu.clone());
            notes.push(Note::OriginUnknown { claim, device: device(), gpu });
            false
        }
    };
    if !made {
        let part = Some(HeldPart::Static { placement, device: mig });
        return Some(Found { gpu, part, step: None });
    }
    let step = KnownStep::CreatePartition {
        gpu: gpu.clone(),
        partition: place.partition,
        switch_mode: place.mode_is_free(),
        made: Some(mig),
    };
    Some(Found { gpu, part: Some(HeldPart::Partition(place.partition)), step: Some(step) })
}

/// The device, once for each share of it that the claim has.
fn devices(
    claim: &ClaimRef,
    prepared: &Prepared,
    found: &Found,
    allocation: Option<&Allocation>,
    node: &Node<'_>,
) -> Vec<HeldDevice> {
    let results = allocation.iter().flat_map(|allocation| &allocation.devices);
    let results: Vec<_> = results.filter(|result| result.device == prepared.device).collect();
    let mut shares: Vec<_> = results.iter().map(|result| result.share_id.clone()).collect();
    if shares.is_empty() {
        shares.push(prepared.share_id.clone());
    }
    shares.dedup();
    let device = |share_id: Option<String>| {
        let of_share = |result: &&&AllocatedDevice| result.share_id == share_id;
        let results: Vec<_> = results.iter().filter(of_share).collect();
        let mut requests: Vec<_> = results.iter().map(|result| result.request.clone()).collect();
        if requests.is_empty() {
            requests
                .extend(prepared.requests.iter().filter_map(|name| RequestName::new(name).ok()));
        }
        let pool = results.first().map(|result| result.pool.clone());
        Some(HeldDevice {
            requests,
            pool: pool.or_else(|| prepared.pool.clone()).unwrap_or_else(|| node.pool.clone()),
            device: prepared.device.clone(),
            gpu: found.gpu.clone(),
            part: found.part.clone(),
            admin: !results.is_empty() && results.iter().all(|result| result.admin),
            share: share_id.as_ref().map(|_| share(&results)),
            cdi_device: (node.cdi_device)(&claim.uid, &prepared.device, share_id.as_deref())?,
            share_id,
        })
    };
    shares.into_iter().filter_map(device).collect()
}

fn share(results: &[&&AllocatedDevice]) -> HeldShare {
    let memory = results.first().and_then(|result| result.consumed.get("memory")?.ceil());
    let memory_mib = memory.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0) >> 20;
    HeldShare { memory_mib, compute_percent: None }
}

/// What was set on whole GPUs for the processes that share them.
fn shared(
    group: &Group,
    devices: &[HeldDevice],
    allocation: Option<&Allocation>,
) -> Vec<KnownStep> {
    let whole =
        |device: &&HeldDevice| device.part.is_none() && !device.admin && device.share.is_none();
    let steps = devices.iter().filter(whole).filter_map(|device| {
        let gpu = device.gpu.clone();
        if group.mps.is_some() {
            // The incumbent puts back the default, whatever was there before.
            return Some(KnownStep::ExclusiveProcess { gpu, before: ComputeMode::Default });
        }
        let asked = time_slice(allocation, &device.device);
        let interval = match group.time_slice {
            Some(false) => None,
            Some(true) => Some(asked.unwrap_or_default()),
            None => asked.filter(|interval| *interval != Interval::Default),
        };
        Some(KnownStep::TimeSlice { gpu, interval: interval? })
    });
    steps.collect()
}

/// The time slice that the claim's configs ask for this device.
pub(super) fn time_slice(allocation: Option<&Allocation>, device: &DeviceName) -> Option<Interval> {
    match whole_gpu_config(allocation, device)?.sharing? {
        Sharing::TimeSlicing { interval } => Some(interval),
        Sharing::Mps(_) => None,
    }
}

/// The config in force for this device, where it can be read.
pub(super) fn whole_gpu_config(
    allocation: Option<&Allocation>,
    device: &DeviceName,
) -> Option<GpuConfig> {
    let allocation = allocation?;
    let result = allocation.devices.iter().find(|result| result.device == *device)?;
    match config_for(allocation, result, DeviceType::Gpu).ok()??.config {
        DeviceConfig::Gpu(config) => Some(config),
        DeviceConfig::Mig(_) | DeviceConfig::Vfio(_) => None,
    }
}
