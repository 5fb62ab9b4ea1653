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
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::claim_source::{ClaimSource, ClaimSourceError};
use crate::survey::Survey;

/// How long a call waits for the other process of a rolling update: below the kubelet's 45 s.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let turns = Turns::default();
        let inner = Inner { driver, boot_id, claims, executor, survey, turns };
        Self { inner: Arc::new(inner), health }
    }
}

impl ClaimService for Service {
    async fn prepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> Vec<(ClaimUid, Result<Vec<PreparedDevice>, String>)> {
        each(
            &self.inner,
            claims,
            "prepare",
            |inner, claim| async move { inner.prepare(&claim).await },
        )
        .await
    }

    async fn unprepare(&self, claims: Vec<ClaimRef>) -> Vec<(ClaimUid, Result<(), String>)> {
        each(&self.inner, claims, "unprepare", |inner, claim| async move {
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
    operation: &'static str,
    call: impl Fn(Arc<Inner>, ClaimRef) -> F,
) -> Vec<(ClaimUid, Result<T, String>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, CallError>> + Send + 'static,
{
    let calls = claims.into_iter().map(|claim| {
        let span = tracing::info_span!("claim", %claim, uid = %claim.uid);
        let uid = claim.uid.clone();
        let task = tokio::spawn(call(Arc::clone(inner), claim).instrument(span.clone()));
        async move {
            let result = task.await.unwrap_or_else(|error| Err(error.into()));
            span.in_scope(|| match &result {
                Ok(_) => tracing::debug!(operation, "done"),
                Err(error) => tracing::warn!(operation, %error, "failed"),
            });
            (uid, result.map_err(|error| error.to_string()))
        }
    });
    join_all(calls).await
}

impl Inner {
    async fn prepare(self: &Arc<Self>, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, CallError> {
        let _turn = self.turns.take(&claim.uid).await;
        let lock = self.lock(&claim.uid).await?;
        // Read under the lock: what was read before an unprepare must not be acted on after it.
        let object = self.claims.get(claim).await?;
        let allocation =
            Allocation::of(&object, claim, &self.driver).map_err(ExecuteError::from)?;
        if allocation.devices.is_empty() {
            // All its devices are other drivers': nothing to prepare, nothing to remember.
            return Ok(Vec::new());
        }
        let survey = self.survey.borrow().clone().ok_or(CallError::NoSurvey)?;
        if let Some(trouble) = &survey.trouble {
            return Err(CallError::NoGpus(trouble.clone()));
        }
        refuse_missing(&allocation, &survey)?;
        let inner = Arc::clone(self);
        let prepare = move || inner.executor.prepare(&lock, &allocation, &survey.view);
        let record = blocking(prepare).await??;
        Ok(record.devices.into_iter().map(answer).collect())
    }

    async fn unprepare(self: &Arc<Self>, claim: &ClaimRef) -> Result<(), CallError> {
        let _turn = self.turns.take(&claim.uid).await;
        let lock = self.lock(&claim.uid).await?;
        let inner = Arc::clone(self);
        let unprepare = move || inner.executor.unprepare(&lock, &inner.boot_id);
        Ok(blocking(unprepare).await??)
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
