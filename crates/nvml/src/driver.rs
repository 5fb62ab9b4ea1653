//! [`Driver`], the real side of [`Gpus`]: one NVML session for the life of the process, opened
//! when there is a driver, closed when the driver goes, opened again when it or a GPU comes
//! back. It retries nothing; who asks again decides when.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gpu_dra_health::HealthReading;
use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigMode, Placement};
use gpu_dra_model::{ComputeInstanceId, ComputeMode, GpuInstanceId, GpuUuid, Inventory, Minor};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode as WrapperMode;

use crate::code::CallError;
use crate::current::{Current, Turn};
use crate::error::{GpuError, OpenError};
use crate::fingerprint::Fingerprint;
use crate::gpus::Gpus;
use crate::partitions::Partitions;
use crate::processes::GpuProcess;
use crate::session::Session;
use crate::trees::Trees;
use crate::{health, probe, processes, raw};

/// Finds the library file now; it may appear, move or vanish while the agent runs.
type Locate = Box<dyn Fn() -> Result<PathBuf, OpenError> + Send + Sync>;

/// The real [`Gpus`], through NVML.
pub struct Driver {
    locate: Locate,
    trees: Trees,
    current: Current,
}

impl Driver {
    /// A driver that is not touched before the first call. `locate` answers where
    /// `libnvidia-ml.so.1` is, or [`OpenError::no_library`]; it's asked at each opening.
    pub fn new(
        locate: impl Fn() -> Result<PathBuf, OpenError> + Send + Sync + 'static,
        trees: Trees,
    ) -> Self {
        Self { locate: Box::new(locate), trees, current: Current::default() }
    }

    /// Lets the driver module go as soon as calls under way have ended, of which waiting for
    /// events is one: a quarter of a second. The next call opens a new session.
    pub fn close(&self) {
        self.current.close();
    }

    /// Whether a session is open, and so the driver module in use.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.current.get().is_some()
    }

    /// The open session and which it is; none is opened for the sake of this.
    pub(crate) fn turn(&self) -> Option<Turn> {
        self.current.get()
    }

    /// Whether it is still the open session. Waits for nobody.
    pub(crate) fn is_current(&self, turn: &Turn) -> bool {
        self.current.is(turn)
    }

    /// The open session, or a new one.
    fn session(&self) -> Result<Arc<Session>, OpenError> {
        self.current.get_or_open(&self.trees, || Session::open(&(self.locate)()?, &self.trees))
    }

    /// Asks the whole node, with a session that is up to date; a session that turns out to be
    /// over, or without any GPU, is not kept.
    fn ask<T>(&self, ask: impl FnOnce(&Session) -> Result<T, OpenError>) -> Result<T, OpenError> {
        self.current.close_if_outdated(&self.trees);
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

    /// Acts on one GPU, by its UUID, with one call.
    fn with<T>(
        &self,
        uuid: &GpuUuid,
        act: impl FnOnce(&Session, &mut Device<'_>) -> Result<T, CallError>,
    ) -> Result<T, GpuError> {
        self.act(|session| {
            let answer = act(session, &mut session.device(uuid)?);
            answer.map_err(|source| GpuError::Call { uuid: uuid.clone(), source })
        })
    }

    /// Acts on the partitions of one GPU, by its UUID.
    fn partitions<T>(
        &self,
        uuid: &GpuUuid,
        act: impl FnOnce(&Partitions<'_>) -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        self.act(|session| act(&Partitions::of(session, uuid)?))
    }

    /// Acts with the open session, and doesn't keep one that turns out to be over.
    fn act<T>(&self, act: impl FnOnce(&Session) -> Result<T, GpuError>) -> Result<T, GpuError> {
        let answer = act(&*self.session()?);
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

    fn mig_mode(&self, uuid: &GpuUuid) -> Result<Option<(MigMode, MigMode)>, GpuError> {
        self.partitions(uuid, |gpu| gpu.mode())
    }

    fn set_mig_mode(&self, uuid: &GpuUuid, mode: MigMode) -> Result<(), GpuError> {
        self.partitions(uuid, |gpu| gpu.set_mode(mode))
    }

    fn gpu_instances(&self, uuid: &GpuUuid) -> Result<Vec<GpuInstance>, GpuError> {
        self.partitions(uuid, |gpu| gpu.instances())
    }

    fn create_gpu_instance(
        &self,
        uuid: &GpuUuid,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstanceId, GpuError> {
        self.partitions(uuid, |gpu| gpu.create(profile_id, placement))
    }

    fn create_compute_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
    ) -> Result<ComputeInstance, GpuError> {
        self.partitions(uuid, |gpu| gpu.create_compute(instance))
    }

    fn destroy_compute_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
        compute: ComputeInstanceId,
    ) -> Result<(), GpuError> {
        self.partitions(uuid, |gpu| gpu.destroy_compute(instance, compute))
    }

    fn destroy_gpu_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
    ) -> Result<(), GpuError> {
        self.partitions(uuid, |gpu| gpu.destroy(instance))
    }

    fn health(&self, uuid: &GpuUuid) -> Result<HealthReading, OpenError> {
        let answer = health::read(&*self.session()?, uuid);
        if answer.is_err() {
            self.close();
        }
        answer
    }

    fn processes(&self, uuid: &GpuUuid, since: SystemTime) -> Result<Vec<GpuProcess>, GpuError> {
        self.with(uuid, |session, device| processes::read(session.nvml(), device, since))
    }
}
