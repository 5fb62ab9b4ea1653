//! Looks at the GPUs, again and again, on a thread of its own, and says what the node offers
//! when that has changed. A quiet node costs a handful of NVML calls a round, no enumeration.
//!
//! It publishes to nobody: others watch what it says.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use gpu_dra_claims::{GpuFacts, KnownStep, NodeView, Record};
use gpu_dra_executor::{Journal, JournalError};
use gpu_dra_host::{FileError, Files};
use gpu_dra_model::inventory::{ComputeCapability, Mig};
use gpu_dra_model::{BootId, Gpu, GpuUuid, Inventory, PoolName};
use gpu_dra_nvml::{Gpus, OpenError};
use gpu_dra_slices::{Built, Names, Note, OwnInstance, PackedPool, Policy, build};
use tokio::sync::watch;

use crate::events::{Announcer, Severity};
use crate::known_gpus::KnownGpus;

/// What the node offers, seen at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    /// The GPUs.
    pub inventory: Inventory,
    /// What should be published.
    pub pool: Arc<PackedPool>,
    /// What claims may use.
    pub view: NodeView,
    /// Why there is nothing; None where NVML answers.
    pub trouble: Option<Trouble>,
    /// GPUs that don't answer any more and whose devices are offered as they were known last.
    pub missing: BTreeSet<GpuUuid>,
}

/// Why a node has no GPUs to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In words for people.
    pub sentence: String,
    /// There is no driver, or none yet, or nothing for it to drive: as the node is, that is as it
    /// should be. Otherwise there is one, and it doesn't work.
    pub is_driver_absent: bool,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl From<LookError> for Trouble {
    fn from(error: LookError) -> Self {
        let is_driver_absent = match &error {
            LookError::Nvml(error) => matches!(
                error,
                OpenError::NothingHere { .. }
                    | OpenError::NoLibrary { .. }
                    | OpenError::IsDirectory { .. }
                    | OpenError::Truncated { .. }
                    | OpenError::DriverNotLoaded
                    | OpenError::NoGpus
                    | OpenError::GpusUnused { .. }
            ),
            LookError::Journal(_) => false,
        };
        Self { sentence: error.to_string(), is_driver_absent }
    }
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
    journal: Arc<Journal>,
    announcer: Announcer,
    known: KnownGpus,
    last: Option<Seen>,
    failures: u32,
}

/// What the last look saw.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    inventory: Inventory,
    own: BTreeSet<OwnInstance>,
}

/// Why a look saw nothing.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Nvml(#[from] OpenError),
    /// Without it nobody knows which GPU instances are ours.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What a surveyor needs to know and use.
pub struct Place {
    /// The GPUs.
    pub gpus: Arc<dyn Gpus>,
    /// Where the names are kept.
    pub files: Arc<dyn Files>,
    /// The file of the names.
    pub names_file: PathBuf,
    /// This node's pool.
    pub pool: PoolName,
    /// The running kernel's boot.
    pub boot_id: BootId,
    /// What the operator wants published.
    pub policy: Policy,
    /// The claims held: it tells our GPU instances from those that others made.
    pub journal: Arc<Journal>,
    /// Where the operator is told what stands in the way.
    pub announcer: Announcer,
}

/// Since Volta MPS has limits, and clients of several users.
const VOLTA: ComputeCapability = ComputeCapability { major: 7, minor: 0 };

/// A driver that doesn't answer keeps its devices published for this many rounds: a reload
/// of a second or two must not withdraw the node.
const PATIENCE: u32 = 3;

impl Surveyor {
    /// Reads the names given so far; a file that holds none is moved aside.
    ///
    /// # Errors
    /// When the file can't be read or moved.
    pub fn new(place: Place) -> Result<Self, FileError> {
        let Place { gpus, files, names_file, pool, boot_id, policy, journal, announcer } = place;
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
        let known = KnownGpus::open(files.as_ref(), &names_file, &boot_id)?;
        Ok(Self {
            gpus,
            files,
            names_file,
            names,
            pool,
            boot_id,
            policy,
            journal,
            announcer,
            known,
            last: None,
            failures: 0,
        })
    }

