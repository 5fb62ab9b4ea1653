//! From an allocation to the record that is journaled before anything is done: which devices
//! the claim will hold and which steps that takes, or why not.

use std::collections::BTreeMap;

use gpu_dra_model::{BootId, CdiDeviceId, DeviceKind, DeviceName, GpuUuid, PoolName};

use crate::allocation::{AllocatedDevice, Allocation};
use crate::record::{HeldDevice, HeldPart, Phase, Record, VERSION};
use crate::refusal::Refusal;
use crate::resolve::{DeviceType, config_for, refuse_passthrough};
use crate::share;
use crate::steps::Steps;

/// What the node offers now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// This node's pool.
    pub pool: PoolName,
    /// The devices that answer now, by the names under which they are published.
    pub devices: BTreeMap<DeviceName, DeviceKind>,
    /// What a plan must know of the GPUs that answer now.
    pub gpus: BTreeMap<GpuUuid, GpuFacts>,
    /// The running kernel's boot.
    pub boot_id: BootId,
}

/// What a plan must know of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuFacts {
    /// Its MPS has no limits.
    pub before_volta: bool,
    /// Its memory, in MiB; 0 where it has none of its own.
    pub memory_mib: u64,
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
    refuse_passthrough(allocation)?;
    let mut devices: Vec<HeldDevice> = Vec::new();
    let mut steps = Steps::default();
    for (index, result) in allocation.devices.iter().enumerate() {
        let kind = known(allocation, node, result)?;
        if matches!(kind, DeviceKind::Monitor { .. }) && !result.admin {
            return Err(Refusal::ForMonitoring {
                claim: allocation.claim.clone(),
                device: result.device.clone(),
            });
        }
        let config = config_for(allocation, result, DeviceType::of(kind))?;
        let share = share::of(allocation, node, result, kind)?;
        match &share {
            _ if result.admin => {}
            Some(_) => steps.add_share(allocation, kind, config)?,
            None => steps.add(allocation, node, result, kind, config)?,
        }
        let gpu = kind.gpu().clone();
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
            part: part(kind),
            admin: result.admin,
            share_id: result.share_id.clone(),
            share,
            cdi_device,
        });
    }
    share::refuse_several_gpus(allocation, &devices)?;
    let held: Vec<_> = held.into_iter().collect();
    refuse_double_use(allocation, &devices, held.iter().copied())?;
    share::refuse_overuse(allocation, node, &devices, &held)?;
    Ok(Record {
        version: VERSION,
        claim: allocation.claim.clone(),
        phase: Phase::Preparing,
        boot_id: node.boot_id.clone(),
        devices,
        steps: steps.in_order(allocation),
        adopted: None,
        other: serde_json::Map::new(),
    })
}

fn part(kind: &DeviceKind) -> Option<HeldPart> {
    match kind {
        DeviceKind::Gpu { .. } | DeviceKind::Monitor { .. } => None,
        DeviceKind::StaticMig { placement, device, .. } => {
            Some(HeldPart::Static { placement: *placement, device: device.clone() })
        }
        DeviceKind::Partition { partition, .. } => Some(HeldPart::Partition(*partition)),
    }
}

fn known<'a>(
    allocation: &Allocation,
    node: &'a NodeView,
    result: &AllocatedDevice,
) -> Result<&'a DeviceKind, Refusal> {
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
