//! Gives up claims that are held here and nowhere known any more, which the kubelet would never
//! end because its own state was lost. It looks at the start, when a claim finds its device in
//! use, and every few hours: one GET a claim held. A steady node asks nothing in between.
//!
//! `claims::sweep` decides. A kubelet that has started anew between two looks may still end what
//! it knows, so that the first of them doesn't count.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gpu_dra_claims::incumbent::UNKNOWN_NAMESPACE;
use gpu_dra_claims::sweep::{Seen, Sweep, Verdict, seen};
use gpu_dra_claims::{HeldDevice, HeldPart, KnownStep, Record};
use gpu_dra_executor::{ExecuteError, Executor};
use gpu_dra_kubelet::RegistrationState;
use gpu_dra_model::{BootId, DriverName};
use gpu_dra_nvml::{GpuError, Gpus};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::claim_pods::Released;
use crate::claim_source::{ClaimSource, ClaimSourceError};
use crate::events::{Announcer, Severity};

/// When is looked.
#[derive(Debug, Clone, Copy)]
pub struct SweepTimes {
    /// The least time between two looks, and so before a claim is given up.
    pub pause: Duration,
    /// Between two looks while nothing is wrong.
    pub every: Duration,
}

impl Default for SweepTimes {
    fn default() -> Self {
        Self { pause: Duration::from_secs(300), every: Duration::from_secs(6 * 3600) }
    }
}

/// Looks for claims that are long gone.
pub struct Sweeper {
    /// Where claims are read.
    pub claims: Box<dyn ClaimSource>,
    /// What is held, and how it is ended.
    pub executor: Arc<Executor>,
    /// Asked for what computes on a claim's devices.
    pub gpus: Arc<dyn Gpus>,
    /// The driver's name.
    pub driver: DriverName,
    /// The running kernel's boot.
    pub boot_id: BootId,
    /// Where the operator is told.
    pub announcer: Announcer,
    /// Told of each claim that is given up, as of each that the kubelet ends.
    pub released: Released,
    /// When is looked.
    pub times: SweepTimes,
}

impl Sweeper {
    /// Looks until it is dropped. `registration` says whether there is a kubelet that could
    /// end claims, `conflicts` is told when a claim found its device in use.
    pub async fn run(
        self,
        mut registration: watch::Receiver<RegistrationState>,
        conflicts: Arc<Notify>,
    ) {
        let start = Instant::now();
        let mut sweep = Sweep::new(self.times.pause);
        loop {
            let has_changed = registration.has_changed().unwrap_or(true);
            if registration.wait_for(RegistrationState::is_registered).await.is_err() {
                return;
            }
            if has_changed {
                sweep.forget();
            }
            let looked = Instant::now();
            self.look(&mut sweep, looked - start).await;
            let next =
                looked + if sweep.is_waiting() { self.times.pause } else { self.times.every };
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = conflicts.notified() => {
                    tokio::time::sleep_until(looked + self.times.pause).await;
                }
                changed = registration.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    sweep.forget();
                    tokio::time::sleep_until(looked + self.times.pause).await;
                }
            }
        }
    }

    async fn look(&self, sweep: &mut Sweep, now: Duration) {
        let journal = Arc::clone(&self.executor.journal);
        let held = match tokio::task::spawn_blocking(move || journal.all()).await {
            Ok(Ok(held)) => held,
            Ok(Err(error)) => return tracing::warn!(%error, "claims held can't be looked through"),
            Err(error) => return tracing::error!(%error, "looking through claims failed inside"),
        };
        self.released.pods().retain(|uid| held.iter().any(|record| record.claim.uid == *uid));
        sweep.retain(|uid| held.iter().any(|record| record.claim.uid == *uid));
        for record in held {
            let seen = self.seen(&record).await;
            let idle = matches!(seen, Seen::Gone(_))
                && sweep.is_due(&record.claim.uid, now)
                && self.is_idle(Arc::clone(&record)).await;
            if let Verdict::GiveUp(how) = sweep.judge(&record.claim.uid, seen, now, idle) {
                match self.give_up(Arc::clone(&record)).await {
                    Ok(()) => {
                        self.released.note(&record.claim.uid);
                        let message = format!(
                            "claim {} was still held here although {how}, and the kubelet didn't end it: its devices are free again",
                            record.claim
                        );
                        self.announcer.announce(Severity::Warning, "ClaimGivenUp", message);
                    }
                    Err(error) => {
                        tracing::warn!(claim = %record.claim, %error, "a claim that is gone stays");
                    }
                }
            }
        }
    }

    async fn seen(&self, record: &Record) -> Seen {
        if record.claim.namespace == UNKNOWN_NAMESPACE || record.known_steps().is_none() {
            return Seen::Unknown;
        }
        match self.claims.get(&record.claim).await {
            Ok(object) => seen(record, Some(&object), &self.driver),
            Err(ClaimSourceError::NotFound(_)) => seen(record, None, &self.driver),
            Err(error @ ClaimSourceError::Unavailable { .. }) => {
                tracing::debug!(%error, "claim not looked at");
                Seen::Unknown
            }
        }
    }

    async fn is_idle(&self, record: Arc<Record>) -> bool {
        let gpus = Arc::clone(&self.gpus);
        let idle = tokio::task::spawn_blocking(move || is_idle(gpus.as_ref(), &record)).await;
        idle.unwrap_or(false)
    }

    async fn give_up(&self, record: Arc<Record>) -> Result<(), GiveUpError> {
        let (executor, boot) = (Arc::clone(&self.executor), self.boot_id.clone());
        let ended = tokio::task::spawn_blocking(move || {
            // Busy: a call for it is under way, so the kubelet knows it.
            let lock = executor
                .lock_claim(&record.claim.uid, Duration::ZERO)
                .map_err(ExecuteError::from)?;
            executor.unprepare(&lock, &boot)
        });
        Ok(ended.await??)
    }
}

/// Why a claim that is gone stays; it is tried again.
#[derive(Debug, thiserror::Error)]
enum GiveUpError {
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    #[error("the node agent failed inside; see its log on this node")]
    Inside(#[from] tokio::task::JoinError),
}

/// Whether nothing computes on what the claim has. The one server of an MPS daemon isn't
/// somebody who uses it; whose a process on a shared GPU is can't be told.
fn is_idle(gpus: &dyn Gpus, record: &Record) -> bool {
    let steps = record.known_steps().unwrap_or_default();
    let served = |device: &HeldDevice| {
        steps.iter().any(|step| match step {
            KnownStep::MpsDaemon { devices, .. } => devices.contains(&device.device),
            KnownStep::ShareDaemon { gpu, .. } => *gpu == device.gpu,
            _ => false,
        })
    };
    record.devices.iter().filter(|device| !device.admin).all(|device| {
        let instance = match &device.part {
            None => None,
            Some(HeldPart::Static { device, .. }) => Some(device.instance),
            Some(HeldPart::Partition(at)) => match record.made(&device.gpu, *at) {
                Some(made) => Some(made.instance),
                // Never made, or not by us: nothing of the claim's can run there.
                None => return true,
            },
        };
        let uses = match gpus.processes(&device.gpu, SystemTime::now()) {
            Ok(all) => all.into_iter().filter(|process| {
                instance.is_none() || process.instance.is_none_or(|(on, _)| Some(on) == instance)
            }),
            Err(GpuError::Gone { .. }) => return true,
            Err(_) => return false,
        };
        uses.count() <= usize::from(served(device))
    })
}
