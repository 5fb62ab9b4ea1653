//! Events of GPUs, counted: also those that change nothing.

use gpu_dra_health::{EventKind, GpuEvent, Verdict};
use gpu_dra_metrics::client::metrics::counter::Counter;
use gpu_dra_metrics::client::metrics::family::Family;
use gpu_dra_metrics::client::registry::Registry;

/// Drivers know some two hundred Xids, and tell 999 for what they don't know.
const HIGHEST_XID: u64 = 999;

type Labels = [(&'static str, String); 4];

/// Events so far.
#[derive(Debug, Clone, Default)]
pub struct EventMetrics(Family<Labels, Counter>);

impl EventMetrics {
    pub(super) fn register(&self, page: &mut Registry) {
        page.register(
            "gpu_events",
            "Events that GPUs have raised, by kind, Xid and what the policy does about them",
            self.0.clone(),
        );
    }

    pub(crate) fn note(&self, event: &GpuEvent, verdict: Verdict) {
        let xid = match event.kind {
            EventKind::Xid(xid) if xid > HIGHEST_XID => "other".to_owned(),
            EventKind::Xid(xid) => xid.to_string(),
            _ => String::new(),
        };
        let severity = match verdict {
            Verdict::Ignore => "Ignore",
            Verdict::Warn => "Warn",
            Verdict::NoSchedule => "NoSchedule",
            Verdict::NoExecute => "NoExecute",
        };
        let labels = [
            ("gpu", event.gpu.to_string()),
            ("event", kind(event.kind).to_owned()),
            ("xid", xid),
            ("severity", severity.to_owned()),
        ];
        self.0.get_or_create(&labels).inc();
    }
}

fn kind(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Xid(_) => "xid",
        EventKind::DoubleBitEcc => "double_bit_ecc",
        EventKind::SingleBitEccStorm => "single_bit_ecc_storm",
        EventKind::DramRetirement => "dram_retirement",
        EventKind::DramRetirementFailure => "dram_retirement_failure",
        EventKind::NonFatalPoison => "non_fatal_poison",
        EventKind::FatalPoison => "fatal_poison",
        EventKind::GpuUnavailable => "gpu_unavailable",
        EventKind::RecoveryAction => "recovery_action",
        EventKind::MigConfigChange => "mig_config_change",
    }
}
