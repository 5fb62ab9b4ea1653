//! The kubelet's calls: each claim by itself and at its own pace. Calls for one claim run in
//! the order in which they came, calls for claims on different GPUs never wait for each other.
//!
//! It reads the claim and hands it to the executor; it does and decides nothing itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::join_all;
use gpu_dra_claims::{Allocation, HeldDevice};
use gpu_dra_executor::{ClaimLock, EffectError, ExecuteError, Executor};
use gpu_dra_kubelet::{ClaimService, DeviceHealth, PreparedDevice};
use gpu_dra_model::{BootId, ClaimRef, ClaimUid, DriverName};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::claim_pods::{ClaimPods, Released};
use crate::claim_source::{ClaimSource, ClaimSourceError};
use crate::metrics::{CallMetrics, Operation, Outcome, Phase, PhaseClock, by_phase};
use crate::survey::Survey;

/// How long a call waits for the other process of a rolling update: below the kubelet's 45 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a call waits for another claim to give back what it still holds. The scheduler
/// takes a device for free once a pod is deleted by force, while the kubelet is still at its
/// containers; refused, the new pod would be tried again only a minute later or so.
const RELEASE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    #[error(transparent)]
    Claim(#[from] ClaimSourceError),
    #[error("the node agent hasn't looked at the GPUs yet; it will be tried again")]
    NoSurvey,
    #[error("{0}")]
    NoGpus(String),
    #[error("the node agent failed inside; see its log on this node")]
    Panicked(#[from] tokio::task::JoinError),
}

/// Serves the kubelet.
pub struct Service {
    inner: Arc<Inner>,
    health: watch::Receiver<Arc<Vec<DeviceHealth>>>,
}

struct Inner {
    driver: DriverName,
    boot_id: BootId,
    claims: Box<dyn ClaimSource>,
    executor: Arc<Executor>,
    survey: watch::Receiver<Option<Arc<Survey>>>,
    turns: Turns,
    released: Released,
    /// Told when a claim is refused because another holds its device.
    conflicts: Arc<Notify>,
    metrics: CallMetrics,
}

impl Service {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        driver: DriverName,
        boot_id: BootId,
        claims: Box<dyn ClaimSource>,
        executor: Arc<Executor>,
        survey: watch::Receiver<Option<Arc<Survey>>>,
        health: watch::Receiver<Arc<Vec<DeviceHealth>>>,
    ) -> Self {
        let (turns, released) = (Turns::default(), Released::default());
        let inner = Inner {
            driver,
            boot_id,
            claims,
            executor,
            survey,
            turns,
            released,
            conflicts: Arc::default(),
            metrics: CallMetrics::default(),
        };
        Self { inner: Arc::new(inner), health }
    }

    /// How long its calls take.
    #[must_use]
    pub fn metrics(&self) -> &CallMetrics {
        &self.inner.metrics
    }

    /// The pods of the claims that it has prepared.
    #[must_use]
    pub fn pods(&self) -> Arc<ClaimPods> {
        Arc::clone(self.inner.released.pods())
    }

    /// To be told when a claim is ended by another than the kubelet.
    #[must_use]
    pub fn released(&self) -> Released {
        self.inner.released.clone()
    }

    /// Is told whenever a claim is refused because another one holds its device.
    #[must_use]
    pub fn conflicts(&self) -> Arc<Notify> {
        Arc::clone(&self.inner.conflicts)
    }
}

impl ClaimService for Service {
    async fn prepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> Vec<(ClaimUid, Result<Vec<PreparedDevice>, String>)> {
        each(&self.inner, claims, Operation::Prepare, |inner, claim| async move {
            inner.prepare(&claim).await
        })
        .await
    }

    async fn unprepare(&self, claims: Vec<ClaimRef>) -> Vec<(ClaimUid, Result<(), String>)> {
        each(&self.inner, claims, Operation::Unprepare, |inner, claim| async move {
            inner.unprepare(&claim).await
        })
        .await
    }

