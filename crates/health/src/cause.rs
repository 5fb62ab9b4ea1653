//! Why a device isn't well, and in which words that is told: taint key and value, sentence.
//! How bad it is, is the policy's to say.

use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::event::EventKind;
use crate::reading::RecoveryAction;

/// One reason. Those from [`Cause::Lost`] on hold as long as they are read; an event has
/// happened, and only something else that happens ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Cause {
    Event(EventKind),
    Lost,
    Unmonitored { reason: String },
    RecoveryAction(RecoveryAction),
    UncorrectedEcc { count: u64 },
    RowRemap { failed: bool },
    RetiredPages,
    NvLinkDown { down: u32, of: u32 },
}

/// What a cause is about. A device has one cause of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    Xid,
    MemoryEvent,
    Unavailable,
    Lost,
    Unmonitored,
    RecoveryAction,
    UncorrectedEcc,
    RowRemap,
    RetiredPages,
    NvLink,
}

impl Topic {
    /// The first three keys are the incumbent's.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Xid => "gpu.nvidia.com/xid",
            Self::Lost => "gpu.nvidia.com/gpu-lost",
            Self::Unmonitored => "gpu.nvidia.com/unmonitored",
            Self::MemoryEvent | Self::UncorrectedEcc => "gpu.nvidia.com/ecc",
            Self::Unavailable => "gpu.nvidia.com/unavailable",
            Self::RecoveryAction => "gpu.nvidia.com/recovery-action",
            Self::RowRemap => "gpu.nvidia.com/row-remap",
            Self::RetiredPages => "gpu.nvidia.com/retired-pages",
            Self::NvLink => "gpu.nvidia.com/nvlink-down",
        }
    }

    /// It came by event, so no reading tells that it is over.
    pub(crate) fn is_event(self) -> bool {
        matches!(self, Self::Xid | Self::MemoryEvent | Self::Unavailable)
    }
}

impl Cause {
    pub(crate) fn topic(&self) -> Topic {
        match self {
            Self::Event(EventKind::Xid(_)) => Topic::Xid,
            Self::Event(EventKind::GpuUnavailable) => Topic::Unavailable,
            Self::Event(_) => Topic::MemoryEvent,
            Self::Lost => Topic::Lost,
            Self::Unmonitored { .. } => Topic::Unmonitored,
            Self::RecoveryAction(_) => Topic::RecoveryAction,
            Self::UncorrectedEcc { .. } => Topic::UncorrectedEcc,
            Self::RowRemap { .. } => Topic::RowRemap,
            Self::RetiredPages => Topic::RetiredPages,
            Self::NvLinkDown { .. } => Topic::NvLink,
        }
    }

    /// The value of its taint, which doesn't change with every number that goes up: each
    /// change is a write to the API server.
    pub(crate) fn value(&self) -> Option<String> {
        let word = match self {
            Self::Event(EventKind::Xid(xid)) => return Some(xid.to_string()),
            Self::RecoveryAction(action) => return Some(action.to_string()),
            Self::Event(EventKind::DoubleBitEcc) => "double-bit",
            Self::Event(EventKind::SingleBitEccStorm) => "single-bit-storm",
            Self::Event(EventKind::DramRetirement) => "retirement",
            Self::Event(EventKind::DramRetirementFailure) => "retirement-failure",
            Self::Event(EventKind::NonFatalPoison) => "poison",
            Self::Event(EventKind::FatalPoison) => "fatal-poison",
            Self::UncorrectedEcc { .. } => "uncorrected",
            Self::RowRemap { failed: false } | Self::RetiredPages => "pending",
            Self::RowRemap { failed: true } => "failure",
            Self::Event(
                EventKind::GpuUnavailable | EventKind::RecoveryAction | EventKind::MigConfigChange,
            )
            | Self::Lost
            | Self::Unmonitored { .. }
            | Self::NvLinkDown { .. } => return None,
        };
        Some(word.to_owned())
    }

    /// What is wrong and what to do, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Event(kind) => event_sentence(*kind),
            Self::Lost => {
                "the GPU has fallen off the bus; drain and reboot the node, and if it comes again, \
                 replace the GPU"
                    .to_owned()
            }
            Self::Unmonitored { reason } => {
                format!("Xids of this GPU go unseen, since its events can't be had: {reason}")
            }
            Self::RecoveryAction(action) => {
                format!("the driver asks for recovery action {action}: {}", action.remedy())
            }
            Self::UncorrectedEcc { count } => {
                format!(
                    "{count} uncorrected memory errors since the last reset; reset the GPU when it is idle"
                )
            }
            Self::RowRemap { failed: false } => {
                "a memory row is to be remapped; reset the GPU when it is idle".to_owned()
            }
            Self::RowRemap { failed: true } => {
                "a memory row could not be remapped; replace the GPU".to_owned()
            }
            Self::RetiredPages => {
                "memory pages are to be retired; reset the GPU when it is idle".to_owned()
            }
            Self::NvLinkDown { down, of } => format!(
                "{down} of {of} NVLinks are down; check the fabric manager and the links, then clear"
            ),
        }
    }
}

fn event_sentence(kind: EventKind) -> String {
    let words = match kind {
        EventKind::Xid(xid) => {
            let (meaning, remedy) = catalogue::entry(xid)
                .map_or(catalogue::UNLISTED, |entry| (entry.meaning, entry.remedy));
            return format!("Xid {xid}: {meaning}; {remedy}");
        }
        EventKind::DoubleBitEcc => "uncorrectable memory error; reset the GPU",
        EventKind::SingleBitEccStorm => {
            "corrected memory errors in great number; if it comes again, run NVIDIA's diagnostics"
        }
        EventKind::DramRetirement => "memory was retired; reset the GPU when it is idle",
        EventKind::DramRetirementFailure => "memory could not be retired; replace the GPU",
        EventKind::NonFatalPoison => {
            "poisoned data was used, contained; reset the GPU when it is idle"
        }
        EventKind::FatalPoison => "poisoned data was used, not contained; reset the GPU",
        EventKind::GpuUnavailable => "the GPU can't be used any more; drain and reboot the node",
        EventKind::RecoveryAction => "the recovery action has changed",
        EventKind::MigConfigChange => "the MIG configuration has changed",
    };
    words.to_owned()
}
