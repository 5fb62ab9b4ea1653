//! What a GPU reports by itself, as the driver tells it: NVML's events by name. Values only:
//! nothing here waits for events or judges them.

use gpu_dra_model::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use serde::{Deserialize, Serialize};

/// One event of a GPU (`nvmlEventData_t`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuEvent {
    /// The physical GPU.
    pub gpu: GpuUuid,
    /// What happened.
    pub kind: EventKind,
    /// The MIG instance that it happened to; None for the whole GPU, or where the driver
    /// can't tell.
    pub instance: Option<EventInstance>,
}

/// The MIG instance that an event names. The numbers are those of the moment: a later
/// instance may have them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventInstance {
    /// The GPU instance.
    pub gpu: GpuInstanceId,
    /// The compute instance in it; None for all of it.
    pub compute: Option<ComputeInstanceId>,
}

/// What happened (`nvmlEventType…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// A critical Xid with its number; 999 where the driver doesn't know it.
    Xid(u64),
    /// A memory error that ECC could not correct.
    DoubleBitEcc,
    /// Corrected memory errors in great number.
    SingleBitEccStorm,
    /// Memory was retired.
    DramRetirement,
    /// Memory should have been retired and could not.
    DramRetirementFailure,
    /// Poisoned data was consumed, and the damage contained.
    NonFatalPoison,
    /// Poisoned data was consumed, and the damage not contained.
    FatalPoison,
    /// The GPU can't be used any more.
    GpuUnavailable,
    /// The recovery action that the driver asks for has changed: take a reading.
    RecoveryAction,
    /// MIG mode or instances have changed.
    MigConfigChange,
}