    /// Looks once. None where nothing has changed since the last look.
    pub fn look(&mut self) -> Option<Survey> {
        match self.what_changed() {
            Ok(seen) => {
                self.failures = 0;
                seen.map(|seen| self.survey(seen, None))
            }
            Err(error) => {
                self.failures += 1;
                let had_gpus = self.last.is_some();
                if had_gpus && self.failures < PATIENCE {
                    tracing::warn!(%error, "GPUs can't be looked at; devices stay published for now");
                    return None;
                }
                self.last = None;
                let nothing = Seen { inventory: Inventory::default(), own: BTreeSet::new() };
                Some(self.survey(nothing, Some(error)))
            }
        }
    }

    fn what_changed(&mut self) -> Result<Option<Seen>, LookError> {
        if let Some(last) = &self.last
            && !self.gpus.fingerprint()?.outdates(&last.inventory)
        {
            return Ok(None);
        }
        // An instance is made after its claim is journaled and removed before its claim is
        // forgotten: what is ours at the time of the probe is in one of the two readings.
        let before = self.own_instances()?;
        let inventory = self.gpus.probe()?;
        let own = if has_instances(&inventory) {
            before.into_iter().chain(self.own_instances()?).collect()
        } else {
            BTreeSet::new()
        };
        let seen = Seen { inventory, own };
        let same = self.last.as_ref() == Some(&seen);
        self.last = Some(seen.clone());
        Ok((!same).then_some(seen))
    }

    fn own_instances(&self) -> Result<BTreeSet<OwnInstance>, JournalError> {
        let records = self.journal.all()?;
        Ok(records.iter().flat_map(|record| own_instances(record)).collect())
    }

    fn survey(&mut self, seen: Seen, trouble: Option<LookError>) -> Survey {
        let Seen { inventory, own } = seen;
        // Without a driver nobody knows what is there; a driver without GPUs has lost them.
        let (offered, missing) = match &trouble {
            None | Some(LookError::Nvml(OpenError::NoGpus | OpenError::GpusUnused { .. })) => {
                (self.complete(&inventory, &own), self.known.missing().clone())
            }
            Some(_) => (inventory.clone(), BTreeSet::new()),
        };
        if self.names.assign(&inventory)
            && let Err(error) = self.save_names()
        {
            tracing::error!(%error, "device names not saved; they may change at the next start");
        }
        let Built { pool, devices } = build(&offered, &self.names, &self.policy, &own);
        for note in &pool.notes {
            if matches!(note, Note::ForeignInstance { .. }) {
                self.announcer.announce(Severity::Warning, "ForeignGpuInstance", note.to_string());
            } else {
                tracing::info!(%note, "published pool");
            }
        }
        let facts = |gpu: &Gpu| GpuFacts {
            before_volta: gpu.compute_capability.is_some_and(|cc| cc < VOLTA),
            memory_mib: gpu.memory_bytes.unwrap_or(0) >> 20,
        };
        let view = NodeView {
            pool: self.pool.clone(),
            devices,
            gpus: offered.gpus.iter().map(|gpu| (gpu.uuid.clone(), facts(gpu))).collect(),
            boot_id: self.boot_id.clone(),
        };
        let trouble = trouble.map(Trouble::from);
        Survey { inventory, pool: Arc::new(PackedPool::new(&pool)), view, trouble, missing }
    }

    /// The inventory with the GPUs that don't answer any more.
    fn complete(&mut self, inventory: &Inventory, own: &BTreeSet<OwnInstance>) -> Inventory {
        let (complete, changed) = self.known.complete(inventory, own);
        if changed
            && let Err(error) =
                self.known.save(self.files.as_ref(), &self.names_file, &self.boot_id)
        {
            tracing::error!(%error, "missing GPUs not saved; the next start may forget them");
        }
        complete
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

/// The GPU instances that a claim has, or is about to have.
fn own_instances(record: &Record) -> Vec<OwnInstance> {
    let steps = record.known_steps().unwrap_or_default().into_iter();
    steps
        .filter_map(|step| match step {
            KnownStep::CreatePartition { gpu, partition, .. } => {
                Some(OwnInstance { gpu: gpu.clone(), partition: *partition })
            }
            _ => None,
        })
        .collect()
}

fn has_instances(inventory: &Inventory) -> bool {
    let mut gpus = inventory.gpus.iter();
    gpus.any(|gpu| matches!(&gpu.mig, Mig::Supported { instances, .. } if !instances.is_empty()))
}
