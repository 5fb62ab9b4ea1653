//! What is told of a device: its taints, its state and a message. It is made from what is
//! wrong at the moment and changes nothing.

use gpu_dra_model::{DeviceKind, GpuUuid};

use crate::policy::Verdict;
use crate::tracker::{Condition, Part, Tracker, UnixSeconds};
use crate::unread;

/// The health of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// For the health stream.
    pub state: State,
    /// What is wrong and what to do, the worst first; empty where nothing is. Up to a few
    /// hundred bytes.
    pub message: String,
    /// For the ResourceSlice: one for each key, the worst first, at most 10. Kubernetes 1.34
    /// takes 4, none with the effect `None`.
    pub taints: Vec<Taint>,
}

/// Whether a device works (`DRAResourceHealth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The GPU wasn't read yet, or can't be read.
    Unknown,
    /// It works, though there may be a message.
    Healthy,
    /// It must not be used for anything new.
    Unhealthy,
}

/// A device taint (`resource.k8s.io/v1` DeviceTaint).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// `gpu.nvidia.com/…`
    pub key: &'static str,
    /// An Xid's number, a word, or nothing.
    pub value: Option<String>,
    /// Never [`Verdict::Ignore`].
    pub verdict: Verdict,
    /// `timeAdded`.
    pub since: UnixSeconds,
}

impl Taint {
    /// Kubernetes' word for what it does.
    #[must_use]
    pub fn effect(&self) -> &'static str {
        match self.verdict {
            Verdict::Ignore | Verdict::Warn => "None",
            Verdict::NoSchedule => "NoSchedule",
            Verdict::NoExecute => "NoExecute",
        }
    }
}

impl Tracker {
    /// The health of a device of the pool. A whole GPU has what is wrong with the GPU as such;
    /// an instance has that too, and its own. Who only monitors a GPU may do so above all when
    /// it is sick: such a device's taints have no effect.
    #[must_use]
    pub fn report(&self, device: &DeviceKind) -> Report {
        match device {
            DeviceKind::Gpu { gpu, .. } => self.report_part(gpu, None),
            DeviceKind::StaticMig { gpu, placement, device } => {
                let part = Part { placement: *placement, compute: Some(device.compute) };
                self.report_part(gpu, Some(part))
            }
            DeviceKind::Partition { gpu, partition, .. } => {
                let part = Part { placement: partition.placement, compute: None };
                self.report_part(gpu, Some(part))
            }
            DeviceKind::Monitor { gpu } => {
                let mut report = self.report_part(gpu, None);
                for taint in &mut report.taints {
                    taint.verdict = Verdict::Warn;
                }
                report
            }
        }
    }

    /// The health of a GPU, or of an instance that lies there: of all its compute instances
    /// where none is named.
    #[must_use]
    pub fn report_part(&self, gpu: &GpuUuid, device: Option<Part>) -> Report {
        let all = self.gpus.get(gpu).map(|state| state.conditions.as_slice()).unwrap_or_default();
        let mut wrong: Vec<(&Condition, Verdict)> = all
            .iter()
            .filter(|condition| concerns(condition.part, device))
            .map(|condition| (condition, self.judge(condition)))
            .filter(|(_, verdict)| *verdict > Verdict::Ignore)
            .collect();
        // The oldest of equals first, so that what is published doesn't change with a new one.
        wrong.sort_by_key(|(condition, verdict)| (std::cmp::Reverse(*verdict), condition.since));
        let unread = self.unread.get(gpu).filter(|unread| unread.is_told());
        let mut taints: Vec<Taint> = Vec::new();
        for (condition, verdict) in &wrong {
            let key = condition.cause.topic().key();
            if taints.iter().all(|taint| taint.key != key) {
                taints.push(Taint {
                    key,
                    value: condition.cause.value(),
                    verdict: *verdict,
                    since: condition.since,
                });
            }
        }
        let mut sentences: Vec<String> =
            wrong.iter().map(|(condition, _)| sentence(condition)).collect();
        if let Some(unread) = unread
            && self.policy.unreadable > Verdict::Ignore
        {
            let verdict = self.policy.unreadable;
            let at = taints.partition_point(|taint| taint.verdict >= verdict);
            taints
                .insert(at, Taint { key: unread::KEY, value: None, verdict, since: unread.since });
            sentences.push(unread.sentence());
        }
        let state = match taints.first().map(|taint| taint.verdict) {
            Some(Verdict::NoSchedule | Verdict::NoExecute) => State::Unhealthy,
            _ if unread.is_some() || !self.read.contains(gpu) => State::Unknown,
            _ => State::Healthy,
        };
        Report { state, message: sentences.join(". "), taints }
    }
}

/// Whether what is wrong with a part, or with the whole GPU, is wrong with a device.
fn concerns(wrong: Option<Part>, device: Option<Part>) -> bool {
    match (wrong, device) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wrong), Some(device)) => {
            let same = match (wrong.compute, device.compute) {
                (Some(wrong), Some(device)) => wrong == device,
                (None, _) | (_, None) => true,
            };
            wrong.placement == device.placement && same
        }
    }
}

fn sentence(condition: &Condition) -> String {
    let told = condition.cause.sentence();
    match condition.unplaced {
        Some(instance) => format!("GPU instance {instance}, which is gone: {told}"),
        None => told,
    }
}
