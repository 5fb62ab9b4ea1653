//! [`Gpus`], the seam through which the node agent asks and changes GPUs, and [`Driver`], its
//! real side: one NVML session for the life of the process, opened when there is a driver,
//! closed when the driver goes, opened again when it or a GPU comes back. It waits for
//! nothing and retries nothing; who asks again decides when.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gpu_dra_model::{GpuUuid, Inventory, Minor};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode as WrapperMode;

use crate::code::CallError;
use crate::error::{GpuError, OpenError};
use crate::fingerprint::Fingerprint;
use crate::session::Session;
use crate::trees::Trees;
use crate::{probe, raw, sysfs};

/// Who may use a GPU for computing (`nvmlComputeMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One thread; withdrawn from CUDA, but old settings survive.
    ExclusiveThread,
    /// None.
    Prohibited,
    /// One process; what an MPS server wants.
    ExclusiveProcess,
}

/// The GPUs of this node. Calls block for as long as the driver takes (a cold
/// initialisation: seconds), so call from a thread that may block.
pub trait Gpus: Send + Sync {
    /// Asks everything of every GPU.
    ///
    /// # Errors
    /// NVML can't be used; a single GPU that fails is in the inventory as broken.
    fn probe(&self) -> Result<Inventory, OpenError>;

    /// What tells whether the last inventory still holds ([`Fingerprint::outdates`]), for far
    /// fewer calls than [`Gpus::probe`].
    ///
    /// # Errors
    /// NVML can't be used.
    fn fingerprint(&self) -> Result<Fingerprint, OpenError>;

    /// The minor number that the GPU has now, for its device node. Two calls.
    ///
    /// # Errors
    /// The GPU is gone or doesn't answer.
    fn minor_of(&self, uuid: &GpuUuid) -> Result<Minor, GpuError>;

    /// The compute mode in force.
    ///
    /// # Errors
    /// The GPU is gone, doesn't answer or has no such setting.
    fn compute_mode(&self, uuid: &GpuUuid) -> Result<ComputeMode, GpuError>;

    /// Sets the compute mode; it outlives this process, but not a reboot. Needs root, and
    /// the GPU must not be partitioned.
    ///
    /// # Errors
    /// The GPU is gone or refuses.
    fn set_compute_mode(&self, uuid: &GpuUuid, mode: ComputeMode) -> Result<(), GpuError>;

    /// Whether the driver keeps the GPU initialised without clients.
    ///
    /// # Errors
    /// The GPU is gone, doesn't answer or has no such setting.
    fn persistence(&self, uuid: &GpuUuid) -> Result<bool, GpuError>;

    /// Switches persistence mode. Needs root.
    ///
    /// # Errors
    /// The GPU is gone or refuses.
    fn set_persistence(&self, uuid: &GpuUuid, on: bool) -> Result<(), GpuError>;
}

/// Finds the library file now; it may appear, move or vanish while the agent runs.
type Locate = Box<dyn Fn() -> Result<PathBuf, OpenError> + Send + Sync>;

/// The real [`Gpus`], through NVML.
pub struct Driver {
    locate: Locate,
    trees: Trees,
    open: Mutex<Option<Open>>,
}

/// A session, and the GPUs that the kernel driver had bound when it was opened: NVML counts
/// those of its own start, so a session that is older than a GPU doesn't see it.
#[derive(Clone)]
struct Open {
    session: Arc<Session>,
    bound: BTreeSet<String>,
}

impl Driver {
    /// A driver that is not touched before the first call. `locate` answers where
    /// `libnvidia-ml.so.1` is, or [`OpenError::no_library`]; it's asked at each opening.
    pub fn new(
        locate: impl Fn() -> Result<PathBuf, OpenError> + Send + Sync + 'static,
        trees: Trees,
    ) -> Self {
        Self { locate: Box::new(locate), trees, open: Mutex::new(None) }
    }

    /// Lets the driver module go as soon as calls under way have ended. The next call opens
    /// a new session.
    pub fn close(&self) {
        *self.lock() = None;
    }