    fn health(&self) -> watch::Receiver<Arc<Vec<DeviceHealth>>> {
        self.health.clone()
    }
}

/// Runs `call` for each claim at once, and makes one text of each failure: it reaches the
/// pod's event and the log.
async fn each<T, F>(
    inner: &Arc<Inner>,
    claims: Vec<ClaimRef>,
    operation: Operation,
    call: impl Fn(Arc<Inner>, ClaimRef) -> F,
) -> Vec<(ClaimUid, Result<T, String>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, CallError>> + Send + 'static,
{
    let calls = claims.into_iter().map(|claim| {
        let span = inner.span(operation, &claim);
        let uid = claim.uid.clone();
        let began = std::time::Instant::now();
        let task = tokio::spawn(call(Arc::clone(inner), claim).instrument(span.clone()));
        async move {
            let result = task.await.unwrap_or_else(|error| Err(error.into()));
            inner.metrics.ended(operation, outcome(&result), began.elapsed());
            span.in_scope(|| match &result {
                Ok(_) => tracing::debug!("done"),
                Err(error) => tracing::warn!(%error, "failed"),
            });
            (uid, result.map_err(|error| error.to_string()))
        }
    });
    join_all(calls).await
}

fn outcome<T>(result: &Result<T, CallError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(CallError::Execute(ExecuteError::Refused(_))) => Outcome::Refused,
        Err(_) => Outcome::Failed,
    }
}

impl Inner {
    /// What every line has that is logged in the call, whatever the level. A prepare learns the
    /// claim's pods when it reads the claim, an unprepare has what was learned.
    fn span(&self, operation: Operation, claim: &ClaimRef) -> tracing::Span {
        let name = operation.name();
        let span =
            tracing::error_span!("claim", operation = name, %claim, uid = %claim.uid, pods = Empty);
        if operation == Operation::Unprepare {
            self.tell_pods(&span, claim);
        }
        span
    }

    fn tell_pods(&self, span: &tracing::Span, claim: &ClaimRef) {
        let pods = self.released.pods().names(&claim.uid);
        if !pods.is_empty() {
            span.record("pods", pods);
        }
    }

