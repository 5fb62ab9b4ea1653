//! Looks at the GPUs, again and again, on a thread of its own, and says what the node offers
//! when that has changed. A quiet node costs a handful of NVML calls a round, no enumeration.
//!
//! It publishes to nobody: others watch what it says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use gpu_dra_claims::{KnownDevice, NodeView};
use gpu_dra_host::{FileError, Files};
use gpu_dra_model::{BootId, Inventory, PoolName};
use gpu_dra_nvml::{Gpus, OpenError};
use gpu_dra_slices::{DesiredPool, Names, Policy, build};
use tokio::sync::watch;

/// What the node offers, seen at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// The GPUs.
    pub inventory: Inventory,
    /// What should be published.
    pub pool: DesiredPool,
    /// What claims may use.
    pub view: NodeView,
    /// Why there is nothing, in words for people; None where NVML answers.
    pub trouble: Option<String>,
}

/// Keeps the [`Survey`] up to date.
pub struct Surveyor {
    gpus: Arc<dyn Gpus>,
    files: Arc<dyn Files>,
    names_file: PathBuf,
    names: Names,
    pool: PoolName,
    boot_id: BootId,
    policy: Policy,
    last: Option<Inventory>,
    failures: u32,
}

/// A driver that doesn't answer keeps its devices published for this many rounds: a reload
/// of a second or two must not withdraw the node.
const PATIENCE: u32 = 3;

impl Surveyor {
    /// Reads the names given so far from `names_file`; a file that holds none is moved aside.
    ///
    /// # Errors
    /// When the file can't be read or moved.
    pub fn new(
        gpus: Arc<dyn Gpus>,
        files: Arc<dyn Files>,
        names_file: PathBuf,
        pool: PoolName,
        boot_id: BootId,
    ) -> Result<Self, FileError> {
        let names = match files.read(&names_file)? {
            None => Names::default(),
            Some(bytes) => match serde_json::from_slice(&bytes) {
                Ok(names) => names,
                Err(error) => {
                    let aside = names_file.with_extension("json.bad");
                    tracing::error!(
                        file = %aside.display(), %error,
                        "file of device names is unreadable; moved aside, names are given anew"
                    );
                    files.rename(&names_file, &aside)?;
                    Names::default()
                }
            },
        };
        let policy = Policy::default();
        Ok(Self { gpus, files, names_file, names, pool, boot_id, policy, last: None, failures: 0 })
    }

    /// Looks once. None where nothing has changed since the last look.
    pub fn look(&mut self) -> Option<Survey> {
        match self.changed_inventory() {
            Ok(inventory) => {
                self.failures = 0;
                inventory.map(|inventory| self.survey(inventory, None))
            }
            Err(error) => {
                self.failures += 1;
                let had_gpus = self.last.is_some();
                if had_gpus && self.failures < PATIENCE {
                    tracing::warn!(%error, "NVML doesn't answer; devices stay published for now");
                    return None;
                }
                self.last = None;
                Some(self.survey(Inventory::default(), Some(error.to_string())))
            }
        }
    }

    fn changed_inventory(&mut self) -> Result<Option<Inventory>, OpenError> {
        if let Some(last) = &self.last
            && !self.gpus.fingerprint()?.outdates(last)
        {
            return Ok(None);
        }
        let inventory = self.gpus.probe()?;
        let same = self.last.as_ref() == Some(&inventory);
        self.last = Some(inventory.clone());
        Ok((!same).then_some(inventory))
    }

    fn survey(&mut self, inventory: Inventory, trouble: Option<String>) -> Survey {
        if self.names.assign(&inventory)
            && let Err(error) = self.save_names()
        {
            tracing::error!(%error, "device names not saved; they may change at the next start");
        }
        let pool = build(&inventory, &self.names, &self.policy);
        for note in &pool.notes {
            tracing::info!(%note, "published pool");
        }
        let published: std::collections::BTreeSet<_> =
            pool.devices().map(|device| device.name.as_str()).collect();
        let devices: BTreeMap<_, _> = inventory
            .gpus
            .iter()
            .filter_map(|gpu| Some((self.names.name(&gpu.uuid)?, gpu)))
            .filter(|(name, _)| published.contains(name.as_str()))
            .map(|(name, gpu)| (name, KnownDevice { gpu: gpu.uuid.clone() }))
            .collect();
        let view = NodeView { pool: self.pool.clone(), devices, boot_id: self.boot_id.clone() };
        Survey { inventory, pool, view, trouble }
    }

    fn save_names(&self) -> Result<(), Box<dyn std::error::Error>> {
        let bytes = serde_json::to_vec_pretty(&self.names)?;
        Ok(self.files.replace(&self.names_file, &bytes, 0o600)?)
    }

    /// Looks until `stop` is dropped or told. Says every change through `say`.
    pub fn run(
        mut self,
        say: &watch::Sender<Option<Arc<Survey>>>,
        stop: &Receiver<()>,
        rescan: Duration,
        retry: Duration,
    ) {
        loop {
            if let Some(survey) = self.look() {
                let survey = Arc::new(survey);
                let is_news = say.borrow().as_ref() != Some(&survey);
                if is_news {
                    match &survey.trouble {
                        Some(trouble) => tracing::warn!(%trouble, "no GPUs"),
                        None => tracing::info!(
                            gpus = survey.inventory.gpus.len(),
                            broken = survey.inventory.broken.len(),
                            driver = %survey.inventory.driver.driver,
                            "GPUs found"
                        ),
                    }
                    say.send_replace(Some(survey));
                }
            }
            let pause = if self.last.is_some() && self.failures == 0 { rescan } else { retry };
            match stop.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
