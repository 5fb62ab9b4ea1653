//! The state machine: what is wrong with each GPU and each of its MIG instances, moved by
//! events, readings, reboots and people.
//!
//! It decides when something is wrong and when that is over, never how it is told. The worst
//! stays: a milder event changes nothing. What came by event is over when the GPU has been
//! recovered: when the driver takes back the recovery action that it asked for, when a lost
//! GPU is back, or after a reboot; where the driver asks for nothing for some rounds of readings
//! and nothing happens meanwhile, also what does not keep pods from running. What is read is
//! over when it isn't read any more.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::inventory::GpuInstance;
use gpu_dra_model::{ComputeInstanceId, GpuInstanceId, GpuUuid, Placement};
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, Topic};
use crate::event::{EventInstance, EventKind, GpuEvent};
use crate::policy::{Policy, Verdict};
use crate::reading::{HealthReading, Occasion, RecoveryAction};
use crate::unread::{self, Unread};

/// A moment, in seconds since 1970 UTC, as whoever calls has it: a taint's `timeAdded`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixSeconds(pub i64);

/// A MIG instance by where it lies, which is what can be broken: numbers and UUIDs are given
/// anew with each instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// The memory slices of its GPU instance.
    pub placement: Placement,
    /// The compute instance, where the GPU instance has several and only one is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<ComputeInstanceId>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    pub(crate) cause: Cause,
    /// None for the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<Part>,
    /// It was about this GPU instance, of which is not known where it lay. The whole GPU is
    /// held responsible, but no pod is evicted from instances that may have no part in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unplaced: Option<GpuInstanceId>,
    pub(crate) since: UnixSeconds,
}

/// What is known of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GpuState {
    /// At most one for each part and topic.
    pub(crate) conditions: Vec<Condition>,
    /// As last told.
    pub(crate) recovery_action: Option<RecoveryAction>,
    /// So many uncorrected errors were accepted by a person.
    pub(crate) accepted_ecc: u64,
    /// So many links were up: those that never were aren't wired.
    pub(crate) most_links_up: u32,
}

/// The health of a node's GPUs. Methods that change it say whether anything to be published
/// or stored has changed.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    pub(crate) policy: Policy,
    pub(crate) gpus: BTreeMap<GpuUuid, GpuState>,
    /// GPUs that were read since the start.
    pub(crate) read: BTreeSet<GpuUuid>,
    /// Rounds in a row in which the driver asked for nothing, since the last event.
    quiet: BTreeMap<GpuUuid, u32>,
    /// GPUs that couldn't be read lately. Not kept: it is about who asks as much as about them.
    pub(crate) unread: BTreeMap<GpuUuid, Unread>,
    counts: BTreeMap<GpuUuid, BTreeMap<EventKind, u64>>,
}

/// What a person has cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// None for the whole GPU.
    pub part: Option<Part>,
    /// The taint's key.
    pub key: &'static str,
    /// What was wrong.
    pub message: String,
}

impl Tracker {
    /// Nothing is wrong with any GPU, as far as is known.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Takes note of an event. `instances` are the GPU's instances now, or as near to the
    /// event as can be: they tell where the instance lies that the event names. Take a reading
    /// of the GPU next: the driver may have more to say.
    pub fn event(&mut self, event: &GpuEvent, instances: &[GpuInstance], now: UnixSeconds) -> bool {
        let count =
            self.counts.entry(event.gpu.clone()).or_default().entry(event.kind).or_default();
        *count = count.saturating_add(1);
        // Whatever happens: a burst ends with what is milder than what it began with.
        self.quiet.remove(&event.gpu);
        let cause = Cause::Event(event.kind);
        if self.policy.verdict(&cause) == Verdict::Ignore {
            return false;
        }
        let mut condition = Condition { cause, part: None, unplaced: None, since: now };
        if let Some(instance) = event.instance {
            condition.part = part_of(instance, instances);
            condition.unplaced = condition.part.is_none().then_some(instance.gpu);
        }
        self.raise(&event.gpu, condition)
    }

