//! Which changes to the machine a claim's devices and configs need, and in which order.
//!
//! It says what is to be done, each thing once; it does nothing and looks at nothing.

use std::collections::BTreeMap;

use gpu_dra_model::config::{
    DeviceConfig, GpuConfig, Interval, MigDeviceConfig, MigSharing, MpsConfig, Sharing,
};
use gpu_dra_model::{ComputeMode, DeviceKind, DeviceName, GpuUuid, Shares};

use crate::allocation::{AllocatedDevice, Allocation};
use crate::plan::NodeView;
use crate::record::{KnownStep, Step};
use crate::refusal::Refusal;
use crate::resolve::Resolved;

/// The changes, as they are collected from the devices of one claim.
#[derive(Default)]
pub(crate) struct Steps {
    sharing: BTreeMap<GpuUuid, Shared>,
    modes: Vec<KnownStep>,
    partitions: Vec<KnownStep>,
    daemons: Vec<Daemon>,
    shares: Vec<KnownStep>,
}

/// How the processes on a whole GPU share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shared {
    AsItIs,
    TimeSlice(Interval),
    Mps,
}

/// One MPS daemon, for the devices of one config.
struct Daemon {
    index: usize,
    config: MpsConfig,
    devices: Vec<DeviceName>,
}

impl Steps {
    /// Adds what one device needs.
    ///
    /// # Errors
    /// What the GPU can't, or what contradicts another request of the claim.
    pub(crate) fn add(
        &mut self,
        allocation: &Allocation,
        node: &NodeView,
        result: &AllocatedDevice,
        kind: &DeviceKind,
        config: Option<Resolved>,
    ) -> Result<(), Refusal> {
        let (shared, mps) = match config {
            None => (Shared::AsItIs, None),
            Some(Resolved { config, index }) => sharing(config, index),
        };
        match kind {
            DeviceKind::Gpu { gpu, mig_may_be_on, .. } => {
                if *self.sharing.entry(gpu.clone()).or_insert(shared) != shared {
                    let (claim, gpu) = (allocation.claim.clone(), gpu.clone());
                    return Err(Refusal::Contradiction { claim, gpu });
                }
                if *mig_may_be_on {
                    add_once(&mut self.modes, KnownStep::MigModeOff { gpu: gpu.clone() });
                }
            }
            DeviceKind::StaticMig { .. } | DeviceKind::Monitor { .. } => {}
            DeviceKind::Partition { gpu, partition, mode_is_free } => {
                let step = KnownStep::CreatePartition {
                    gpu: gpu.clone(),
                    partition: *partition,
                    switch_mode: *mode_is_free,
                    made: None,
                };
                add_once(&mut self.partitions, step);
            }
        }
        if let Some((config, index)) = mps {
            refuse_old_mps(allocation, node, kind.gpu(), &config)?;
            self.serve(config, index, result.device.clone());
        }
        Ok(())
    }

    /// Adds what a share of a GPU needs.
    ///
    /// # Errors
    /// A config that says how to share what is shared already.
    pub(crate) fn add_share(
        &mut self,
        allocation: &Allocation,
        kind: &DeviceKind,
        config: Option<Resolved>,
    ) -> Result<(), Refusal> {
        let DeviceKind::Gpu { gpu, shares, .. } = kind else { return Ok(()) };
        let asked = config.map(|Resolved { config, index }| sharing(config, index));
        if asked.is_some_and(|(shared, mps)| shared != Shared::AsItIs || mps.is_some()) {
            let (claim, gpu) = (allocation.claim.clone(), gpu.clone());
            return Err(Refusal::ConfigOnShare { claim, gpu });
        }
        if *shares == Shares::Mps {
            let before = ComputeMode::default();
            add_once(&mut self.shares, KnownStep::ShareDaemon { gpu: gpu.clone(), before });
        }
        Ok(())
    }

