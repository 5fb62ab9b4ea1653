//! What the agent remembers of health over a restart: what is wrong with which GPU, and which
//! request to clear was dealt with. Written when it has changed, and never the reason that
//! anything else fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_dra_health::{Policy, Tracker};
use gpu_dra_host::{FileError, Files};
use gpu_dra_model::BootId;

/// The two files.
pub(crate) struct HealthStore {
    files: Arc<dyn Files>,
    boot: BootId,
    health: PathBuf,
    asked: PathBuf,
    written: Option<Vec<u8>>,
}

impl HealthStore {
    /// The store in a folder, and the health that it holds. Health that can't be understood is
    /// moved aside.
    ///
    /// # Errors
    /// When a file is there but can't be read or moved.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        dir: &Path,
        boot: BootId,
        policy: Policy,
    ) -> Result<(Self, Tracker), FileError> {
        let (health, asked) = (dir.join("health.json"), dir.join("health-asked.json"));
        let mut written = files.read(&health)?;
        let tracker = match &written {
            None => Tracker::new(policy),
            Some(bytes) => match Tracker::from_json(policy.clone(), bytes, &boot) {
                Ok(tracker) => tracker,
                Err(error) => {
                    let aside = health.with_extension("json.bad");
                    tracing::error!(
                        file = %aside.display(), %error,
                        "stored health is of no use; moved aside, taints begin anew"
                    );
                    files.rename(&health, &aside)?;
                    written = None;
                    Tracker::new(policy)
                }
            },
        };
        Ok((Self { files, boot, health, asked, written }, tracker))
    }

    /// Writes what is wrong, if that isn't in the file already. A file that can't be written
    /// is tried again with the next change, and the log says so.
    pub(crate) fn save(&mut self, tracker: &Tracker) {
        let bytes = match tracker.to_json(&self.boot) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::error!(%error, "health not saved"),
        };
        if self.written.as_ref() == Some(&bytes) {
            return;
        }
        match self.files.replace(&self.health, &bytes, 0o600) {
            Ok(()) => self.written = Some(bytes),
            Err(error) => tracing::error!(%error, "health not saved; a restart may forget taints"),
        }
    }

    /// The request to clear that was dealt with last.
    pub(crate) fn asked(&self) -> Option<String> {
        let read = self.files.read(&self.asked).unwrap_or_else(|error| {
            tracing::error!(%error, "which request to clear was dealt with can't be read");
            None
        });
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }

    /// Remembers it.
    pub(crate) fn save_asked(&self, asked: Option<&str>) {
        let bytes = serde_json::to_vec(&asked).unwrap_or_default();
        if let Err(error) = self.files.replace(&self.asked, &bytes, 0o600) {
            tracing::error!(%error, "a request to clear may be dealt with twice");
        }
    }
}