    /// Takes note of what a GPU says, and why it was asked.
    pub fn reading(
        &mut self,
        gpu: &GpuUuid,
        reading: &HealthReading,
        occasion: Occasion,
        now: UnixSeconds,
    ) -> bool {
        if reading.is_void() {
            let why = reading.failed.first().map_or_else(
                || "NVML doesn't say why".to_owned(),
                |failed| format!("{} answers {}", failed.call, failed.code),
            );
            return self.unread(gpu, &why, occasion, now);
        }
        let was_unread = self.unread.remove(gpu).is_some_and(|unread| unread.is_told());
        let first = reading.lost.is_some() && self.read.insert(gpu.clone());
        let before = self.gpus.get(gpu).cloned().unwrap_or_default();
        let mut state = before.clone();
        let is_back = match reading.lost {
            Some(lost) => {
                let was_lost = state.hold(Topic::Lost, lost.then_some(Cause::Lost), now);
                was_lost && !lost && !reading.asks_for_recovery()
            }
            None => false,
        };
        if is_back || state.recovery_is_over(reading) {
            state.end_events(|_| true);
        }
        if self.is_settled(gpu, reading, occasion) {
            state.end_events(|condition| self.judge(condition) < Verdict::NoExecute);
        }
        state.read(reading, now);
        let changed = state != before;
        self.put(gpu, state);
        first || changed || was_unread
    }

    /// Takes note that a GPU couldn't be asked, or hasn't answered. What was read of it stays,
    /// and after some rounds in a row that is told.
    pub fn unread(
        &mut self,
        gpu: &GpuUuid,
        why: &str,
        occasion: Occasion,
        now: UnixSeconds,
    ) -> bool {
        if occasion == Occasion::News {
            return false;
        }
        // It has not been quiet, as far as anybody knows.
        self.quiet.remove(gpu);
        self.unread.entry(gpu.clone()).or_default().again(why, now)
    }

    /// Takes note of whether events of a GPU can be had, and if not, why.
    pub fn monitoring(&mut self, gpu: &GpuUuid, trouble: Option<String>, now: UnixSeconds) -> bool {
        let before = self.gpus.get(gpu).cloned().unwrap_or_default();
        let mut state = before.clone();
        let cause = trouble.map(|reason| Cause::Unmonitored { reason });
        state.hold(Topic::Unmonitored, cause, now);
        let changed = state != before;
        self.put(gpu, state);
        changed
    }

    /// A person says that all is well: with a part of a GPU, or the GPU and all its parts;
    /// with what has this taint key, or everything. What is still read comes again with the
    /// next reading; errors counted and links down so far are accepted.
    pub fn clear(&mut self, gpu: &GpuUuid, part: Option<&Part>, key: Option<&str>) -> Vec<Cleared> {
        let mut cleared = Vec::new();
        if part.is_none()
            && key.is_none_or(|key| key == unread::KEY)
            && self.unread.get(gpu).is_some_and(Unread::is_told)
            && let Some(unread) = self.unread.remove(gpu)
        {
            cleared.push(Cleared { part: None, key: unread::KEY, message: unread.sentence() });
        }
        let Some(mut state) = self.gpus.remove(gpu) else { return cleared };
        state.conditions.retain(|condition| {
            let topic = condition.cause.topic();
            let meant = part.is_none_or(|part| condition.part == Some(*part))
                && key.is_none_or(|key| topic.key() == key);
            if meant {
                match condition.cause {
                    Cause::UncorrectedEcc { count } => state.accepted_ecc = count,
                    Cause::NvLinkDown { down, of } => {
                        state.most_links_up = of.saturating_sub(down);
                    }
                    _ => {}
                }
                cleared.push(Cleared {
                    part: condition.part,
                    key: topic.key(),
                    message: condition.cause.sentence(),
                });
            }
            !meant
        });
        self.put(gpu, state);
        cleared
    }

    /// Forgets what is counted of GPUs that aren't there: a node whose GPUs are replaced again
    /// and again must not grow. What is wrong with them stays, as they may come back.
    pub fn retain(&mut self, there: impl Fn(&GpuUuid) -> bool) {
        self.read.retain(&there);
        self.quiet.retain(|gpu, _| there(gpu));
        self.unread.retain(|gpu, _| there(gpu));
        self.counts.retain(|gpu, _| there(gpu));
    }

    /// The node was rebooted: the GPUs were reset, and what is still wrong will be read.
    pub(crate) fn rebooted(&mut self) {
        for state in self.gpus.values_mut() {
            *state = GpuState { most_links_up: state.most_links_up, ..GpuState::default() };
        }
        self.gpus.retain(|_, state| *state != GpuState::default());
    }

    /// How often each event came since the start, also those that change nothing.
    pub fn counts(&self) -> impl Iterator<Item = (&GpuUuid, EventKind, u64)> {
        self.counts
            .iter()
            .flat_map(|(gpu, counts)| counts.iter().map(move |(kind, count)| (gpu, *kind, *count)))
    }

    /// How bad it is.
    pub(crate) fn judge(&self, condition: &Condition) -> Verdict {
        let verdict = self.policy.verdict(&condition.cause);
        match condition.unplaced {
            Some(_) => verdict.min(Verdict::NoSchedule),
            None => verdict,
        }
    }

