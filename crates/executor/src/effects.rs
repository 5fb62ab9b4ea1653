//! The acts of a claim beside the journal, behind one trait: hardware steps and the content
//! of the CDI spec. The node agent has the real side, tests a simulated one.

use gpu_dra_claims::Record;
use gpu_dra_claims::record::KnownStep;
use gpu_dra_host::ProcessError;
use gpu_dra_model::GpuUuid;

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
    /// The driver's files or device nodes are not complete.
    #[error("{0}")]
    DriverFiles(String),
    /// The spec that would be written breaks a rule of CDI.
    #[error("CDI spec: {0}; this is a bug in the node agent")]
    Spec(#[from] gpu_dra_cdi::SpecError),
}

/// What is done to the machine for a claim.
pub trait Effects: Send + Sync {
    /// Does one step. Doing it again changes nothing.
    ///
    /// # Errors
    /// When the hardware or driver refuses.
    fn apply(&self, step: &KnownStep) -> Result<(), EffectError>;

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
