//! One thread a daemon: brings it up, waits for its end, brings it up again, until it is
//! told to stop it.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::backoff;
use crate::daemons::{DaemonError, Waited};
use crate::host::Shared;
use crate::journal::{Record, Wish};
use crate::lifecycle::{LifecycleError, Up};
use crate::protocol::{DaemonState, Status};
use crate::spec::{DaemonId, DaemonSpec};
use crate::wake::Wake;

/// What a supervisor is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Keep the daemon running.
    Run,
    /// End it, remove everything of it, and end.
    Stop,
    /// End, and leave the daemon to the next life.
    Leave,
}

pub(crate) struct Supervisor {
    /// None for a daemon that nobody asked for, which can only be stopped.
    pub(crate) spec: Option<DaemonSpec>,
    order: Mutex<Order>,
    wake: Wake,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// Takes a daemon in hand: keeps it running as the record says, or ends it.
    pub(crate) fn keep(shared: &Arc<Shared>, record: Record) -> io::Result<Arc<Self>> {
        let order = match record.wish {
            Wish::Run => Order::Run,
            Wish::Stop => Order::Stop,
        };
        Self::start(shared, record.id.clone(), Some(record), order)
    }

    /// Ends a daemon that has no record.
    pub(crate) fn end(shared: &Arc<Shared>, id: DaemonId) -> io::Result<Arc<Self>> {
        Self::start(shared, id, None, Order::Stop)
    }

    fn start(
        shared: &Arc<Shared>,
        id: DaemonId,
        record: Option<Record>,
        order: Order,
    ) -> io::Result<Arc<Self>> {
        let supervisor = Arc::new(Self {
            spec: record.as_ref().map(|record| record.spec.clone()),
            order: Mutex::new(order),
            wake: Wake::new()?,
            thread: Mutex::default(),
        });
        let (own, shared) = (Arc::clone(&supervisor), Arc::clone(shared));
        let thread =
            std::thread::Builder::new().name("mps-daemon".to_owned()).spawn(move || {
                Keeper { own: &own, shared: &shared, id, starts: 0, reason: None }.run(record);
            })?;
        *supervisor.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(supervisor)
    }

    pub(crate) fn order(&self) -> Order {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives another order. Nothing follows a stop but leaving.
    pub(crate) fn tell(&self, order: Order) {
        let mut current = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != Order::Leave {
            *current = order;
        }
        self.wake.set();
    }

    /// Has a pause between two tries end now.
    pub(crate) fn hurry(&self) {
        self.wake.set();
    }

    /// Waits for the thread's end.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("an MPS supervisor has panicked");
        }
    }
}

/// What the thread has.
struct Keeper<'a> {
    own: &'a Supervisor,
    shared: &'a Shared,
    id: DaemonId,
    starts: u32,
    reason: Option<String>,
}

impl Keeper<'_> {
    fn run(mut self, record: Option<Record>) {
        let mut failures = 0;
        loop {
            let pause = match (self.own.order(), &record) {
                (Order::Leave, _) => return,
                (Order::Run, Some(record)) => self.keep(record, &mut failures),
                _ if self.stop() => return,
                _ => {
                    failures += 1;
                    Some(backoff::pause(failures, false))
                }
            };
            if let Some(pause) = pause {
                self.pause(pause);
            }
        }
    }

    /// From one start to the end. Gives the pause before the next try.
    fn keep(&mut self, record: &Record, failures: &mut u32) -> Option<Duration> {
        self.count();
        self.say(DaemonState::Starting, false);
        let give_up = || self.own.order() != Order::Run;
        let up = self.shared.lifecycle.bring_up(record, &give_up);
        self.count();
        let was_ready = up.is_ok();
        let reason = match up {
            Ok(up) => {
                self.say(DaemonState::Ready { pid: up.process.pid() }, false);
                let pid = up.process.pid();
                tracing::info!(daemon = %self.id, pid, adopted = up.adopted, "MPS daemon is ready");
                let since = Instant::now();
                let how = self.until_its_end(&up)?;
                if since.elapsed() >= backoff::STABLE {
                    *failures = 0;
                }
                let places = self.shared.lifecycle.run.places(&self.id);
                let said = self.shared.lifecycle.daemons.last_words(&places);
                let said = said.unwrap_or_else(|| "no word".to_owned());
                format!("MPS control daemon {how} and its clients are lost; it said: {said}")
            }
            Err(LifecycleError::Daemon(DaemonError::GivenUp)) => return None,
            Err(error) => in_full(&error),
        };
        *failures = failures.saturating_add(1);
        let pause = backoff::pause(*failures, was_ready);
        tracing::warn!(daemon = %self.id, %reason, retry_ms = pause.as_millis(), "MPS daemon failed");
        self.reason = Some(reason);
        let retry_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.say(DaemonState::Failed { retry_ms }, true);
        Some(pause)
    }

    fn count(&mut self) {
        match self.shared.lifecycle.starts(&self.id) {
            Ok(starts) => self.starts = starts,
            Err(error) => {
                let reason = in_full(&error);
                tracing::warn!(daemon = %self.id, %reason, "MPS daemon's starts are unknown");
            }
        }
    }

    /// Waits until the daemon ends, and says how; None when there is another order.
    fn until_its_end(&self, up: &Up) -> Option<String> {
        while self.own.order() == Order::Run {
            match up.process.wait(Some(&self.own.wake), None) {
                Ok(Waited::Ended(how)) => return Some(how),
                Ok(Waited::Woken | Waited::TimedOut) => {}
                // As good as ended: it is looked for, and ended if need be, at the next start.
                Err(error) => return Some(format!("can't be watched ({})", in_full(&error))),
            }
        }
        None
    }

    /// True when nothing of the daemon is left.
    fn stop(&mut self) -> bool {
        self.say(DaemonState::Stopping, false);
        match self.shared.lifecycle.tear_down(&self.id) {
            Ok(()) => {
                tracing::info!(daemon = %self.id, "MPS daemon is stopped");
                self.shared.forget(&self.id);
                true
            }
            Err(error) => {
                let reason = in_full(&error);
                tracing::warn!(daemon = %self.id, %reason, "MPS daemon not stopped");
                self.reason = Some(reason);
                self.say(DaemonState::Stopping, true);
                false
            }
        }
    }

    fn pause(&self, pause: Duration) {
        if let Err(error) = self.own.wake.wait(pause) {
            tracing::warn!(%error, "MPS supervisor can't wait to be woken");
            std::thread::sleep(pause);
        }
    }

    fn say(&self, state: DaemonState, failed: bool) {
        let status =
            Status { id: self.id.clone(), state, starts: self.starts, reason: self.reason.clone() };
        self.shared.board.set(status, failed);
    }
}

/// The error with what caused it, in one line.
pub(crate) fn in_full(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
