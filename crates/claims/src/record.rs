//! What the journal keeps of one claim, and its format. One small JSON file a claim, with a
//! version and no checksum: fields that a newer version adds are kept, not refused.

use gpu_dra_model::config::{Interval, MpsConfig};
use gpu_dra_model::{
    BootId, CdiDeviceId, ClaimRef, ComputeMode, DeviceName, GpuUuid, MigDevice, Partition,
    Placement, PoolName, RequestName,
};
use serde::{Deserialize, Serialize};

pub use crate::adopted::{Adopted, AdoptedMps};

/// The format that this version writes. Raise it only when an older reader would do harm.
pub const VERSION: u32 = 1;

/// One claim in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Format of the file; see [`VERSION`].
    pub version: u32,
    /// The claim.
    pub claim: ClaimRef,
    /// How far it got.
    pub phase: Phase,
    /// The boot in which the steps were done: after another one nothing of the hardware's
    /// state can be assumed.
    pub boot_id: BootId,
    /// What it holds.
    pub devices: Vec<HeldDevice>,
    /// What was or will be done for it, in order; undone in reverse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Set where another driver prepared the claim and this one took it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adopted>,
    /// Fields of a newer version, kept as they are.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// How far a claim got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Steps may be done, half done or not done; the kubelet was told nothing.
    Preparing,
    /// All steps are done and the CDI spec is written.
    Prepared,
    /// Steps may be undone, half undone or not undone.
    Unpreparing,
}

/// One device that a claim holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDevice {
    /// The requests it serves, as the allocation names them.
    pub requests: Vec<RequestName>,
    /// Its pool.
    pub pool: PoolName,
    /// Its name in the pool.
    pub device: DeviceName,
    /// The physical GPU behind it: names may move, this doesn't.
    pub gpu: GpuUuid,
    /// The part of it that is held; None for the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<HeldPart>,
    /// Held for monitoring: others may hold it too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// Which allocation of it, where several claims may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// The part of it that this allocation has; None where it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<HeldShare>,
    /// The name under which the container runtime finds it.
    pub cdi_device: CdiDeviceId,
}

impl HeldDevice {
    /// Whether two claims may hold these two at once.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        let shares = self.share.is_some()
            && other.share.is_some()
            && self.share_id.is_some()
            && self.share_id != other.share_id;
        self.gpu == other.gpu
            && !self.admin
            && !other.admin
            && !shares
            && HeldPart::meet(self.part.as_ref(), other.part.as_ref())
    }
}

/// A share of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldShare {
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// Its part of the GPU's threads, 1 to 100; None for what is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_percent: Option<u8>,
}

/// The part of a GPU that a claim holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum HeldPart {
    /// A MIG device that others made.
    Static {
        /// Where its GPU instance lies.
        placement: Placement,
        /// The MIG device.
        device: MigDevice,
    },
    /// One that is made for the claim, by [`KnownStep::CreatePartition`].
    Partition(Partition),
}

impl HeldPart {
    /// Where it lies.
    #[must_use]
    pub fn placement(&self) -> Placement {
        match self {
            Self::Static { placement, .. } => *placement,
            Self::Partition(partition) => partition.placement,
        }
    }

    /// Whether two parts of one GPU have anything in common; None is the whole of it.
    fn meet(ours: Option<&Self>, theirs: Option<&Self>) -> bool {
        match (ours, theirs) {
            (None, _) | (_, None) => true,
            // Several compute instances may lie in one GPU instance.
            (Some(Self::Static { device: a, .. }), Some(Self::Static { device: b, .. })) => {
                (a.instance, a.compute) == (b.instance, b.compute)
            }
            (Some(a), Some(b)) => a.placement().overlaps(b.placement()),
        }
    }
}

/// One change to the machine beside the CDI spec, which every prepared claim has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Step {
    /// One that this version knows how to do and undo.
    Known(KnownStep),
    /// One that a newer version wrote.
    Unknown(serde_json::Value),
}

