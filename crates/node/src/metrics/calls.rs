//! How long the kubelet's calls take and how they end: as a whole, and by phase.
//!
//! The executor knows of none of this. It does a call's work on one thread from beginning to
//! end, so what its files and effects take is added up on that thread ([`by_phase`]).

use std::cell::Cell;
use std::time::{Duration, Instant};

use gpu_dra_metrics::client::metrics::family::Family;
use gpu_dra_metrics::client::metrics::histogram::Histogram;
use gpu_dra_metrics::client::registry::Registry;

/// A file is replaced within a millisecond, MIG and MPS take seconds, and the kubelet gives up
/// after 45 s.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 45.0];

type Labels = [(&'static str, &'static str); 2];
type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// What the kubelet asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// NodePrepareResources, one claim of it.
    Prepare,
    /// NodeUnprepareResources, one claim of it.
    Unprepare,
}

impl Operation {
    /// Its name in labels and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Success,
    /// A rule forbids it: it fails again until the claim is another.
    Refused,
    /// Something went wrong: it is tried again.
    Failed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What a call spends its time with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Other calls for the claim, and other claims that still hold what it was given.
    Wait,
    /// The claim from the API server.
    GetClaim,
    /// Planning, and waiting for other work on the same GPUs.
    Plan,
    /// The journal's files.
    Journal,
    /// Hardware, programs, the MPS host.
    Effects,
    /// The CDI spec: its content and its file.
    Cdi,
}

const PHASES: [Phase; 6] =
    [Phase::Wait, Phase::GetClaim, Phase::Plan, Phase::Journal, Phase::Effects, Phase::Cdi];

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::GetClaim => "get_claim",
            Self::Plan => "plan",
            Self::Journal => "journal",
            Self::Effects => "effects",
            Self::Cdi => "cdi",
        }
    }
}

/// Time by phase, in the order of [`PHASES`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent([Duration; PHASES.len()]);

impl Spent {
    fn add(&mut self, phase: Phase, time: Duration) {
        for (known, spent) in PHASES.into_iter().zip(&mut self.0) {
            if known == phase {
                *spent += time;
            }
        }
    }

    fn add_all(&mut self, other: Self) {
        for (spent, more) in self.0.iter_mut().zip(other.0) {
            *spent += more;
        }
    }

    fn total(self) -> Duration {
        self.0.iter().sum()
    }
}

thread_local! {
    /// What the work that this thread does has spent so far.
    static SPENT: Cell<Spent> = const { Cell::new(Spent([Duration::ZERO; PHASES.len()])) };
}

/// Does one thing that belongs to a phase of the work on this thread.
pub(super) fn in_phase<T>(phase: Phase, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    let time = start.elapsed();
    SPENT.with(|cell| {
        let mut spent = cell.get();
        spent.add(phase, time);
        cell.set(spent);
    });
    result
}

/// Does the executor's part of a call on this thread, and tells by phase how long it took. What
/// is no other phase is [`Phase::Plan`].
pub(crate) fn by_phase<T>(work: impl FnOnce() -> T) -> (T, Spent) {
    SPENT.with(|cell| cell.set(Spent::default()));
    let start = Instant::now();
    let result = work();
    let all = start.elapsed();
    let mut spent = SPENT.with(Cell::take);
    spent.add(Phase::Plan, all.saturating_sub(spent.total()));
    (result, spent)
}

/// How long calls take.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    operations: Durations,
    phases: Durations,
}

impl Default for CallMetrics {
    fn default() -> Self {
        let durations = || Durations::new_with_constructor(|| Histogram::new(BUCKETS));
        let metrics = Self { operations: durations(), phases: durations() };
        // All of them are there from the start, as rates need it.
        for operation in [Operation::Prepare, Operation::Unprepare] {
            for outcome in [Outcome::Success, Outcome::Refused, Outcome::Failed] {
                drop(metrics.operations.get_or_create(&of_operation(operation, outcome)));
            }
            for phase in PHASES {
                drop(metrics.phases.get_or_create(&of_phase(operation, phase)));
            }
        }
        metrics
    }
}

fn of_operation(operation: Operation, outcome: Outcome) -> Labels {
    [("operation", operation.name()), ("result", outcome.name())]
}

