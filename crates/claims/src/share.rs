//! Shares of a GPU: which results are one, and the rules that the node is the last to hold.

use std::collections::BTreeMap;

use gpu_dra_model::{DeviceKind, GpuUuid, RequestName, Shares};

use crate::allocation::{AllocatedDevice, Allocation};
use crate::plan::NodeView;
use crate::record::{HeldDevice, HeldShare, Record};
use crate::refusal::Refusal;

/// The share that this result is; None where it is all of a device.
///
/// # Errors
/// A share of something that isn't given out in shares.
pub(crate) fn of(
    allocation: &Allocation,
    node: &NodeView,
    result: &AllocatedDevice,
    kind: &DeviceKind,
) -> Result<Option<HeldShare>, Refusal> {
    let DeviceKind::Gpu { gpu, shares, .. } = kind else { return Ok(None) };
    let whole = node.gpus.get(gpu).map_or(0, |facts| facts.memory_mib);
    let memory = result.consumed.get("memory").and_then(|memory| memory.ceil());
    let memory_mib = memory.and_then(|bytes| u64::try_from(bytes).ok()).map(|bytes| bytes >> 20);
    let Some(memory_mib) = memory_mib.filter(|mebibytes| *mebibytes < whole) else {
        return Ok(None);
    };
    if *shares == Shares::Off {
        return Err(Refusal::NotInShares {
            claim: allocation.claim.clone(),
            device: result.device.clone(),
        });
    }
    let percent = result.consumed.get("computePercent").and_then(|percent| percent.ceil());
    let percent = percent.and_then(|percent| u8::try_from(percent).ok());
    Ok(Some(HeldShare { memory_mib, compute_percent: percent.filter(|n| (1..=100).contains(n)) }))
}

/// A container can use one MPS daemon alone, and each shared GPU has its own.
///
/// # Errors
/// A request with shares of two GPUs.
pub(crate) fn refuse_several_gpus(
    allocation: &Allocation,
    devices: &[HeldDevice],
) -> Result<(), Refusal> {
    let mut of_request: BTreeMap<&RequestName, &GpuUuid> = BTreeMap::new();
    for device in devices.iter().filter(|device| device.share.is_some()) {
        for request in &device.requests {
            if of_request.insert(request, &device.gpu).is_some_and(|other| *other != device.gpu) {
                return Err(Refusal::SharesOfSeveralGpus {
                    claim: allocation.claim.clone(),
                    request: request.clone(),
                });
            }
        }
    }
    Ok(())
}

/// The scheduler counts what shares take; a stale cache of it must not overcommit a GPU.
///
/// # Errors
/// The first GPU that would be given out beyond its memory or its threads.
pub(crate) fn refuse_overuse(
    allocation: &Allocation,
    node: &NodeView,
    devices: &[HeldDevice],
    held: &[&Record],
) -> Result<(), Refusal> {
    let others = held.iter().filter(|record| record.claim.uid != allocation.claim.uid);
    let others: Vec<_> = others.flat_map(|record| &record.devices).collect();
    for device in devices.iter().filter(|device| device.share.is_some()) {
        let all = devices.iter().chain(others.iter().copied());
        let on_it = all.filter(|other| other.gpu == device.gpu).filter_map(|other| other.share);
        let taken = on_it.fold((0_u64, 0_u32), |(memory, percent), share| {
            let more = u32::from(share.compute_percent.unwrap_or(0));
            (memory.saturating_add(share.memory_mib), percent.saturating_add(more))
        });
        let whole = node.gpus.get(&device.gpu).map_or(0, |facts| facts.memory_mib);
        if taken.0 > whole || taken.1 > 100 {
            return Err(Refusal::Overuse {
                claim: allocation.claim.clone(),
                device: device.device.clone(),
                memory_mib: taken.0,
                whole_mib: whole,
                percent: taken.1,
            });
        }
    }
    Ok(())
}
