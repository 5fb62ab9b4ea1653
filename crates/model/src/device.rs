//! What a published device is, beside the name under which it is published: what `slices`
//! decides when it builds the pool, and what a claim's plan is made from.
//!
//! It says what there is to do, not how.

use serde::{Deserialize, Serialize};

use crate::ids::{ComputeInstanceId, GpuInstanceId, GpuUuid, MigUuid};
use crate::inventory::Placement;

/// What stands behind a device of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceKind {
    /// A whole GPU.
    Gpu {
        /// The GPU.
        gpu: GpuUuid,
        /// Its MIG mode is ours to switch and may be on, and a GPU in MIG mode runs no CUDA
        /// as a whole: it must be made sure that the mode is off.
        mig_may_be_on: bool,
        /// Whether several claims may each have a share of it.
        shares: Shares,
    },
    /// A MIG device that exists, made by others: never ours to destroy.
    StaticMig {
        /// The GPU.
        gpu: GpuUuid,
        /// Where the GPU instance lies.
        placement: Placement,
        /// The MIG device.
        device: MigDevice,
    },
    /// A MIG device that is made when a claim is prepared.
    Partition {
        /// The GPU.
        gpu: GpuUuid,
        /// Which GPU instance is made where.
        partition: Partition,
        /// The GPU's MIG mode is ours to switch: on for the first partition, off after the last.
        mode_is_free: bool,
    },
    /// A whole GPU to look at, for claims with admin access alone. It stands beside a GPU of
    /// which several claims may have parts: kube-scheduler counts counters and capacity for
    /// admin access too (kubernetes/kubernetes#140729), so the GPU itself can't be watched
    /// while it is used.
    Monitor {
        /// The GPU.
        gpu: GpuUuid,
    },
}

impl DeviceKind {
    /// The physical GPU.
    #[must_use]
    pub fn gpu(&self) -> &GpuUuid {
        match self {
            Self::Gpu { gpu, .. }
            | Self::StaticMig { gpu, .. }
            | Self::Partition { gpu, .. }
            | Self::Monitor { gpu } => gpu,
        }
    }
}

/// Whether and how a GPU is given out in shares (consumable capacity, KEP-5075).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shares {
    /// One claim has all of it.
    #[default]
    Off,
    /// Several claims have parts of it, and MPS holds each to its part.
    Mps,
    /// Several claims have parts of it, which the scheduler counts and nothing enforces.
    Accounted,
}

/// A GPU instance as it can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// Its profile, an id of [`MigProfile`](crate::inventory::MigProfile).
    pub profile_id: u32,
    /// Exactly where.
    pub placement: Placement,
}

/// A compute instance in its GPU instance, as the driver and programs know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigDevice {
    /// The GPU instance.
    pub instance: GpuInstanceId,
    /// The compute instance in it.
    pub compute: ComputeInstanceId,
    /// The UUID that programs see.
    pub uuid: MigUuid,
}

/// Who may use a GPU for computing (`nvmlComputeMode_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ComputeMode {
    /// Any number of processes.
    #[default]
    Default,
    /// One thread; withdrawn from CUDA, but old settings survive.
    ExclusiveThread,
    /// None.
    Prohibited,
    /// One process; what an MPS server wants.
    ExclusiveProcess,
}
