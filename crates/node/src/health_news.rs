//! What is new about the health of devices, in sentences for people. It compares two moments
//! and tells nobody.

use std::collections::BTreeMap;

use gpu_dra_health::{Report, Taint, UnixSeconds, Verdict};
use gpu_dra_model::{DeviceKind, DeviceName, GpuUuid};

use crate::events::Severity;

/// The health of devices by name.
pub(crate) type Reports = BTreeMap<DeviceName, Report>;

/// One thing that is new, about all devices of one GPU that it concerns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) severity: Severity,
    pub(crate) reason: &'static str,
    pub(crate) devices: Vec<DeviceName>,
    /// Since when it was so, which tells it from the same at another time.
    pub(crate) since: UnixSeconds,
    pub(crate) message: String,
}

/// A taint that has come (with value and verdict) or gone, and what is or was wrong.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Topic {
    gpu: GpuUuid,
    key: &'static str,
    come: Option<(Option<String>, Verdict)>,
    why: String,
}

/// What is new. Devices that were not there before are no news by themselves, and monitors say
/// nothing that their GPU doesn't.
pub(crate) fn changes(
    before: &Reports,
    after: &Reports,
    kinds: &BTreeMap<DeviceName, DeviceKind>,
) -> Vec<Change> {
    let mut topics: BTreeMap<Topic, (UnixSeconds, Vec<DeviceName>)> = BTreeMap::new();
    for (name, now) in after {
        let (Some(then), Some(kind)) = (before.get(name), kinds.get(name)) else { continue };
        if matches!(kind, DeviceKind::Monitor { .. }) {
            continue;
        }
        let come = now.taints.iter().filter(|taint| !then.taints.iter().any(|t| same(t, taint)));
        let come = come.map(|t| (t, Some((t.value.clone(), t.verdict)), &now.message));
        let gone = then.taints.iter().filter(|t| now.taints.iter().all(|now| now.key != t.key));
        let gone = gone.map(|t| (t, None, &then.message));
        for (taint, come, why) in come.chain(gone) {
            let topic = Topic { gpu: kind.gpu().clone(), key: taint.key, come, why: why.clone() };
            let (since, devices) = topics.entry(topic).or_default();
            *since = taint.since.max(*since);
            devices.push(name.clone());
        }
    }
    topics.into_iter().map(|(topic, (since, devices))| change(topic, since, devices)).collect()
}

/// The same is wrong, since whenever.
fn same(a: &Taint, b: &Taint) -> bool {
    (a.key, &a.value, a.verdict) == (b.key, &b.value, b.verdict)
}

fn change(topic: Topic, since: UnixSeconds, devices: Vec<DeviceName>) -> Change {
    let Topic { gpu, key, come, why } = topic;
    let first = devices.first().map(DeviceName::as_str).unwrap_or_default();
    let whom = match devices.len() {
        0 | 1 => format!("{first} ({gpu})"),
        n => format!("{first} ({gpu}) and {} more of its devices", n - 1),
    };
    let (severity, reason, message) = match come {
        Some((value, verdict)) => {
            let taint = Taint { key, value, verdict, since };
            let value = taint.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
            let reason = match verdict {
                Verdict::Ignore | Verdict::Warn => "DeviceWarning",
                Verdict::NoSchedule | Verdict::NoExecute => "DeviceTainted",
            };
            let taint = format!("{key}{value}:{}", taint.effect());
            (Severity::Warning, reason, format!("taint {taint} on {whom}: {why}"))
        }
        None => {
            let message = format!("no more taint {key} on {whom}; it was: {why}");
            (Severity::Normal, "DeviceTaintGone", message)
        }
    };
    Change { severity, reason, devices, since, message }
}
