//! What becomes of the MPS daemons of claims: a daemon that ended makes its devices unhealthy
//! until it serves again, and its claim's pods are told. Daemons of no claim are ended.
//!
//! It starts none: a claim's Prepare does, and the MPS host restarts what it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpu_dra_claims::{KnownStep, Record, share_daemon};
use gpu_dra_executor::Journal;
use gpu_dra_model::{ClaimRef, DeviceName};
use gpu_dra_sharing::{DaemonId, DaemonState, MpsClient, MpsEvent, Status};
use tokio::sync::watch;

use crate::events::{Announcer, Severity};

/// Devices whose daemon doesn't serve, each with the reason.
pub type Troubles = BTreeMap<DeviceName, String>;

/// Follows the MPS host.
pub struct MpsWatch {
    client: MpsClient,
    journal: Arc<Journal>,
    announcer: Announcer,
    troubles: watch::Sender<Troubles>,
    known: BTreeMap<DaemonId, Status>,
}

impl MpsWatch {
    /// A watch that says what is wrong through the receiver.
    #[must_use]
    pub fn new(
        client: MpsClient,
        journal: Arc<Journal>,
        announcer: Announcer,
    ) -> (Self, watch::Receiver<Troubles>) {
        let (troubles, receiver) = watch::channel(Troubles::new());
        (Self { client, journal, announcer, troubles, known: BTreeMap::new() }, receiver)
    }

    /// Takes in one event of the host.
    pub fn note(&mut self, event: MpsEvent) {
        match event {
            MpsEvent::Daemons(all) => {
                let gone: Vec<_> = self.known.keys().cloned().collect();
                for id in gone.iter().filter(|id| all.iter().all(|status| status.id != **id)) {
                    self.known.remove(id);
                }
                for status in all {
                    self.changed(status);
                }
                self.end_strays();
            }
            MpsEvent::Changed(status) => self.changed(status),
            MpsEvent::Gone(id) => {
                self.known.remove(&id);
            }
            // Its daemons may run on: nothing is known to be wrong with them.
            MpsEvent::Away(reason) => tracing::warn!(%reason, "the MPS host is away"),
        }
        self.say();
    }

    fn changed(&mut self, status: Status) {
        let before = self.known.insert(status.id.clone(), status.clone());
        // A daemon that served and doesn't, or is another process now.
        let served = |before: &Status| matches!(before.state, DaemonState::Ready { .. });
        let lost = before.is_some_and(|before| {
            served(&before) && (!served(&status) || before.starts != status.starts)
        });
        if !lost || matches!(status.state, DaemonState::Stopping) {
            return;
        }
        for (claim, devices) in self.claims_of(&status.id) {
            let message = format!(
                "MPS daemon of claim {claim} ({}) ended: {}; what ran on it is lost, it is started again",
                devices.iter().map(DeviceName::as_str).collect::<Vec<_>>().join(", "),
                status.reason.as_deref().unwrap_or("no reason is known"),
            );
            self.announcer.announce_to(&claim, Severity::Warning, "MpsDaemonLost", message);
        }
    }

    /// The claims that have this daemon, each with the devices that it serves.
    fn claims_of(&self, id: &DaemonId) -> Vec<(ClaimRef, Vec<DeviceName>)> {
        let records = match self.journal.all() {
            Ok(records) => records,
            Err(error) => {
                tracing::warn!(%error, "whose MPS daemon it is can't be read");
                return Vec::new();
            }
        };
        let of = |record: &Arc<Record>| Some((record.claim.clone(), served_by(record, id)?));
        records.iter().filter_map(of).collect()
    }

    /// A daemon is journaled before it is asked for, so one that no record has is a leftover,
    /// such as of a journal file that was lost.
    fn end_strays(&self) {
        let Ok(records) = self.journal.all() else { return };
        let is_stray =
            |id: &&DaemonId| records.iter().all(|record| served_by(record, id).is_none());
        for id in self.known.keys().filter(is_stray) {
            tracing::info!(daemon = %id, "MPS daemon of no claim is ended");
            if let Err(error) = self.client.stop(id) {
                tracing::warn!(daemon = %id, %error, "MPS daemon of no claim not ended yet");
            }
        }
    }

    fn say(&self) {
        let mut troubles = Troubles::new();
        for (id, status) in &self.known {
            if !matches!(status.state, DaemonState::Failed { .. }) {
                continue;
            }
            let reason = status.reason.as_deref().unwrap_or("it ended");
            for device in self.claims_of(id).into_iter().flat_map(|(_, devices)| devices) {
                troubles.insert(device, format!("MPS daemon doesn't serve: {reason}"));
            }
        }
        self.troubles.send_if_modified(|now| {
            let news = *now != troubles;
            *now = troubles;
            news
        });
    }
}

/// The devices of the claim that the daemon serves; None where it isn't the claim's.
fn served_by(record: &Record, id: &DaemonId) -> Option<Vec<DeviceName>> {
    record.known_steps()?.into_iter().find_map(|step| match step {
        KnownStep::MpsDaemon { daemon, devices, .. } if daemon == id.as_str() => {
            Some(devices.clone())
        }
        KnownStep::ShareDaemon { gpu, .. } if share_daemon(gpu) == id.as_str() => {
            let of_gpu = record.devices.iter().filter(|device| device.gpu == *gpu);
            Some(of_gpu.map(|device| device.device.clone()).collect())
        }
        _ => None,
    })
}