    /// Adds a condition that came by event, unless there is one that is as bad.
    fn raise(&mut self, gpu: &GpuUuid, condition: Condition) -> bool {
        let topic = condition.cause.topic();
        let mut state = self.gpus.remove(gpu).unwrap_or_default();
        let known = state
            .conditions
            .iter_mut()
            .find(|known| known.part == condition.part && known.cause.topic() == topic);
        let changed = match known {
            Some(known) if self.judge(known) >= self.judge(&condition) => false,
            Some(known) => {
                *known = condition;
                true
            }
            None => {
                state.conditions.push(condition);
                true
            }
        };
        self.put(gpu, state);
        changed
    }

    /// Whether the driver has asked for nothing for long enough. Only rounds count, which take
    /// time: after each event there is a reading, and a survey of the node reads all GPUs.
    fn is_settled(&mut self, gpu: &GpuUuid, reading: &HealthReading, occasion: Occasion) -> bool {
        if reading.recovery_action != Some(RecoveryAction::Nothing) {
            self.quiet.remove(gpu);
            return false;
        }
        if occasion == Occasion::News {
            return false;
        }
        let quiet = self.quiet.entry(gpu.clone()).or_default();
        *quiet = quiet.saturating_add(1);
        *quiet >= self.policy.settled_readings
    }

    fn put(&mut self, gpu: &GpuUuid, state: GpuState) {
        if state == GpuState::default() {
            self.gpus.remove(gpu);
        } else {
            self.gpus.insert(gpu.clone(), state);
        }
    }
}

impl GpuState {
    /// Something about the whole GPU is so or isn't. Says whether it was.
    fn hold(&mut self, topic: Topic, cause: Option<Cause>, now: UnixSeconds) -> bool {
        let known = self.conditions.iter().position(|known| known.cause.topic() == topic);
        match (known.and_then(|at| self.conditions.get_mut(at)), cause) {
            (Some(known), Some(cause)) => {
                if known.cause.value() != cause.value() {
                    known.since = now;
                }
                known.cause = cause;
            }
            (None, Some(cause)) => {
                self.conditions.push(Condition { cause, part: None, unplaced: None, since: now });
            }
            (Some(_), None) => self.conditions.retain(|known| known.cause.topic() != topic),
            (None, None) => {}
        }
        known.is_some()
    }

    /// What came by event is over, as far as it is such.
    fn end_events(&mut self, over: impl Fn(&Condition) -> bool) {
        self.conditions.retain(|condition| !condition.cause.topic().is_event() || !over(condition));
    }

    /// The driver asks for nothing any more, and did before.
    fn recovery_is_over(&self, reading: &HealthReading) -> bool {
        let asked = self.recovery_action.is_some_and(|action| action != RecoveryAction::Nothing);
        asked && reading.recovery_action == Some(RecoveryAction::Nothing)
    }

    /// Everything that is known only as long as it is read. What isn't told stays as it was.
    fn read(&mut self, reading: &HealthReading, now: UnixSeconds) {
        if let Some(action) = reading.recovery_action {
            self.recovery_action = Some(action);
            let asked = action != RecoveryAction::Nothing;
            self.hold(Topic::RecoveryAction, asked.then_some(Cause::RecoveryAction(action)), now);
        }
        if let Some(count) = reading.uncorrected_ecc {
            // The counter starts anew with a reset.
            self.accepted_ecc = self.accepted_ecc.min(count);
            let more = count > self.accepted_ecc;
            self.hold(Topic::UncorrectedEcc, more.then_some(Cause::UncorrectedEcc { count }), now);
        }
        if let Some(rows) = reading.row_remap {
            let wrong = rows.failed || rows.pending;
            let cause = wrong.then_some(Cause::RowRemap { failed: rows.failed });
            self.hold(Topic::RowRemap, cause, now);
        }
        if let Some(pending) = reading.retired_pages_pending {
            self.hold(Topic::RetiredPages, pending.then_some(Cause::RetiredPages), now);
        }
        if let Some(links) = reading.nvlinks {
            self.most_links_up = self.most_links_up.max(links.up);
            let (down, of) = (self.most_links_up - links.up, self.most_links_up);
            let cause = (down > 0).then_some(Cause::NvLinkDown { down, of });
            self.hold(Topic::NvLink, cause, now);
        }
    }
}

/// Where the instance lies that an event names; None where there is no such instance.
fn part_of(instance: EventInstance, instances: &[GpuInstance]) -> Option<Part> {
    let found = instances.iter().find(|found| found.id == instance.gpu)?;
    // The only compute instance is all of its GPU instance, whatever its number is next time.
    let several = found.compute_instances.len() > 1;
    Some(Part { placement: found.placement, compute: instance.compute.filter(|_| several) })
}
