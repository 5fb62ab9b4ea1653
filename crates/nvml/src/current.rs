//! Which session is open. At most one is at any time: a second initialisation beside a first
//! shows what the first saw (NVML counts its users and enumerates for the first alone), so a
//! new session waits until everybody has let go of the last.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::error::OpenError;
use crate::session::Session;
use crate::sysfs;
use crate::trees::Trees;

/// How long calls of the last session may hold up a new one. A call that hangs in the driver
/// must not stop all others for good.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(crate) struct Current {
    slot: Mutex<Slot>,
    /// Goes up whenever a session is closed, so that whoever holds one for long sees that
    /// without the lock, which may be held until they let go.
    closed: AtomicU64,
}

#[derive(Default)]
struct Slot {
    open: Option<Open>,
    /// Alive as long as calls of it are under way.
    last: Weak<Session>,
}

/// A session, and the GPUs that the kernel driver had bound when it was opened: NVML counts
/// those of its own start, so a session that is older than a GPU doesn't see it.
struct Open {
    session: Arc<Session>,
    bound: BTreeSet<String>,
}

/// A session that was open at some time.
pub(crate) struct Turn {
    pub(crate) session: Arc<Session>,
    closed_before: u64,
}

impl Current {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A panic while opening leaves nothing or a whole session, so the value is good.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Option<Turn> {
        let slot = self.lock();
        slot.open.as_ref().map(|open| Turn {
            session: Arc::clone(&open.session),
            closed_before: self.closed.load(Ordering::SeqCst),
        })
    }

    pub(crate) fn is(&self, turn: &Turn) -> bool {
        self.closed.load(Ordering::SeqCst) == turn.closed_before
    }

    pub(crate) fn get_or_open(
        &self,
        trees: &Trees,
        open: impl FnOnce() -> Result<Session, OpenError>,
    ) -> Result<Arc<Session>, OpenError> {
        let mut slot = self.lock();
        if let Some(open) = &slot.open {
            return Ok(Arc::clone(&open.session));
        }
        await_end(&slot.last);
        let bound = sysfs::bound_gpus(trees);
        let session = Arc::new(open()?);
        slot.open = Some(Open { session: Arc::clone(&session), bound });
        Ok(session)
    }

    pub(crate) fn close(&self) {
        self.let_go(&mut self.lock());
    }

    /// Closes a session that no longer shows the GPUs that the driver has.
    pub(crate) fn close_if_outdated(&self, trees: &Trees) {
        let mut slot = self.lock();
        if slot.open.as_ref().is_some_and(|open| open.bound != sysfs::bound_gpus(trees)) {
            self.let_go(&mut slot);
        }
    }

    fn let_go(&self, slot: &mut Slot) {
        if let Some(open) = slot.open.take() {
            slot.last = Arc::downgrade(&open.session);
            self.closed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn await_end(last: &Weak<Session>) {
    let start = Instant::now();
    while last.strong_count() > 0 {
        if start.elapsed() > PATIENCE {
            warn!("calls of the last NVML session are still under way; GPUs may be missing");
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}