/// The steps that this version knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum KnownStep {
    /// Sets the GPU's time slice. Undone by setting the default.
    TimeSlice {
        /// The GPU.
        gpu: GpuUuid,
        /// The interval asked for.
        interval: Interval,
    },
    /// Makes sure that the GPU's MIG mode is off, or it runs no CUDA as a whole. Has no undo.
    MigModeOff {
        /// The GPU.
        gpu: GpuUuid,
    },
    /// Makes a GPU instance and one compute instance that has all of it. Undone by removing
    /// both.
    CreatePartition {
        /// The GPU.
        gpu: GpuUuid,
        /// What and where.
        partition: Partition,
        /// MIG mode is switched on for it, and off when it was the GPU's last.
        switch_mode: bool,
        /// What was made; None until the claim is prepared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made: Option<MigDevice>,
    },
    /// Lets one process alone compute on the GPU, which an MPS server wants. Undone by the
    /// mode that was there before.
    ExclusiveProcess {
        /// The GPU.
        gpu: GpuUuid,
        /// What to put back.
        #[serde(default)]
        before: ComputeMode,
    },
    /// Has the MPS host run a control daemon for these devices. Undone by ending it.
    MpsDaemon {
        /// The daemon's name on the node.
        daemon: String,
        /// The devices that it serves.
        devices: Vec<DeviceName>,
        /// The limits of its clients.
        config: MpsConfig,
    },
    /// Has the MPS host run the one daemon that serves all shares of a GPU, which then lets
    /// one process alone compute on it. Undone when no other claim has a share of the GPU.
    ShareDaemon {
        /// The GPU.
        gpu: GpuUuid,
        /// The compute mode to put back.
        #[serde(default)]
        before: ComputeMode,
    },
}

impl KnownStep {
    /// Whether it leaves something that has to be undone.
    #[must_use]
    pub fn has_undo(&self) -> bool {
        !matches!(self, Self::MigModeOff { .. })
    }

    /// The step as it was planned, without what came of it.
    #[must_use]
    pub fn as_planned(&self) -> Self {
        match self {
            Self::CreatePartition { gpu, partition, switch_mode, .. } => Self::CreatePartition {
                gpu: gpu.clone(),
                partition: *partition,
                switch_mode: *switch_mode,
                made: None,
            },
            Self::ExclusiveProcess { gpu, .. } => {
                Self::ExclusiveProcess { gpu: gpu.clone(), before: ComputeMode::default() }
            }
            Self::ShareDaemon { gpu, .. } => {
                Self::ShareDaemon { gpu: gpu.clone(), before: ComputeMode::default() }
            }
            step => step.clone(),
        }
    }

    /// Whether other claims may have the very same step, so that it is undone with the last.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::ShareDaemon { .. })
    }
}

/// The name of the daemon that serves all shares of a GPU.
#[must_use]
pub fn share_daemon(gpu: &GpuUuid) -> String {
    gpu.as_str().to_ascii_lowercase()
}

impl Record {
    /// The file's bytes.
    ///
    /// # Errors
    /// None that these types can cause; serde's signature.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads a file of this or another version.
    ///
    /// # Errors
    /// When it is no record: the caller moves the file aside and says so.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The steps, if this version knows all of them.
    #[must_use]
    pub fn known_steps(&self) -> Option<Vec<&KnownStep>> {
        fn known(step: &Step) -> Option<&KnownStep> {
            match step {
                Step::Known(step) => Some(step),
                Step::Unknown(_) => None,
            }
        }
        if self.version > VERSION {
            return None;
        }
        self.steps.iter().map(known).collect()
    }

    /// Whether the other is the same plan, whatever came of either.
    #[must_use]
    pub fn plans_the_same(&self, other: &Self) -> bool {
        let planned = |record: &Self| {
            let steps: Vec<_> =
                record.known_steps()?.into_iter().map(KnownStep::as_planned).collect();
            Some(steps)
        };
        self.devices == other.devices
            && planned(self).is_some_and(|ours| planned(other) == Some(ours))
    }

    /// The MIG device that was made for the claim on this part of a GPU.
    #[must_use]
    pub fn made(&self, on: &GpuUuid, at: Partition) -> Option<&MigDevice> {
        self.known_steps()?.into_iter().find_map(|step| match step {
            KnownStep::CreatePartition { gpu, partition, made, .. }
                if gpu == on && *partition == at =>
            {
                made.as_ref()
            }
            _ => None,
        })
    }

    /// The MPS daemon that serves this device of the claim.
    #[must_use]
    pub fn mps_daemon(&self, of: &HeldDevice) -> Option<String> {
        self.known_steps()?.into_iter().find_map(|step| match step {
            KnownStep::MpsDaemon { daemon, devices, .. } if devices.contains(&of.device) => {
                Some(daemon.clone())
            }
            KnownStep::ShareDaemon { gpu, .. } if *gpu == of.gpu && of.share.is_some() => {
                Some(share_daemon(gpu))
            }
            _ => None,
        })
    }

    /// Whether it has this very step, whatever came of it.
    #[must_use]
    pub fn has_step(&self, step: &KnownStep) -> bool {
        let known = self.known_steps().unwrap_or_default();
        known.into_iter().any(|other| other.as_planned() == step.as_planned())
    }

    /// The GPUs that it holds or changes, each once, in the order in which they are locked.
    #[must_use]
    pub fn gpus(&self) -> Vec<&GpuUuid> {
        let mut gpus: Vec<_> = self.devices.iter().map(|device| &device.gpu).collect();
        gpus.sort();
        gpus.dedup();
        gpus
    }
}
