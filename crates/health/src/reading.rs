//! What a GPU says of its health when it is asked. Values only: nothing here asks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a GPU is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// Its turn has come: readings of this kind have the same time between them, some seconds.
    Round,
    /// Something has happened on the node. How soon that is after the last reading, and how
    /// often, says nothing of how the GPU is.
    News,
}

/// The answers of one GPU at one moment. None always means that hardware or driver don't say,
/// which is no news, neither good nor bad.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthReading {
    /// The GPU has fallen off the bus (`NVML_ERROR_GPU_IS_LOST`), or isn't there any more.
    /// None where it could not be asked.
    pub lost: Option<bool>,
    /// What the driver wants done (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`, R565 and newer).
    pub recovery_action: Option<RecoveryAction>,
    /// Memory errors that ECC could not correct since the last reset or driver load
    /// (`NVML_FI_DEV_ECC_DBE_VOL_TOTAL`).
    pub uncorrected_ecc: Option<u64>,
    /// The row remapper, Ampere and newer; not told while MIG instances exist.
    pub row_remap: Option<RowRemap>,
    /// Memory pages wait for a reset to be retired, before Ampere
    /// (`NVML_FI_DEV_RETIRED_PENDING`).
    pub retired_pages_pending: Option<bool>,
    /// NVLink; None on GPUs without, and in MIG mode, which has no use for it.
    pub nvlinks: Option<NvLinks>,
    /// Questions that failed, though hardware and driver may have an answer. What they were
    /// about is None above; where nothing else is told either, the GPU couldn't be read.
    pub failed: Vec<FailedCall>,
}

/// An NVML call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedCall {
    /// The C function.
    pub call: &'static str,
    /// NVML's return code (`nvmlReturn_t`).
    pub code: u32,
}

impl HealthReading {
    /// It says nothing at all of the GPU, not even that it is there, and why not.
    #[must_use]
    pub fn is_void(&self) -> bool {
        *self == Self { failed: self.failed.clone(), ..Self::default() }
    }

    /// The driver wants something done.
    pub(crate) fn asks_for_recovery(&self) -> bool {
        self.recovery_action.is_some_and(|action| action != RecoveryAction::Nothing)
    }
}

/// The row remapper (`NVML_FI_DEV_REMAPPED_…`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRemap {
    /// A remapping waits for a reset.
    pub pending: bool,
    /// A remapping has failed: there are no spare rows left.
    pub failed: bool,
}

/// NVLink links by state (`NVML_FI_DEV_NVLINK_GET_STATE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvLinks {
    /// Active, or asleep to save power.
    pub up: u32,
    /// Inactive: broken, or never wired.
    pub down: u32,
}

/// What the driver wants done (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryAction {
    /// Nothing.
    Nothing,
    /// End all processes on the GPU and reset it.
    Reset,
    /// Reboot the node.
    Reboot,
    /// End all peer-to-peer traffic; then the driver says what else.
    DrainP2p,
    /// It works with a part of its capacity: let work end, then reset.
    DrainAndReset,
    /// Recover the IMEX domain.
    RecoverImexDomain,
    /// A number newer than this program.
    Other(u32),
}

impl RecoveryAction {
    /// From NVML's number.
    #[must_use]
    pub fn from_nvml(number: u32) -> Self {
        match number {
            0 => Self::Nothing,
            1 => Self::Reset,
            2 => Self::Reboot,
            3 => Self::DrainP2p,
            4 => Self::DrainAndReset,
            5 => Self::RecoverImexDomain,
            other => Self::Other(other),
        }
    }

    /// What a person must do.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Nothing => "nothing is to be done",
            Self::Reset => "end the processes on the GPU and run nvidia-smi --gpu-reset",
            Self::Reboot => "drain and reboot the node",
            Self::DrainP2p => "end the processes that use NVLink or peer-to-peer copies",
            Self::DrainAndReset => "let the work on it end, then run nvidia-smi --gpu-reset",
            Self::RecoverImexDomain => "recover the IMEX domain of the node",
            Self::Other(_) => "see the driver's release notes for this action",
        }
    }
}

/// As the value of a taint.
impl fmt::Display for RecoveryAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Reset => f.write_str("reset"),
            Self::Reboot => f.write_str("reboot"),
            Self::DrainP2p => f.write_str("drain-p2p"),
            Self::DrainAndReset => f.write_str("drain-and-reset"),
            Self::RecoverImexDomain => f.write_str("recover-imex-domain"),
            Self::Other(number) => write!(f, "{number}"),
        }
    }
}
