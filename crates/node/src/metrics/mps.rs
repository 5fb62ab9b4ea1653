//! The MPS host as it is heard of: whether it is there, its daemons, and how often they had to
//! be started again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_dra_metrics::client::metrics::counter::Counter;
use gpu_dra_metrics::client::registry::Registry;
use gpu_dra_sharing::{DaemonId, DaemonState, MpsEvent, Status};

/// What is known of the MPS host.
#[derive(Debug, Clone, Default)]
pub struct MpsMetrics {
    restarts: Counter,
    host: Arc<Mutex<Host>>,
}

#[derive(Debug, Default)]
struct Host {
    is_there: bool,
    daemons: BTreeMap<DaemonId, Status>,
}

impl MpsMetrics {
    pub(super) fn register(&self, page: &mut Registry) {
        page.register(
            "mps_daemon_restarts",
            "How often MPS daemons were started again after they had ended",
            self.restarts.clone(),
        );
    }

    pub(crate) fn note(&self, event: &MpsEvent) {
        let mut host = self.lock();
        match event {
            MpsEvent::Daemons(all) => {
                host.is_there = true;
                host.daemons.retain(|id, _| all.iter().any(|status| status.id == *id));
                for status in all {
                    self.changed(&mut host, status);
                }
            }
            MpsEvent::Changed(status) => self.changed(&mut host, status),
            MpsEvent::Gone(id) => {
                host.daemons.remove(id);
            }
            MpsEvent::Away(_) => host.is_there = false,
        }
    }

    fn changed(&self, host: &mut Host, status: &Status) {
        if let Some(before) = host.daemons.insert(status.id.clone(), status.clone()) {
            self.restarts.inc_by(status.starts.saturating_sub(before.starts).into());
        }
    }

    /// Whether the host is there, and its daemons by state.
    pub(super) fn told(&self) -> (bool, BTreeMap<&'static str, u64>) {
        let host = self.lock();
        let mut states = BTreeMap::from(["starting", "ready", "failed", "other"].map(|s| (s, 0)));
        for status in host.daemons.values() {
            let state = match status.state {
                DaemonState::Starting => "starting",
                DaemonState::Ready { .. } => "ready",
                DaemonState::Failed { .. } => "failed",
                DaemonState::Stopping | DaemonState::Unasked | DaemonState::Other => "other",
            };
            *states.entry(state).or_default() += 1;
        }
        (host.is_there, states)
    }

    fn lock(&self) -> MutexGuard<'_, Host> {
        // Nothing in here can panic half-way.
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(id: &str, starts: u32, state: DaemonState) -> Status {
        Status { id: DaemonId::new(id).unwrap(), state, starts, reason: None }
    }

    #[test]
    fn only_what_starts_again_is_a_restart() {
        let metrics = MpsMetrics::default();
        let ready = DaemonState::Ready { pid: 1 };
        metrics.note(&MpsEvent::Daemons(vec![
            status("a", 4, ready.clone()),
            status("b", 1, ready.clone()),
        ]));
        assert_eq!(metrics.restarts.get(), 0, "what was before is not known");
        metrics.note(&MpsEvent::Changed(status("a", 4, DaemonState::Failed { retry_ms: 9 })));
        metrics.note(&MpsEvent::Changed(status("a", 5, DaemonState::Starting)));
        metrics.note(&MpsEvent::Away("no socket".to_owned()));
        assert!(!metrics.told().0);
        metrics.note(&MpsEvent::Daemons(vec![status("a", 7, ready)]));
        assert_eq!(metrics.restarts.get(), 3);
        let (is_there, states) = metrics.told();
        assert!(is_there && states["ready"] == 1 && states["failed"] == 0, "{states:?}");
        metrics.note(&MpsEvent::Gone(DaemonId::new("a").unwrap()));
        assert_eq!(metrics.told().1["ready"], 0);
    }
}
