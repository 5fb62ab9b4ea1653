//! The task itself: it waits for a new desired pool, for news of our slices and for its
//! own timers, and brings the API server in line when something differs.

use std::sync::Arc;
use std::time::Duration;

use gpu_dra_slices::{DesiredPool, Owner, PackedPool, PoolRef, Write, plan_writes, validate_pool};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::backoff::{Backoff, Pace};
use crate::cache::{Cache, Seen};
use crate::effective::Limits;
use crate::error::{PublishError, Retry};
use crate::follower::{Follower, Notice};
use crate::owner::OwnerLookup;
use crate::status::PublishStatus;
use crate::writer::{self, Outcome};

/// News that come together are dealt with together. The first publish doesn't wait.
const DEBOUNCE: Duration = Duration::from_millis(5);

/// Keeps one pool published.
///
/// ```no_run
/// # use gpu_dra_publisher::Publisher;
/// # async fn start(client: kube::Client, pool: gpu_dra_slices::PoolRef) {
/// let (desired, receiver) = tokio::sync::watch::channel(None);
/// let (publisher, status) = Publisher::new(client, pool, receiver);
/// tokio::spawn(publisher.run());
/// # drop((desired, status)); }
/// ```
pub struct Publisher {
    api: Api<ResourceSlice>,
    pool: PoolRef,
    desired: watch::Receiver<Option<Arc<PackedPool>>>,
    status: watch::Sender<PublishStatus>,
    wanted: Option<Arc<PackedPool>>,
    cache: Cache,
    owner: OwnerLookup,
    limits: Limits,
    /// When to compare next; None while all is well.
    due: Option<Instant>,
    /// After an error, no write before.
    not_before: Option<Instant>,
    /// The next writes undo what someone else did.
    is_repair: bool,
    soon: Backoff,
    rarely: Backoff,
    pace: Pace,
}

/// How much a pool is.
#[derive(Debug, Clone, Copy)]
struct Size {
    devices: usize,
    slices: usize,
}

impl Size {
    fn of(pool: &DesiredPool) -> Self {
        Self { devices: pool.devices().count(), slices: pool.slices.len() }
    }
}

impl Publisher {
    /// A publisher that does nothing until [`run`](Self::run). While the desired pool is
    /// `None` it gets ready, but writes nothing.
    ///
    /// The client should not retry by itself (`Config::default_retry = false`): it would
    /// wait in secret, and repeat creates whose answer was lost.
    #[must_use]
    pub fn new(
        client: Client,
        pool: PoolRef,
        desired: watch::Receiver<Option<Arc<PackedPool>>>,
    ) -> (Self, watch::Receiver<PublishStatus>) {
        let (status, receiver) = watch::channel(PublishStatus::default());
        let publisher = Self {
            api: Api::all(client.clone()),
            owner: OwnerLookup::new(Api::all(client), pool.node.to_string()),
            pool,
            desired,
            status,
            wanted: None,
            cache: Cache::default(),
            limits: Limits::default(),
            due: None,
            not_before: None,
            is_repair: false,
            soon: Backoff::new(Duration::from_millis(100), Duration::from_secs(30)),
            rarely: Backoff::new(Duration::from_secs(1), Duration::from_secs(300)),
            pace: Pace::new(),
        };
        (publisher, receiver)
    }