    async fn prepare(self: &Arc<Self>, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, CallError> {
        let answer = self.prepare_in_turn(claim).await;
        let holds_nothing = match &answer {
            Ok(devices) => devices.is_empty(),
            // What can't be read may be held.
            Err(_) => matches!(self.executor.journal.get(&claim.uid), Ok(None)),
        };
        if holds_nothing {
            // It may never be heard of again.
            self.released.pods().forget(&claim.uid);
        }
        answer
    }

    async fn prepare_in_turn(
        self: &Arc<Self>,
        claim: &ClaimRef,
    ) -> Result<Vec<PreparedDevice>, CallError> {
        let mut clock = self.metrics.clock(Operation::Prepare);
        let _turn = self.turns.take(&claim.uid).await;
        let lock = self.lock(&claim.uid).await?;
        clock.ends(Phase::Wait);
        // Read under the lock: what was read before an unprepare must not be acted on after it.
        let object = self.claims.get(claim).await;
        clock.ends(Phase::GetClaim);
        let object = object?;
        self.released.pods().learn(&claim.uid, &object);
        self.tell_pods(&tracing::Span::current(), claim);
        let allocation =
            Allocation::of(&object, claim, &self.driver).map_err(ExecuteError::from)?;
        if allocation.devices.is_empty() {
            // All its devices are other drivers': nothing to prepare, nothing to remember.
            return Ok(Vec::new());
        }
        let (lock, allocation) = (Arc::new(lock), Arc::new(allocation));
        let mut released = self.released.watch();
        let deadline = Instant::now() + RELEASE;
        loop {
            released.mark_unchanged();
            let is_last = Instant::now() >= deadline;
            let answer = self.prepare_now(&lock, &allocation, &mut clock).await;
            let is_held_by_another = matches!(&answer,
                Err(CallError::Execute(ExecuteError::Refused(refusal)))
                    if refusal.ends_with_another_claim());
            if !is_held_by_another {
                return answer;
            }
            if is_last {
                self.conflicts.notify_one();
                return answer;
            }
            // Nothing but the claim itself is locked meanwhile. The other process of a rolling
            // update tells nobody of what it releases: hence a last look at the deadline.
            let _is_released = timeout_at(deadline, released.changed()).await;
            clock.ends(Phase::Wait);
        }
    }

    async fn prepare_now(
        self: &Arc<Self>,
        lock: &Arc<ClaimLock>,
        allocation: &Arc<Allocation>,
        clock: &mut PhaseClock<'_>,
    ) -> Result<Vec<PreparedDevice>, CallError> {
        let survey = self.survey.borrow().clone().ok_or(CallError::NoSurvey)?;
        if let Some(trouble) = &survey.trouble {
            return Err(CallError::NoGpus(trouble.to_string()));
        }
        refuse_missing(allocation, &survey)?;
        let (inner, lock, allocation) =
            (Arc::clone(self), Arc::clone(lock), Arc::clone(allocation));
        let prepare = move || inner.executor.prepare(&lock, &allocation, &survey.view);
        let (record, spent) = blocking(move || by_phase(prepare)).await?;
        clock.executed(spent);
        let record = record?;
        Ok(record.devices.into_iter().map(answer).collect())
    }

    async fn unprepare(self: &Arc<Self>, claim: &ClaimRef) -> Result<(), CallError> {
        let mut clock = self.metrics.clock(Operation::Unprepare);
        let _turn = self.turns.take(&claim.uid).await;
        let lock = self.lock(&claim.uid).await?;
        clock.ends(Phase::Wait);
        let inner = Arc::clone(self);
        let unprepare = move || inner.executor.unprepare(&lock, &inner.boot_id);
        let (unprepared, spent) = blocking(move || by_phase(unprepare)).await?;
        clock.executed(spent);
        unprepared?;
        self.released.note(&claim.uid);
        Ok(())
    }

    /// Nobody in this process holds the claim (it is our turn), so this waits only for the
    /// other process of a rolling update; then not on a thread that serves others.
    async fn lock(self: &Arc<Self>, uid: &ClaimUid) -> Result<ClaimLock, CallError> {
        if let Ok(lock) = self.executor.lock_claim(uid, Duration::ZERO) {
            return Ok(lock);
        }
        let inner = Arc::clone(self);
        let uid = uid.clone();
        let lock = blocking(move || inner.executor.lock_claim(&uid, PATIENCE)).await?;
        Ok(lock.map_err(ExecuteError::from)?)
    }
}

/// A GPU that doesn't answer stays published, so that it can be tainted, and can't be had.
fn refuse_missing(allocation: &Allocation, survey: &Survey) -> Result<(), ExecuteError> {
    let kinds = allocation.devices.iter().filter_map(|d| survey.view.devices.get(&d.device));
    let mut gpus = kinds.map(gpu_dra_model::DeviceKind::gpu);
    match gpus.find(|gpu| survey.missing.contains(gpu)) {
        Some(gpu) => Err(EffectError::GpuGone(gpu.clone()).into()),
        None => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work)).await
}

fn answer(device: HeldDevice) -> PreparedDevice {
    PreparedDevice {
        request_names: device.requests,
        pool: device.pool,
        device: device.device,
        cdi_ids: vec![device.cdi_device],
        share_id: device.share_id,
    }
}

/// Calls for one claim take turns, first come, first served.
#[derive(Default)]
struct Turns(Mutex<HashMap<ClaimUid, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    async fn take(&self, uid: &ClaimUid) -> tokio::sync::OwnedMutexGuard<()> {
        let mutex = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = turns.get(uid).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                turns.retain(|_, turn| turn.strong_count() > 0);
                let mutex = Arc::default();
                turns.insert(uid.clone(), Arc::downgrade(&mutex));
                mutex
            })
        };
        mutex.lock_owned().await
    }
}