    /// One daemon serves all devices of a config, and of others that say the same: a
    /// container can use one daemon alone. Limits by number count the devices of one config.
    fn serve(&mut self, config: MpsConfig, index: usize, device: DeviceName) {
        let counts = !config.default_per_device_pinned_memory_limit.is_empty();
        let same =
            |daemon: &&mut Daemon| daemon.config == config && (!counts || daemon.index == index);
        match self.daemons.iter_mut().find(same) {
            Some(daemon) if daemon.devices.contains(&device) => {}
            Some(daemon) => daemon.devices.push(device),
            None => self.daemons.push(Daemon { index, config, devices: vec![device] }),
        }
    }

    /// In the order in which they are done: what a device is, then how it is shared, then who
    /// serves it. A large GPU instance is made before the small ones of the same claim, which
    /// is the order that the driver itself asks for.
    pub(crate) fn in_order(self, allocation: &Allocation) -> Vec<Step> {
        let mut partitions = self.partitions;
        partitions.sort_by_key(|step| match step {
            KnownStep::CreatePartition { partition, .. } => {
                std::cmp::Reverse(partition.placement.size)
            }
            _ => std::cmp::Reverse(0),
        });
        let shared = self.sharing.into_iter().filter_map(|(gpu, shared)| match shared {
            Shared::AsItIs => None,
            Shared::TimeSlice(interval) => Some(KnownStep::TimeSlice { gpu, interval }),
            Shared::Mps => {
                Some(KnownStep::ExclusiveProcess { gpu, before: ComputeMode::default() })
            }
        });
        let daemons =
            self.daemons.into_iter().enumerate().map(|(number, daemon)| KnownStep::MpsDaemon {
                daemon: format!("{}-{number}", allocation.claim.uid),
                devices: daemon.devices,
                config: daemon.config,
            });
        let steps = partitions.into_iter().chain(self.modes).chain(shared).chain(daemons);
        let steps = steps.chain(self.shares);
        steps.map(Step::Known).collect()
    }
}

/// Two requests of a claim can't be given one device, but a malformed allocation can say so.
fn add_once(steps: &mut Vec<KnownStep>, step: KnownStep) {
    if !steps.contains(&step) {
        steps.push(step);
    }
}

/// How the config has processes share the device; `Default` leaves the time slice alone,
/// since touching it fails on GPUs without one.
fn sharing(config: DeviceConfig, index: usize) -> (Shared, Option<(MpsConfig, usize)>) {
    match config {
        DeviceConfig::Gpu(GpuConfig { sharing: Some(sharing) }) => match sharing {
            Sharing::TimeSlicing { interval: Interval::Default } => (Shared::AsItIs, None),
            Sharing::TimeSlicing { interval } => (Shared::TimeSlice(interval), None),
            Sharing::Mps(mps) => (Shared::Mps, Some((mps, index))),
        },
        DeviceConfig::Mig(MigDeviceConfig { sharing: Some(MigSharing::Mps(mps)) }) => {
            (Shared::AsItIs, Some((mps, index)))
        }
        // The incumbent takes time-slicing for MIG devices and sets nothing either.
        _ => (Shared::AsItIs, None),
    }
}

fn refuse_old_mps(
    allocation: &Allocation,
    node: &NodeView,
    gpu: &GpuUuid,
    config: &MpsConfig,
) -> Result<(), Refusal> {
    let limited = config.default_active_thread_percentage.is_some()
        || config.default_pinned_device_memory_limit.is_some()
        || !config.default_per_device_pinned_memory_limit.is_empty();
    let what = match (limited, config.multi_user) {
        (true, _) => "limits",
        (_, true) => "multiUser",
        _ => return Ok(()),
    };
    if node.gpus.get(gpu).is_some_and(|facts| facts.before_volta) {
        let (claim, gpu) = (allocation.claim.clone(), gpu.clone());
        return Err(Refusal::MpsTooOld { claim, gpu, what });
    }
    Ok(())
}
