//! The states of all daemons, for everybody who waits for one. It keeps the latest state and
//! no history, so that a slow watcher costs no memory: what it missed is told by
//! [`Status::starts`].

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::protocol::{Reply, Status};
use crate::spec::DaemonId;

#[derive(Default)]
pub(crate) struct Board {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    serial: u64,
    closed: bool,
    daemons: BTreeMap<DaemonId, Entry>,
}

/// One daemon on the board.
pub(crate) struct Entry {
    pub(crate) status: Status,
    /// How many tries to start or stop it have failed.
    pub(crate) failures: u64,
    serial: u64,
}

/// What a watcher has seen of each daemon.
pub(crate) type Seen = BTreeMap<DaemonId, u64>;

/// What a watcher has waited for.
pub(crate) enum News {
    Changes(Vec<Reply>),
    Nothing,
    Closed,
}

impl Board {
    pub(crate) fn set(&self, status: Status, failed: bool) {
        let mut inner = self.lock();
        inner.serial += 1;
        let serial = inner.serial;
        let failures = inner.daemons.get(&status.id).map_or(0, |entry| entry.failures);
        let failures = failures + u64::from(failed);
        inner.daemons.insert(status.id.clone(), Entry { status, failures, serial });
        self.changed.notify_all();
    }

    pub(crate) fn remove(&self, id: &DaemonId) {
        self.lock().daemons.remove(id);
        self.changed.notify_all();
    }

    /// Sends all watchers home.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn all(&self) -> (Vec<Status>, Seen) {
        let inner = self.lock();
        let seen = inner.daemons.iter().map(|(id, entry)| (id.clone(), entry.serial)).collect();
        (inner.daemons.values().map(|entry| entry.status.clone()).collect(), seen)
    }

    /// What `look` makes of one daemon.
    pub(crate) fn look<T>(&self, id: &DaemonId, look: impl FnOnce(Option<&Entry>) -> T) -> T {
        look(self.lock().daemons.get(id))
    }

    /// Waits until `look` makes something of one daemon; None when the time is over or the
    /// host stops.
    pub(crate) fn wait<T>(
        &self,
        id: &DaemonId,
        limit: Duration,
        mut look: impl FnMut(Option<&Entry>) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut inner = self.lock();
        loop {
            if let Some(found) = look(inner.daemons.get(id)) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            if inner.closed {
                return None;
            }
            inner = self.pause(inner, left);
        }
    }

    /// Waits for what has changed since `seen`, at most `limit`.
    pub(crate) fn news(&self, seen: &mut Seen, limit: Duration) -> News {
        let deadline = Instant::now() + limit;
        let mut inner = self.lock();
        loop {
            let changes = changes(&inner, seen);
            if !changes.is_empty() {
                return News::Changes(changes);
            }
            if inner.closed {
                return News::Closed;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return News::Nothing;
            };
            inner = self.pause(inner, left);
        }
    }

    fn pause<'a>(&self, inner: MutexGuard<'a, Inner>, limit: Duration) -> MutexGuard<'a, Inner> {
        self.changed.wait_timeout(inner, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn changes(inner: &Inner, seen: &mut Seen) -> Vec<Reply> {
    let gone: Vec<_> = seen.keys().filter(|id| !inner.daemons.contains_key(*id)).cloned().collect();
    let mut replies: Vec<Reply> = Vec::new();
    for id in gone {
        seen.remove(&id);
        replies.push(Reply::Gone { id });
    }
    for (id, entry) in &inner.daemons {
        if seen.insert(id.clone(), entry.serial) != Some(entry.serial) {
            replies.push(Reply::Changed(entry.status.clone()));
        }
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::DaemonState;

    fn status(name: &str, state: DaemonState) -> Status {
        Status { id: DaemonId::new(name).unwrap(), state, starts: 1, reason: None }
    }

    #[test]
    fn a_watcher_sees_the_latest_of_each_and_what_is_gone() {
        let board = Board::default();
        board.set(status("a", DaemonState::Starting), false);
        board.set(status("b", DaemonState::Starting), false);
        let (all, mut seen) = board.all();
        assert_eq!(all.len(), 2);
        board.set(status("a", DaemonState::Failed { retry_ms: 0 }), true);
        board.set(status("a", DaemonState::Ready { pid: 1 }), false);
        board.remove(&DaemonId::new("b").unwrap());
        let News::Changes(changes) = board.news(&mut seen, Duration::ZERO) else { panic!() };
        assert_eq!(
            changes,
            [
                Reply::Gone { id: DaemonId::new("b").unwrap() },
                Reply::Changed(status("a", DaemonState::Ready { pid: 1 })),
            ]
        );
        assert!(matches!(board.news(&mut seen, Duration::ZERO), News::Nothing));
        board.close();
        assert!(matches!(board.news(&mut seen, Duration::from_secs(60)), News::Closed));
    }
}