    /// Publishes until the sender of the desired pool is dropped, or until this future is.
    /// Either way the slices stay.
    pub async fn run(mut self) {
        let mut follower = Follower::new(self.api.clone(), &self.pool);
        self.take_desired();
        loop {
            let ready =
                self.wanted.is_some() && self.cache.is_synced() && self.owner.owner().is_some();
            let due = self.due.filter(|_| ready);
            tokio::select! {
                changed = self.desired.changed() => match changed {
                    Ok(()) => self.take_desired(),
                    Err(_sender_dropped) => return,
                },
                answer = self.owner.next() => if let Err(error) = answer {
                    self.report(error);
                },
                notice = follower.next() => self.on_notice(notice),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if self.reconcile().await.is_err_and(|error| error.leaves_doubt()) {
                        self.cache.unsync();
                        follower.restart();
                    }
                }
            }
        }
    }

    fn take_desired(&mut self) {
        let wanted = self.desired.borrow_and_update().clone();
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        self.limits.forget_contents();
        // What stood in the way of the old pool may not stand in the way of this one.
        let error = self.status.borrow().last_error.clone();
        if error.is_some_and(|error| error.retry() != Retry::Soon) {
            self.not_before = None;
        }
        let first = self.status.borrow().published_generation.is_none();
        self.schedule(if first { Duration::ZERO } else { DEBOUNCE });
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Event(event) => self.on_event(*event),
            Notice::Broken(error) => {
                warn!(error = &error as &dyn std::error::Error, "watch of our slices failed");
                self.status.send_modify(|status| {
                    status.failures_total += 1;
                    status.watch_error = Some(Arc::new(error));
                });
            }
            Notice::Settled => {
                self.status.send_modify(|status| status.watch_error = None);
                // The server was away: perhaps it was upgraded and takes more now.
                if !self.limits.is_empty() {
                    self.limits.forget();
                    self.schedule(DEBOUNCE);
                }
            }
        }
    }

    fn on_event(&mut self, event: Event<ResourceSlice>) {
        let first_list =
            matches!(event, Event::InitDone) && self.status.borrow().published_generation.is_none();
        match self.cache.observe(event) {
            Seen::Nothing => {}
            Seen::Changed if first_list => self.schedule(Duration::ZERO),
            Seen::Changed => self.schedule_repair(),
            Seen::Removed => {
                self.owner.forget();
                self.schedule_repair();
            }
        }
    }

    fn schedule_repair(&mut self) {
        self.is_repair = true;
        self.schedule(self.pace.delay(DEBOUNCE));
    }

    /// Compare after the delay, or sooner if that is planned already.
    fn schedule(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        let at = self.not_before.map_or(at, |not_before| at.max(not_before));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Brings the server in line, and decides when to try again if that fails.
    async fn reconcile(&mut self) -> Result<(), Arc<PublishError>> {
        self.due = None;
        let (Some(wanted), Some(owner)) = (self.wanted.clone(), self.owner.owner().cloned()) else {
            return Ok(());
        };
        match self.write_all(&wanted, &owner).await {
            Ok(size) => {
                self.soon.reset();
                self.rarely.reset();
                self.not_before = None;
                self.succeeded(size);
                Ok(())
            }
            Err(error) => {
                let wait = match error.retry() {
                    Retry::Soon => Some(self.soon.next()),
                    Retry::Rarely => Some(self.rarely.next()),
                    Retry::OnChange => None,
                };
                if let Some(wait) = wait {
                    let wait = wait.max(error.retry_after().unwrap_or_default());
                    self.not_before = Some(Instant::now() + wait);
                    self.schedule(wait);
                }
                Err(self.report(error))
            }
        }
    }

    /// All writes that are needed. Gives the size of the pool that the server holds now. Each
    /// round but the last finds a feature missing, so there are few.
    async fn write_all(
        &mut self,
        wanted: &PackedPool,
        owner: &Owner,
    ) -> Result<Size, PublishError> {
        loop {
            let (size, writes) = self.plan(wanted, owner)?;
            if writes.is_empty() {
                return Ok(size);
            }
            writes.iter().try_for_each(writer::check)?;
            if std::mem::take(&mut self.is_repair) {
                self.pace.repaired(Instant::now());
            }
            let mut lacks = false;
            for write in writes {
                let outcome = writer::execute(&self.api, write).await?;
                self.status.send_modify(|status| status.writes_total += 1);
                lacks = self.take_outcome(outcome);
                if lacks {
                    break;
                }
            }
            if !lacks {
                return Ok(Size::of(&self.limits.apply(wanted.unpack()?)));
            }
        }
    }

    /// What to write. The pools are unpacked in here alone, not while the server is waited for.
    fn plan(&self, wanted: &PackedPool, owner: &Owner) -> Result<(Size, Vec<Write>), PublishError> {
        let pool = self.limits.apply(wanted.unpack()?);
        let writes = plan_writes(&self.cache.slices()?, &pool, &self.pool, owner);
        if !writes.is_empty() {
            self.status.send_modify(|status| status.in_sync = false);
            writer::first("pool", validate_pool(&pool))?;
        }
        Ok((Size::of(&pool), writes))
    }

    /// True if the rest of the plan would be unsafe on this server.
    fn take_outcome(&mut self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Removed(name) => {
                self.cache.removed(&name);
                false
            }
            Outcome::Stored { sent, got } => {
                let lacks = self.limits.learn(&sent, &got);
                self.cache.wrote(*got);
                lacks
            }
        }
    }

    fn succeeded(&mut self, size: Size) {
        self.is_repair = false;
        let generation = self.cache.generation(&self.pool);
        let status = PublishStatus {
            published_generation: generation,
            in_sync: true,
            devices: size.devices,
            slices: size.slices,
            last_error: None,
            dropped_fields: self.limits.dropped(),
            missing_features: self.limits.missing(),
            ..self.status.borrow().clone()
        };
        if !self.status.borrow().in_sync {
            info!(
                pool = %self.pool.pool,
                generation,
                devices = status.devices,
                slices = status.slices,
                "pool is published"
            );
        }
        self.status.send_replace(status);
    }

    fn report(&mut self, error: PublishError) -> Arc<PublishError> {
        warn!(error = &error as &dyn std::error::Error, pool = %self.pool.pool, "not published");
        let error = Arc::new(error);
        self.status.send_modify(|status| {
            status.failures_total += 1;
            status.last_error = Some(error.clone());
        });
        error
    }
}
