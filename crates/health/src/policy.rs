//! What is done about what: a setting of the administrator over defaults. It judges one
//! cause by itself and knows neither history nor devices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::cause::Cause;
use crate::event::EventKind;
use crate::reading::RecoveryAction;

/// What is done about a cause, from the mildest to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Verdict {
    /// Nothing; events are counted.
    Ignore,
    /// It is told: a taint without effect and the device's message.
    Warn,
    /// No new pods: a taint `NoSchedule`.
    NoSchedule,
    /// The pods that have the device are evicted too: a taint `NoExecute`.
    NoExecute,
}

/// The health policy of a node. Fields that are left out keep their defaults.
///
/// ```
/// use gpu_dra_health::{Policy, Verdict};
///
/// let policy: Policy = serde_json::from_str(
///     r#"{"xids": {"74": "Ignore", "31": "NoSchedule"}, "nvlinkDown": "NoSchedule"}"#,
/// )?;
/// assert_eq!(policy.xid(74), Verdict::Ignore);
/// assert_eq!(policy.xid(31), Verdict::NoSchedule);
/// assert_eq!(policy.xid(79), Verdict::NoExecute, "as before");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    /// Xids with another verdict than the default, which follows NVIDIA's Xid catalogue.
    pub xids: BTreeMap<u64, Verdict>,
    /// Xids that are in neither list.
    pub unlisted_xid: Verdict,
    /// A memory error that ECC could not correct, by its event.
    pub double_bit_ecc: Verdict,
    /// Corrected memory errors in great number.
    pub single_bit_ecc_storm: Verdict,
    /// Memory was retired.
    pub dram_retirement: Verdict,
    /// Memory could not be retired.
    pub dram_retirement_failure: Verdict,
    /// Poisoned data, contained.
    pub non_fatal_poison: Verdict,
    /// Poisoned data, not contained.
    pub fatal_poison: Verdict,
    /// The driver says that the GPU can't be used any more.
    pub gpu_unavailable: Verdict,
    /// The GPU has fallen off the bus.
    pub gpu_lost: Verdict,
    /// Events of the GPU can't be had, so Xids go unseen; the incumbent warns too.
    pub unmonitored: Verdict,
    /// The GPU's health can't be read for some rounds in a row; its state is then unknown.
    pub unreadable: Verdict,
    /// The driver asks for a reset.
    pub action_reset: Verdict,
    /// The driver asks for a reboot.
    pub action_reboot: Verdict,
    /// The driver asks to end peer-to-peer traffic.
    pub action_drain_p2p: Verdict,
    /// The driver asks to let work end, then to reset.
    pub action_drain_and_reset: Verdict,
    /// The driver asks to recover the IMEX domain.
    pub action_recover_imex_domain: Verdict,
    /// The driver asks for what this program doesn't know.
    pub action_other: Verdict,
    /// Uncorrected memory errors have been counted.
    pub uncorrected_ecc: Verdict,
    /// A row remapping waits for a reset.
    pub row_remap_pending: Verdict,
    /// A row remapping has failed.
    pub row_remap_failure: Verdict,
    /// Retired pages wait for a reset.
    pub retired_pages_pending: Verdict,
    /// NVLink links that were up are down.
    pub nvlink_down: Verdict,
    /// After so many rounds of readings in a row in which the driver asks for nothing and the
    /// GPU reports nothing, at least 1, what came by event is over, but for what evicts pods
    /// ([`Verdict::NoExecute`]): that needs a recovery. Readings between two rounds, because
    /// something has happened, don't count.
    pub settled_readings: u32,
}

impl Default for Policy {
    fn default() -> Self {
        use Verdict::{NoExecute, NoSchedule, Warn};
        Self {
            xids: BTreeMap::new(),
            unlisted_xid: Warn,
            double_bit_ecc: NoSchedule,
            single_bit_ecc_storm: Warn,
            dram_retirement: Warn,
            dram_retirement_failure: NoSchedule,
            non_fatal_poison: NoSchedule,
            fatal_poison: NoExecute,
            gpu_unavailable: NoExecute,
            gpu_lost: NoExecute,
            unmonitored: Warn,
            unreadable: Warn,
            action_reset: NoExecute,
            action_reboot: NoExecute,
            action_drain_p2p: NoSchedule,
            action_drain_and_reset: NoSchedule,
            action_recover_imex_domain: NoSchedule,
            action_other: NoSchedule,
            uncorrected_ecc: Warn,
            row_remap_pending: Warn,
            row_remap_failure: NoSchedule,
            retired_pages_pending: Warn,
            nvlink_down: Warn,
            settled_readings: 3,
        }
    }
}

impl Policy {
    /// What is done about an Xid.
    #[must_use]
    pub fn xid(&self, xid: u64) -> Verdict {
        let own = self.xids.get(&xid).copied();
        own.or_else(|| catalogue::entry(xid).map(|entry| entry.verdict))
            .unwrap_or(self.unlisted_xid)
    }

    /// The same policy with more Xids ignored: the incumbent's `--additional-xids-to-ignore`.
    #[must_use]
    pub fn ignoring(mut self, xids: impl IntoIterator<Item = u64>) -> Self {
        self.xids.extend(xids.into_iter().map(|xid| (xid, Verdict::Ignore)));
        self
    }

    /// What is done about a cause.
    pub(crate) fn verdict(&self, cause: &Cause) -> Verdict {
        match cause {
            Cause::Event(kind) => self.event(*kind),
            Cause::Lost => self.gpu_lost,
            Cause::Unmonitored { .. } => self.unmonitored,
            Cause::RecoveryAction(action) => self.action(*action),
            Cause::UncorrectedEcc { .. } => self.uncorrected_ecc,
            Cause::RowRemap { failed: false } => self.row_remap_pending,
            Cause::RowRemap { failed: true } => self.row_remap_failure,
            Cause::RetiredPages => self.retired_pages_pending,
            Cause::NvLinkDown { .. } => self.nvlink_down,
        }
    }

    /// What is done about an event.
    #[must_use]
    pub fn event(&self, kind: EventKind) -> Verdict {
        match kind {
            EventKind::Xid(xid) => self.xid(xid),
            EventKind::DoubleBitEcc => self.double_bit_ecc,
            EventKind::SingleBitEccStorm => self.single_bit_ecc_storm,
            EventKind::DramRetirement => self.dram_retirement,
            EventKind::DramRetirementFailure => self.dram_retirement_failure,
            EventKind::NonFatalPoison => self.non_fatal_poison,
            EventKind::FatalPoison => self.fatal_poison,
            EventKind::GpuUnavailable => self.gpu_unavailable,
            // News for others: what they are about is read.
            EventKind::RecoveryAction | EventKind::MigConfigChange => Verdict::Ignore,
        }
    }

    fn action(&self, action: RecoveryAction) -> Verdict {
        match action {
            RecoveryAction::Nothing => Verdict::Ignore,
            RecoveryAction::Reset => self.action_reset,
            RecoveryAction::Reboot => self.action_reboot,
            RecoveryAction::DrainP2p => self.action_drain_p2p,
            RecoveryAction::DrainAndReset => self.action_drain_and_reset,
            RecoveryAction::RecoverImexDomain => self.action_recover_imex_domain,
            RecoveryAction::Other(_) => self.action_other,
        }
    }
}
