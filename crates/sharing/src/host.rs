//! The MPS host without its socket: which daemons there are, and what is answered to who
//! asks for one.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::board::Board;
use crate::journal::{Record, Wish};
use crate::lifecycle::{Lifecycle, LifecycleError};
use crate::protocol::{DaemonState, Refusal, RefusalKind, Status};
use crate::spec::{DaemonId, DaemonSpec};
use crate::supervisor::{Order, Supervisor};

/// As many daemons as a host runs: more than the MIG devices of any node.
const MOST_DAEMONS: usize = 256;

/// How long a call may wait, beyond what its steps may take. The kubelet gives up after 45 s.
const MARGIN: Duration = Duration::from_secs(10);

/// The host can't start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Journal or run folder can't be read.
    #[error(transparent)]
    Lifecycle(#[from] LifecycleError),
    /// No thread for a daemon.
    #[error("MPS host can't start a thread")]
    Thread(#[source] io::Error),
}

/// Keeps daemons running until it is dropped; then they run on, for the next life to adopt.
pub struct MpsHost {
    pub(crate) shared: Arc<Shared>,
}

/// What all threads have in common.
pub(crate) struct Shared {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) board: Board,
    supervisors: Mutex<BTreeMap<DaemonId, Arc<Supervisor>>>,
}

impl MpsHost {
    /// Takes every daemon in hand that the journal has. Returns at once: whether they serve
    /// is told by [`MpsHost::list`].
    ///
    /// # Errors
    /// When journal or run folder can't be read: then nobody knows what is to run.
    pub fn start(lifecycle: Lifecycle) -> Result<Self, HostError> {
        let recovered = lifecycle.recover()?;
        let shared =
            Arc::new(Shared { lifecycle, board: Board::default(), supervisors: Mutex::default() });
        for id in recovered.unasked {
            tracing::warn!(daemon = %id, "MPS daemon without a record; left alone until asked for");
            let status = Status { id, state: DaemonState::Unasked, starts: 0, reason: None };
            shared.board.set(status, false);
        }
        let host = Self { shared };
        for record in recovered.records {
            let id = record.id.clone();
            let supervisor = Supervisor::keep(&host.shared, record).map_err(HostError::Thread)?;
            host.shared.supervisors().insert(id, supervisor);
        }
        Ok(host)
    }

    /// Has the daemon serve, and waits until it does.
    ///
    /// # Errors
    /// It serves something else, or the next try to start it fails; tries go on until
    /// [`MpsHost::stop`].
    pub fn ensure(&self, id: &DaemonId, spec: &DaemonSpec) -> Result<Status, Refusal> {
        let shared = &self.shared;
        let limit = shared.longest();
        // One that is being stopped first goes: a claim was unprepared and is prepared again.
        let stopping = shared.supervisors().get(id).is_some_and(|s| s.order() != Order::Run);
        if stopping {
            self.wait_for_end(id)?;
        }
        let failures = shared.board.look(id, |entry| entry.map_or(0, |entry| entry.failures));
        {
            let mut supervisors = shared.supervisors();
            match supervisors.get(id) {
                Some(supervisor) if supervisor.spec.as_ref() != Some(spec) => {
                    return Err(refusal(
                        RefusalKind::Conflict,
                        format!("MPS daemon {id} serves other devices or limits; stop it first"),
                    ));
                }
                Some(supervisor) => supervisor.hurry(),
                None if supervisors.len() >= MOST_DAEMONS => {
                    return Err(refusal(
                        RefusalKind::Busy,
                        format!("this node runs {MOST_DAEMONS} MPS daemons, as many as it may"),
                    ));
                }
                None => {
                    let record = Record { id: id.clone(), spec: spec.clone(), wish: Wish::Run };
                    let supervisor = Supervisor::keep(shared, record).map_err(no_thread)?;
                    supervisors.insert(id.clone(), supervisor);
                }
            }
        }
        let outcome = shared.board.wait(id, limit, |entry| {
            let entry = entry?;
            match entry.status.state {
                DaemonState::Ready { .. } => Some(Ok(entry.status.clone())),
                _ if entry.failures > failures => {
                    let reason = entry.status.reason.clone().unwrap_or_default();
                    Some(Err(refusal(RefusalKind::NotReady, reason)))
                }
                _ => None,
            }
        });
        outcome.unwrap_or_else(|| {
            let said = format!("MPS daemon {id} isn't ready yet; it will be tried again");
            Err(refusal(RefusalKind::NotReady, said))
        })
    }

    /// Has nothing left of the daemon, and waits until it is so. An unknown one is fine.
    ///
    /// # Errors
    /// Something stays; tries go on.
    pub fn stop(&self, id: &DaemonId) -> Result<(), Refusal> {
        let shared = &self.shared;
        {
            let mut supervisors = shared.supervisors();
            if let Some(supervisor) = supervisors.get(id) {
                supervisor.tell(Order::Stop);
            } else if shared.board.look(id, |entry| entry.is_some()) {
                let supervisor = Supervisor::end(shared, id.clone()).map_err(no_thread)?;
                supervisors.insert(id.clone(), supervisor);
            } else {
                return Ok(());
            }
        }
        self.wait_for_end(id)
    }

    /// All daemons.
    #[must_use]
    pub fn list(&self) -> Vec<Status> {
        self.shared.board.all().0
    }

    fn wait_for_end(&self, id: &DaemonId) -> Result<(), Refusal> {
        let shared = &self.shared;
        let failures = shared.board.look(id, |entry| entry.map_or(0, |entry| entry.failures));
        let outcome = shared.board.wait(id, shared.longest(), |entry| match entry {
            None => Some(Ok(())),
            Some(entry)
                if entry.failures > failures && entry.status.state == DaemonState::Stopping =>
            {
                let reason = entry.status.reason.clone().unwrap_or_default();
                Some(Err(refusal(RefusalKind::NotStopped, reason)))
            }
            Some(_) => None,
        });
        outcome.unwrap_or_else(|| {
            let said = format!("MPS daemon {id} isn't stopped yet; it will be tried again");
            Err(refusal(RefusalKind::NotStopped, said))
        })
    }
}

impl Drop for MpsHost {
    fn drop(&mut self) {
        self.leave();
    }
}

impl MpsHost {
    /// Lets go of all daemons, which run on. Who waits for one is sent away.
    pub(crate) fn leave(&self) {
        let supervisors: Vec<_> = self.shared.supervisors().values().cloned().collect();
        for supervisor in &supervisors {
            supervisor.tell(Order::Leave);
        }
        self.shared.board.close();
        for supervisor in supervisors {
            supervisor.join();
        }
    }
}

impl Shared {
    fn supervisors(&self) -> MutexGuard<'_, BTreeMap<DaemonId, Arc<Supervisor>>> {
        self.supervisors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of a daemon is left. Under the lock, so that whoever asks for it next finds
    /// either all of it or nothing.
    pub(crate) fn forget(&self, id: &DaemonId) {
        let mut supervisors = self.supervisors();
        supervisors.remove(id);
        self.board.remove(id);
    }

    fn longest(&self) -> Duration {
        let patience = self.lifecycle.patience;
        patience.start + 2 * patience.answer + patience.end + MARGIN
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn no_thread(error: io::Error) -> Refusal {
    refusal(RefusalKind::Busy, format!("no thread for an MPS daemon: {error}"))
}

fn refusal(kind: RefusalKind, message: String) -> Refusal {
    Refusal { kind, message }
}
