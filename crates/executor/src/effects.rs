//! The acts of a claim beside the journal, behind one trait: hardware steps and the content
//! of the CDI spec. The node agent has the real side, tests a simulated one.

use gpu_dra_claims::{KnownStep, Record};
use gpu_dra_host::ProcessError;
use gpu_dra_model::{GpuInstanceId, GpuUuid, MigDevice, MigUuid, Placement};

/// An act that failed.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The GPU doesn't answer now.
    #[error(
        "GPU {0} doesn't answer NVML now; see the node agent's log and `nvidia-smi` on the node"
    )]
    GpuGone(GpuUuid),
    /// The driver refuses a time slice on this GPU.
    #[error(
        "GPU {gpu} can't set a time slice ({said}); use interval Default or a Volta or newer GPU"
    )]
    TimeSliceUnsupported {
        /// The GPU.
        gpu: GpuUuid,
        /// The driver's words, one line.
        said: String,
    },
    /// nvidia-smi failed otherwise.
    #[error("time slice of {gpu} not set: nvidia-smi ended with {code}: {said}")]
    TimeSliceFailed {
        /// The GPU.
        gpu: GpuUuid,
        /// Its exit code, or `a signal`.
        code: String,
        /// Its words, one line.
        said: String,
    },
    /// nvidia-smi can't be run.
    #[error("time slice needs the driver's nvidia-smi: {0}")]
    Process(#[from] ProcessError),
    /// A GPU instance of somebody else is where the claim's device should be.
    #[error(
        "{gpu} holds GPU instance {instance} at memory slices {}-{}, which no claim made; remove it with nvidia-smi mig -dgi, or set the GPU's MIG policy to static",
        placement.start,
        placement.slices().end.saturating_sub(1)
    )]
    ForeignInstance {
        /// The GPU.
        gpu: GpuUuid,
        /// The instance.
        instance: GpuInstanceId,
        /// Where it lies.
        placement: Placement,
    },
    /// A MIG device that others made isn't there any more.
    #[error("MIG device {uuid} of {gpu} is gone; delete the pod to have it rescheduled")]
    MigDeviceGone {
        /// The GPU.
        gpu: GpuUuid,
        /// The MIG device.
        uuid: MigUuid,
    },
    /// An admin claim watches a partition that nobody has.
    #[error("no MIG device is at memory slice {start} of {gpu} now; there is nothing to watch")]
    NothingToWatch {
        /// The GPU.
        gpu: GpuUuid,
        /// Where it would lie.
        start: u32,
    },
    /// The GPU refused a partition; nothing is left of the attempt.
    #[error("MIG device not made: {0}")]
    PartitionNotMade(String),
    /// The GPU refused a partition, and what was made of it already can't be removed now.
    #[error("MIG device half made: {0}; the rest is removed at the next attempt")]
    PartitionHalfMade(String),
    /// The GPU keeps the partition.
    #[error("MIG device not removed: {0}")]
    PartitionNotRemoved(String),
    /// The GPU stays in MIG mode and so runs no CUDA as a whole.
    #[error("MIG mode not switched off: {0}")]
    MigModeStays(String),
    /// The GPU can't be asked for its GPU instances.
    #[error("MIG devices not read: {0}")]
    MigNotRead(String),
    /// The GPU refuses a compute mode.
    #[error("compute mode of {gpu} not set: {said}")]
    ComputeMode {
        /// The GPU.
        gpu: GpuUuid,
        /// What NVML said.
        said: String,
    },
    /// The MPS host was never reached, so it runs nothing for the claim.
    #[error("MPS daemon: {0}")]
    MpsAway(String),
    /// The MPS host doesn't run the claim's daemon.
    #[error("MPS daemon: {0}")]
    Mps(String),
    /// The driver's files or device nodes are not complete.
    #[error("{0}")]
    DriverFiles(String),
    /// The spec that would be written breaks a rule of CDI.
    #[error("CDI spec: {0}; this is a bug in the node agent")]
    Spec(#[from] gpu_dra_cdi::SpecError),
}

impl EffectError {
    /// Whether a step that failed so has left the machine as it was, so that there is nothing
    /// of it to undo. Undoing it would remove what somebody else has put in its place.
    #[must_use]
    pub fn leaves_nothing(&self) -> bool {
        matches!(
            self,
            Self::TimeSliceUnsupported { .. }
                | Self::PartitionNotMade(_)
                | Self::MigModeStays(_)
                | Self::ForeignInstance { .. }
                | Self::MpsAway(_)
        )
    }
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// As planned, nothing to remember.
    AsPlanned,
    /// A MIG device was made.
    Made(MigDevice),
}

/// What is done to the machine for a claim.
pub trait Effects: Send + Sync {
    /// Looks whether the hardware has room for the plan beside what no claim knows of, and
    /// gives the plan with what must be put back later. Changes nothing.
    ///
    /// # Errors
    /// What is in the way, or that it can't be asked.
    fn look(&self, plan: Record) -> Result<Record, EffectError>;

    /// Whether what was done for a prepared claim is still there, as far as others can take
    /// it away. Changes nothing.
    ///
    /// # Errors
    /// When the hardware can't be asked.
    fn holds(&self, record: &Record) -> Result<bool, EffectError>;

    /// Does one step of a claim; `begun` has the steps before it with what came of them.
    /// Doing it again changes nothing.
    ///
    /// # Errors
    /// When the hardware or driver refuses; see [`EffectError::leaves_nothing`].
    fn apply(&self, step: &KnownStep, begun: &Record) -> Result<Done, EffectError>;

    /// Undoes one step. Nothing to undo is success, a GPU that is gone too.
    ///
    /// # Errors
    /// When the hardware or driver refuses; the call is repeated later.
    fn undo(&self, step: &KnownStep) -> Result<(), EffectError>;

    /// The bytes of the claim's CDI spec, from files that exist now.
    ///
    /// # Errors
    /// When the driver's files or the device nodes are not complete.
    fn cdi_spec(&self, record: &Record) -> Result<Vec<u8>, EffectError>;
}