    /// Whether a session is open, and so the driver module in use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        // A panic while opening leaves None or a whole session, so the value is good.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open session, or a new one.
    fn session(&self) -> Result<Arc<Session>, OpenError> {
        let mut open = self.lock();
        if let Some(open) = open.as_ref() {
            return Ok(Arc::clone(&open.session));
        }
        let bound = sysfs::bound_gpus(&self.trees);
        let session = Arc::new(Session::open(&(self.locate)()?, &self.trees)?);
        *open = Some(Open { session: Arc::clone(&session), bound });
        Ok(session)
    }

    /// Closes a session that no longer shows the GPUs that the driver has.
    fn close_if_outdated(&self) {
        let mut open = self.lock();
        if open.as_ref().is_some_and(|open| open.bound != sysfs::bound_gpus(&self.trees)) {
            *open = None;
        }
    }

    /// Asks the whole node, with a session that is up to date; a session that turns out to be
    /// over, or without any GPU, is not kept.
    fn ask<T>(&self, ask: impl FnOnce(&Session) -> Result<T, OpenError>) -> Result<T, OpenError> {
        self.close_if_outdated();
        let session = self.session()?;
        let answer = ask(&session).and_then(|answer| match session.device_count()? {
            0 => Err(crate::diagnose::no_gpus(&self.trees)),
            _ => Ok(answer),
        });
        if answer.is_err() {
            self.close();
        }
        answer
    }

    /// Acts on one GPU, by its UUID.
    fn with<T>(
        &self,
        uuid: &GpuUuid,
        act: impl FnOnce(&Session, &mut Device<'_>) -> Result<T, CallError>,
    ) -> Result<T, GpuError> {
        let session = self.session()?;
        let answer = session.device(uuid).and_then(|mut device| {
            act(&session, &mut device)
                .map_err(|source| GpuError::Call { uuid: uuid.clone(), source })
        });
        match &answer {
            Err(GpuError::Driver(_)) => self.close(),
            Err(GpuError::Call { source, .. }) if source.code.ends_session() => self.close(),
            _ => {}
        }
        answer
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("trees", &self.trees).finish_non_exhaustive()
    }
}

impl Gpus for Driver {
    fn probe(&self) -> Result<Inventory, OpenError> {
        self.ask(Session::probe)
    }

    fn fingerprint(&self) -> Result<Fingerprint, OpenError> {
        self.ask(Session::fingerprint)
    }

    fn minor_of(&self, uuid: &GpuUuid) -> Result<Minor, GpuError> {
        self.with(uuid, |_, device| probe::minor(device))
    }

    fn compute_mode(&self, uuid: &GpuUuid) -> Result<ComputeMode, GpuError> {
        match self.with(uuid, |session, device| raw::compute_mode(session.nvml(), device))? {
            0 => Ok(ComputeMode::Default),
            1 => Ok(ComputeMode::ExclusiveThread),
            2 => Ok(ComputeMode::Prohibited),
            3 => Ok(ComputeMode::ExclusiveProcess),
            value => Err(GpuError::UnknownComputeMode { uuid: uuid.clone(), value }),
        }
    }

    fn set_compute_mode(&self, uuid: &GpuUuid, mode: ComputeMode) -> Result<(), GpuError> {
        let mode = match mode {
            ComputeMode::Default => WrapperMode::Default,
            ComputeMode::ExclusiveThread => WrapperMode::ExclusiveThread,
            ComputeMode::Prohibited => WrapperMode::Prohibited,
            ComputeMode::ExclusiveProcess => WrapperMode::ExclusiveProcess,
        };
        self.with(uuid, |_, device| {
            device.set_compute_mode(mode).map_err(CallError::wrap("nvmlDeviceSetComputeMode"))
        })
    }

    fn persistence(&self, uuid: &GpuUuid) -> Result<bool, GpuError> {
        self.with(uuid, |_, device| {
            let answer = device.is_in_persistent_mode();
            answer.map_err(CallError::wrap("nvmlDeviceGetPersistenceMode"))
        })
    }

    fn set_persistence(&self, uuid: &GpuUuid, on: bool) -> Result<(), GpuError> {
        self.with(uuid, |_, device| {
            device.set_persistent(on).map_err(CallError::wrap("nvmlDeviceSetPersistenceMode"))
        })
    }
}
