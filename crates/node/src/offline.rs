//! The node's claims without a node agent, for `gpu-dra cleanup`: what is journaled, and how it
//! is undone by the same acts. MPS daemons are ended here too, since no MPS host runs any more.
//!
//! Nothing else may serve the node meanwhile: who calls has made sure of that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_claims::record::KnownStep;
use gpu_dra_claims::{Record, share_daemon};
use gpu_dra_driverroot::{DeviceNodes, DriverFilesCache, DriverRoot, NodeFinder};
use gpu_dra_executor::{CdiNaming, Done, EffectError, Effects, ExecuteError, Executor, Journal};
use gpu_dra_host::{Boundary, Files, LockError, Locks, RealFiles, RealProcesses};
use gpu_dra_model::{BootId, DriverName, PoolName};
use gpu_dra_nvml::{Gpus, Trees};
use gpu_dra_sharing::{
    DaemonId, Journal as MpsJournal, Lifecycle, Patience, RealDaemons, RealFolders, RealMounts,
    RunDir,
};
use gpu_dra_slices::Policy;
use tokio::sync::{mpsc, watch};

use crate::events::{Announcer, Happening};
use crate::machine::{Machine, MpsHost};
use crate::run::{NodeError, boot_id, driver};
use crate::survey::{Place, Surveyor};

/// The claims of a node on which no agent runs.
pub struct Offline {
    executor: Executor,
    boot_id: BootId,
    _happenings: mpsc::Receiver<Happening>,
}

/// Where the agent and the MPS host of a node have put things.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The DRA driver's name.
    pub driver: DriverName,
    /// The agent's folder below the kubelet's.
    pub plugin_dir: PathBuf,
    /// The folder of CDI specs.
    pub cdi_root: PathBuf,
    /// Where the NVIDIA driver is.
    pub root: DriverRoot,
    /// Where the kernel's trees are.
    pub trees: Trees,
    /// The MPS host's socket.
    pub mps_socket: PathBuf,
    /// The folder of MPS daemons.
    pub mps_run_dir: PathBuf,
    /// The MPS host's journal.
    pub mps_state_dir: PathBuf,
    /// The points between effects, for the crash tests.
    pub boundary: Boundary,
}

impl Offline {
    /// Opens the journal and looks at the GPUs once.
    ///
    /// # Errors
    /// When a folder can't be used.
    pub fn open(settings: Installed) -> Result<Self, NodeError> {
        let files: Arc<dyn Files> = Arc::new(RealFiles::new(settings.boundary.clone()));
        let plugin_dir = settings.plugin_dir;
        let boot_id = boot_id(&settings.trees.proc)?;
        let journal = Journal::open(&plugin_dir.join("claims"), Arc::clone(&files))
            .map_err(ExecuteError::from)?;
        let journal = Arc::new(journal);
        // Nobody posts what is announced: it is in the log.
        let (announcer, happenings) = Announcer::new();
        let gpus: Arc<dyn Gpus> = Arc::new(driver(settings.root.clone(), settings.trees.clone()));
        let survey = Surveyor::new(Place {
            gpus: Arc::clone(&gpus),
            files: Arc::clone(&files),
            names_file: plugin_dir.join("names.json"),
            // Nothing is published.
            pool: PoolName::new("localhost")?,
            boot_id: boot_id.clone(),
            policy: Policy::default(),
            journal: Arc::clone(&journal),
            announcer: announcer.clone(),
        })?
        .look();
        let (_, survey) = watch::channel(survey.map(Arc::new));
        let run = RunDir::new(&settings.mps_run_dir)?;
        let machine = Machine {
            driver: settings.driver.clone(),
            gpus,
            survey,
            root: settings.root.clone(),
            nodes: NodeFinder {
                root: settings.root.clone(),
                policy: DeviceNodes::MustExist,
                proc: settings.trees.proc.clone(),
                sys: settings.trees.sysfs.clone(),
            },
            hook: plugin_dir.join("gpu-dra-hook"),
            processes: Arc::new(RealProcesses),
            files: DriverFilesCache::default(),
            boundary: settings.boundary.clone(),
            mps: MpsHost::new(&settings.mps_socket, run.clone()),
            announcer,
        };
        let daemons = Lifecycle {
            run,
            journal: MpsJournal::open(&settings.mps_state_dir, Arc::clone(&files))?,
            folders: Arc::new(RealFolders),
            mounts: Arc::new(RealMounts),
            daemons: Arc::new(RealDaemons::new(settings.root.clone())),
            patience: Patience::default(),
            boundary: settings.boundary.clone(),
        };
        let naming = CdiNaming { dir: settings.cdi_root, driver: settings.driver };
        let locks = Locks::open(&plugin_dir.join("locks"))?;
        let effects = Arc::new(WithoutMpsHost { machine, daemons });
        let executor = Executor::new(journal, effects, files, locks, naming)?;
        Ok(Self { executor, boot_id, _happenings: happenings })
    }

    /// Undoes every claim. Gives what could not be undone; the claim is then still journaled.
    ///
    /// # Errors
    /// When the journal can't be read at all.
    pub fn undo_all(&self) -> Result<Vec<String>, ExecuteError> {
        let mut failures = Vec::new();
        for record in self.executor.journal.all()? {
            let undone =
                self.lock(&record).and_then(|lock| self.executor.unprepare(&lock, &self.boot_id));
            if let Err(error) = undone {
                failures.push(format!("claim {}: {error}", record.claim));
            }
        }
        Ok(failures)
    }

    fn lock(&self, record: &Record) -> Result<gpu_dra_executor::ClaimLock, ExecuteError> {
        let lock: Result<_, LockError> =
            self.executor.lock_claim(&record.claim.uid, Duration::ZERO);
        Ok(lock?)
    }
}

/// The machine, on which this process ends MPS daemons itself.
struct WithoutMpsHost {
    machine: Machine,
    daemons: Lifecycle,
}

impl WithoutMpsHost {
    fn end(&self, daemon: &str) -> Result<(), EffectError> {
        let id = DaemonId::new(daemon).map_err(|error| EffectError::Mps(error.to_string()))?;
        self.daemons.tear_down(&id).map_err(|error| EffectError::Mps(error.to_string()))
    }
}

impl Effects for WithoutMpsHost {
    fn look(&self, plan: Record) -> Result<Record, EffectError> {
        self.machine.look(plan)
    }

    fn holds(&self, record: &Record) -> Result<bool, EffectError> {
        self.machine.holds(record)
    }

    fn apply(&self, step: &KnownStep, begun: &Record) -> Result<Done, EffectError> {
        self.machine.apply(step, begun)
    }

    fn undo(&self, step: &KnownStep) -> Result<(), EffectError> {
        match step {
            KnownStep::MpsDaemon { daemon, .. } => self.end(daemon),
            KnownStep::ShareDaemon { gpu, before } => {
                self.end(&share_daemon(gpu))?;
                let (gpu, before) = (gpu.clone(), *before);
                self.machine.undo(&KnownStep::ExclusiveProcess { gpu, before })
            }
            step => self.machine.undo(step),
        }
    }

    fn cdi_spec(&self, record: &Record) -> Result<Vec<u8>, EffectError> {
        self.machine.cdi_spec(record)
    }
}
