//! A claim that the incumbent has begun and not ended (`PrepareStarted`): what of it may lie
//! on the GPUs, as steps to undo. The kubelet was told nothing, so nothing is lost; what a
//! completed claim owns, or somebody else may have made, stays.

use gpu_dra_model::config::{Interval, Sharing};
use gpu_dra_model::{ClaimRef, ComputeMode, GpuUuid, Partition, Placement};

use super::held::{Held, whole_gpu_config};
use super::mig::{AdoptedMig, Origin, Place, instances, partition, whole_gpu};
use super::note::Note;
use super::take_over::Node;
use crate::allocation::{AllocatedDevice, Allocation};
use crate::record::{HeldDevice, HeldPart, KnownStep, Record, Step};

/// What is known of the other claims.
pub(super) struct Others<'a> {
    /// The completed ones.
    pub(super) completed: &'a [Record],
    /// The places that begun ones name.
    pub(super) begun: &'a [(GpuUuid, Partition)],
    /// Some claims can't be understood, so anything may be theirs.
    pub(super) unknown: bool,
}

impl Others<'_> {
    fn hold(&self, gpu: &GpuUuid, placement: Option<Placement>) -> bool {
        let mut devices = self.completed.iter().flat_map(|record| &record.devices);
        devices.any(|device| {
            let part = device.part.as_ref().map(HeldPart::placement);
            let meets = part.zip(placement).is_none_or(|(a, b)| a.overlaps(b));
            device.gpu == *gpu && !device.admin && meets
        })
    }

    /// Whether an instance lies on the GPU that no claim names: then somebody makes them by
    /// hand there, since the incumbent destroys what it doesn't know.
    fn strangers_on(&self, place: &Place<'_>) -> bool {
        let gpu = &place.gpu.uuid;
        instances(place.gpu).iter().map(partition).any(|at| {
            let begun = self.begun.iter().any(|(on, begun)| on == gpu && *begun == at);
            !begun && !self.hold(gpu, Some(at.placement))
        })
    }
}

/// The places that the claim's results name.
pub(super) fn places(allocation: &Allocation, node: &Node<'_>) -> Vec<(GpuUuid, Partition)> {
    let Some(inventory) = node.inventory else { return Vec::new() };
    let places = allocation.devices.iter().filter_map(|r| Place::of_name(inventory, &r.device));
    places.map(|place| (place.gpu.uuid.clone(), place.partition)).collect()
}

/// What the claim may have left.
pub(super) fn begun(
    claim: &ClaimRef,
    allocation: &Allocation,
    node: &Node<'_>,
    others: &Others<'_>,
    notes: &mut Vec<Note>,
) -> Held {
    let mut held = Held::default();
    let Some(inventory) = node.inventory else { return held };
    for result in allocation.devices.iter().filter(|result| !result.admin) {
        let found = match whole_gpu(inventory, &result.device) {
            Some(gpu) if others.hold(&gpu.uuid, None) || others.unknown => None,
            Some(gpu) => settings(allocation, result, &gpu.uuid).map(|step| (step, None)),
            None => match Place::of_name(inventory, &result.device) {
                Some(place) if place.instance.is_some() => {
                    instance(claim, result, &place, node, others, notes)
                }
                _ => None,
            },
        };
        let Some((step, part)) = found else { continue };
        let cdi = (node.cdi_device)(&claim.uid, &result.device, None);
        let (Some(cdi_device), Some(gpu)) = (cdi, gpu_of(&step)) else { continue };
        held.steps.push(Step::Known(step));
        held.devices.push(HeldDevice {
            requests: vec![result.request.clone()],
            pool: result.pool.clone(),
            device: result.device.clone(),
            gpu,
            part,
            admin: false,
            share_id: None,
            share: None,
            cdi_device,
        });
    }
    held
}

fn instance(
    claim: &ClaimRef,
    result: &AllocatedDevice,
    place: &Place<'_>,
    node: &Node<'_>,
    others: &Others<'_>,
    notes: &mut Vec<Note>,
) -> Option<(KnownStep, Option<HeldPart>)> {
    let gpu = &place.gpu.uuid;
    if others.hold(gpu, Some(place.partition.placement)) {
        return None;
    }
    let own = match (node.mig, node.origins.get(&result.device)) {
        (AdoptedMig::Remove, _) | (AdoptedMig::Auto, Some(Origin::Made)) => true,
        (AdoptedMig::Keep, _) | (AdoptedMig::Auto, Some(Origin::Found)) => false,
        (AdoptedMig::Auto, None) => !others.strangers_on(place),
    };
    if !own || others.unknown {
        notes.push(Note::LeftAlone { claim: claim.clone(), device: result.device.clone() });
        return None;
    }
    let step = KnownStep::CreatePartition {
        gpu: gpu.clone(),
        partition: place.partition,
        switch_mode: place.mode_is_free(),
        made: None,
    };
    Some((step, Some(HeldPart::Partition(place.partition))))
}

/// What the config would have had set on a whole GPU.
fn settings(allocation: &Allocation, result: &AllocatedDevice, gpu: &GpuUuid) -> Option<KnownStep> {
    let gpu = gpu.clone();
    match whole_gpu_config(Some(allocation), &result.device)?.sharing? {
        Sharing::TimeSlicing { interval: Interval::Default } => None,
        Sharing::TimeSlicing { interval } => Some(KnownStep::TimeSlice { gpu, interval }),
        Sharing::Mps(_) => Some(KnownStep::ExclusiveProcess { gpu, before: ComputeMode::Default }),
    }
}

fn gpu_of(step: &KnownStep) -> Option<GpuUuid> {
    match step {
        KnownStep::CreatePartition { gpu, .. }
        | KnownStep::TimeSlice { gpu, .. }
        | KnownStep::ExclusiveProcess { gpu, .. } => Some(gpu.clone()),
        _ => None,
    }
}