fn of_phase(operation: Operation, phase: Phase) -> Labels {
    [("operation", operation.name()), ("phase", phase.name())]
}

impl CallMetrics {
    pub(crate) fn register(&self, page: &mut Registry) {
        page.register(
            "claim_operation_duration_seconds",
            "How long the kubelet's calls took, each for one claim, by how they ended",
            self.operations.clone(),
        );
        page.register(
            "claim_phase_duration_seconds",
            "What the kubelet's calls spent their time with",
            self.phases.clone(),
        );
    }

    /// A call has ended.
    pub(crate) fn ended(&self, operation: Operation, outcome: Outcome, time: Duration) {
        let durations = self.operations.get_or_create(&of_operation(operation, outcome));
        durations.observe(time.as_secs_f64());
    }

    /// A call begins.
    pub(crate) fn clock(&self, operation: Operation) -> PhaseClock<'_> {
        PhaseClock { metrics: self, operation, lap: Instant::now(), spent: Spent::default() }
    }
}

/// Follows a call through its phases; what each took is told when this is dropped.
pub(crate) struct PhaseClock<'m> {
    metrics: &'m CallMetrics,
    operation: Operation,
    lap: Instant,
    spent: Spent,
}

impl PhaseClock<'_> {
    /// This phase ends now; it began when the last one ended.
    pub(crate) fn ends(&mut self, phase: Phase) {
        self.spent.add(phase, self.lap.elapsed());
        self.lap = Instant::now();
    }

    /// The executor's part has ended.
    pub(crate) fn executed(&mut self, spent: Spent) {
        self.spent.add_all(spent);
        self.lap = Instant::now();
    }
}

impl Drop for PhaseClock<'_> {
    fn drop(&mut self) {
        for (phase, time) in PHASES.into_iter().zip(self.spent.0) {
            if !time.is_zero() {
                let durations = self.metrics.phases.get_or_create(&of_phase(self.operation, phase));
                durations.observe(time.as_secs_f64());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    const TICK: Duration = Duration::from_millis(5);

    #[test]
    fn what_is_no_other_phase_is_planning() {
        // A thread that did something before begins anew.
        in_phase(Phase::Cdi, || sleep(TICK));
        let (result, spent) = by_phase(|| {
            in_phase(Phase::Journal, || sleep(TICK));
            sleep(TICK);
            in_phase(Phase::Journal, || sleep(TICK));
            7
        });
        let by = |phase| spent.0[PHASES.iter().position(|known| *known == phase).unwrap()];
        assert_eq!(result, 7);
        assert!(by(Phase::Journal) >= 2 * TICK && by(Phase::Plan) >= TICK, "{spent:?}");
        assert_eq!((by(Phase::Cdi), by(Phase::Effects)), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn a_call_is_told_once_and_phases_that_it_did_not_reach_are_not() {
        let metrics = CallMetrics::default();
        let mut clock = metrics.clock(Operation::Prepare);
        sleep(TICK);
        clock.ends(Phase::Wait);
        clock.ends(Phase::GetClaim);
        clock.executed(by_phase(|| in_phase(Phase::Effects, || sleep(TICK))).1);
        sleep(TICK);
        clock.ends(Phase::Wait);
        drop(clock);
        metrics.ended(Operation::Prepare, Outcome::Refused, TICK);

        let mut page = gpu_dra_metrics::page("test");
        metrics.register(&mut page);
        let text = gpu_dra_metrics::text(&page).unwrap();
        let of = |series: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(series));
            line.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
        };
        let phase = |what: &str, phase: &str| {
            of(&format!(
                "gpu_dra_claim_phase_duration_seconds_{what}{{operation=\"prepare\",phase=\"{phase}\"}}"
            ))
        };
        assert_eq!(phase("count", "wait"), 1.0);
        assert!(phase("sum", "wait") >= (2 * TICK).as_secs_f64());
        assert_eq!((phase("count", "effects"), phase("count", "cdi")), (1.0, 0.0));
        let refused = "gpu_dra_claim_operation_duration_seconds_count{operation=\"prepare\",result=\"refused\"}";
        assert_eq!(of(refused), 1.0);
    }
}
