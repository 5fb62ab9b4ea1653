//! From an allocation to the record that is journaled before anything is done: which devices
//! the claim will hold and which steps that takes, or why not.

use std::collections::BTreeMap;

use gpu_dra_model::config::{DeviceConfig, Interval, Sharing};
use gpu_dra_model::{BootId, CdiDeviceId, DeviceName, GpuUuid, PoolName};

use crate::allocation::{AllocatedDevice, Allocation};
use crate::record::{HeldDevice, KnownStep, Phase, Record, Step, VERSION};
use crate::refusal::Refusal;
use crate::resolve::{DeviceType, config_for};

/// What the node offers now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// This node's pool.
    pub pool: PoolName,
    /// The devices that answer now, by the names under which they are published.
    pub devices: BTreeMap<DeviceName, KnownDevice>,
    /// The running kernel's boot.
    pub boot_id: BootId,
}

/// A device as a plan needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDevice {
    /// The physical GPU.
    pub gpu: GpuUuid,
}

/// Plans the claim. `held` are the other claims' records, `cdi_device` names a device of
/// this claim for the runtime.
///
/// # Errors
/// The first rule that the claim breaks.
pub fn plan<'a>(
    allocation: &Allocation,
    node: &NodeView,
    held: impl IntoIterator<Item = &'a Record>,
    cdi_device: impl Fn(&AllocatedDevice) -> Result<CdiDeviceId, gpu_dra_model::IdError>,
) -> Result<Record, Refusal> {
    let mut devices: Vec<HeldDevice> = Vec::new();
    let mut intervals: BTreeMap<GpuUuid, Option<Interval>> = BTreeMap::new();
    for (index, result) in allocation.devices.iter().enumerate() {
        let gpu = known(allocation, node, result)?.gpu.clone();
        let config = config_for(allocation, result, DeviceType::Gpu)?;
        if !result.admin {
            let interval = interval(allocation, config.as_ref())?;
            if *intervals.entry(gpu.clone()).or_insert(interval) != interval {
                return Err(Refusal::Contradiction { claim: allocation.claim.clone(), gpu });
            }
        }
        let same = |other: &&mut HeldDevice| {
            other.device == result.device && other.share_id == result.share_id
        };
        if let Some(device) = devices.iter_mut().find(same) {
            // Two admin requests may pick one device: it is one CDI device for both.
            device.admin &= result.admin;
            device.requests.push(result.request.clone());
            continue;
        }
        let cdi_device = cdi_device(result).map_err(|error| Refusal::Malformed {
            claim: allocation.claim.clone(),
            index,
            reason: error.to_string(),
        })?;
        devices.push(HeldDevice {
            requests: vec![result.request.clone()],
            pool: result.pool.clone(),
            device: result.device.clone(),
            gpu,
            admin: result.admin,
            share_id: result.share_id.clone(),
            cdi_device,
        });
    }
    refuse_double_use(allocation, &devices, held)?;
    let steps = intervals
        .into_iter()
        .filter_map(|(gpu, interval)| {
            Some(Step::Known(KnownStep::TimeSlice { gpu, interval: interval? }))
        })
        .collect();
    Ok(Record {
        version: VERSION,
        claim: allocation.claim.clone(),
        phase: Phase::Preparing,
        boot_id: node.boot_id.clone(),
        devices,
        steps,
        other: serde_json::Map::new(),
    })
}

fn known<'a>(
    allocation: &Allocation,
    node: &'a NodeView,
    result: &AllocatedDevice,
) -> Result<&'a KnownDevice, Refusal> {
    if result.pool != node.pool {
        return Err(Refusal::OtherPool {
            claim: allocation.claim.clone(),
            pool: result.pool.clone(),
            ours: node.pool.clone(),
        });
    }
    node.devices.get(&result.device).ok_or_else(|| Refusal::UnknownDevice {
        claim: allocation.claim.clone(),
        device: result.device.clone(),
    })
}

/// The time slice to set; None leaves the knob alone, which is also what `Default` means:
/// touching it fails on GPUs without one.
fn interval(
    allocation: &Allocation,
    config: Option<&DeviceConfig>,
) -> Result<Option<Interval>, Refusal> {
    let Some(DeviceConfig::Gpu(config)) = config else { return Ok(None) };
    match &config.sharing {
        None => Ok(None),
        Some(Sharing::TimeSlicing { interval: Interval::Default }) => Ok(None),
        Some(Sharing::TimeSlicing { interval }) => Ok(Some(*interval)),
        Some(Sharing::Mps(_)) => Err(Refusal::MpsNotServed(allocation.claim.clone())),
    }
}

/// The scheduler can hand out a device twice (a force-deleted pod, a stale cache): the node
/// is the last to say no.
fn refuse_double_use<'a>(
    allocation: &Allocation,
    devices: &[HeldDevice],
    held: impl IntoIterator<Item = &'a Record>,
) -> Result<(), Refusal> {
    for record in held.into_iter().filter(|record| record.claim.uid != allocation.claim.uid) {
        for theirs in &record.devices {
            if let Some(ours) = devices.iter().find(|ours| ours.excludes(theirs)) {
                return Err(Refusal::InUse {
                    device: ours.device.clone(),
                    holder: record.claim.clone(),
                    holder_uid: record.claim.uid.clone(),
                });
            }
        }
    }
    Ok(())
}
