//! From an allocation to the record that is journaled before anything is done: which devices
//! the claim will hold and which steps that takes, or why not.

use std::collections::BTreeMap;

use gpu_dra_model::config::{DeviceConfig, Interval, MigSharing, Sharing};
use gpu_dra_model::{BootId, CdiDeviceId, DeviceKind, DeviceName, GpuUuid, PoolName};

use crate::allocation::{AllocatedDevice, Allocation};
use crate::record::{HeldDevice, HeldPart, KnownStep, Phase, Record, Step, VERSION};
use crate::refusal::Refusal;
use crate::resolve::{DeviceType, config_for};

/// What the node offers now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// This node's pool.
    pub pool: PoolName,
    /// The devices that answer now, by the names under which they are published.
    pub devices: BTreeMap<DeviceName, DeviceKind>,
    /// The running kernel's boot.
    pub boot_id: BootId,
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
        if !result.admin {
            steps.add(allocation, kind, config.as_ref())?;
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
            cdi_device,
        });
    }
    refuse_double_use(allocation, &devices, held)?;
    Ok(Record {
        version: VERSION,
        claim: allocation.claim.clone(),
        phase: Phase::Preparing,
        boot_id: node.boot_id.clone(),
        devices,
        steps: steps.in_order(),
        other: serde_json::Map::new(),
    })
}

/// The changes that a claim needs, as they are collected from its devices.
#[derive(Default)]
struct Steps {
    intervals: BTreeMap<GpuUuid, Option<Interval>>,
    others: Vec<KnownStep>,
}

impl Steps {
    fn add(
        &mut self,
        allocation: &Allocation,
        kind: &DeviceKind,
        config: Option<&DeviceConfig>,
    ) -> Result<(), Refusal> {
        let interval = interval(allocation, config)?;
        match kind {
            DeviceKind::Gpu { gpu, mig_may_be_on } => {
                if *self.intervals.entry(gpu.clone()).or_insert(interval) != interval {
                    let (claim, gpu) = (allocation.claim.clone(), gpu.clone());
                    return Err(Refusal::Contradiction { claim, gpu });
                }
                if *mig_may_be_on {
                    self.add_once(KnownStep::MigModeOff { gpu: gpu.clone() });
                }
            }
            DeviceKind::StaticMig { .. } | DeviceKind::Monitor { .. } => {}
            DeviceKind::Partition { gpu, partition, mode_is_free } => {
                self.add_once(KnownStep::CreatePartition {
                    gpu: gpu.clone(),
                    partition: *partition,
                    switch_mode: *mode_is_free,
                    made: None,
                });
            }
        }
        Ok(())
    }

    /// Two requests of a claim can't be given one device, but a malformed allocation can
    /// say so, and a step must be there once.
    fn add_once(&mut self, step: KnownStep) {
        if !self.others.contains(&step) {
            self.others.push(step);
        }
    }

    /// GPU instances first: a large one is made before the small ones of the same claim, which
    /// is the order that the driver itself asks for.
    fn in_order(self) -> Vec<Step> {
        let mut steps = self.others;
        steps.sort_by_key(|step| match step {
            KnownStep::CreatePartition { partition, .. } => {
                (0, std::cmp::Reverse(partition.placement.size))
            }
            _ => (1, std::cmp::Reverse(0)),
        });
        let slices = self
            .intervals
            .into_iter()
            .filter_map(|(gpu, interval)| Some(KnownStep::TimeSlice { gpu, interval: interval? }));
        steps.extend(slices);
        steps.into_iter().map(Step::Known).collect()
    }
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

/// The time slice to set; None leaves the knob alone, which is also what `Default` means:
/// touching it fails on GPUs without one.
fn interval(
    allocation: &Allocation,
    config: Option<&DeviceConfig>,
) -> Result<Option<Interval>, Refusal> {
    let mps = || Err(Refusal::MpsNotServed(allocation.claim.clone()));
    match config {
        Some(DeviceConfig::Gpu(config)) => match &config.sharing {
            None | Some(Sharing::TimeSlicing { interval: Interval::Default }) => Ok(None),
            Some(Sharing::TimeSlicing { interval }) => Ok(Some(*interval)),
            Some(Sharing::Mps(_)) => mps(),
        },
        // The incumbent takes time-slicing for MIG devices and sets nothing either.
        Some(DeviceConfig::Mig(config)) => match &config.sharing {
            None | Some(MigSharing::TimeSlicing) => Ok(None),
            Some(MigSharing::Mps(_)) => mps(),
        },
        _ => Ok(None),
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
