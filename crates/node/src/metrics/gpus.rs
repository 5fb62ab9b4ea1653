//! NVML, timed: how long what is asked takes, what fails, and what doesn't come back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gpu_dra_health::HealthReading;
use gpu_dra_metrics::client::metrics::counter::Counter;
use gpu_dra_metrics::client::metrics::family::Family;
use gpu_dra_metrics::client::metrics::histogram::Histogram;
use gpu_dra_metrics::client::registry::Registry;
use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigMode};
use gpu_dra_model::{
    ComputeInstanceId, ComputeMode, GpuInstanceId, GpuUuid, Inventory, Minor, Placement,
};
use gpu_dra_nvml::{Code, Fingerprint, GpuError, GpuProcess, Gpus, OpenError};

/// A question takes less than a millisecond, a cold initialisation some seconds a GPU.
const BUCKETS: [f64; 10] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

type OperationLabel = [(&'static str, &'static str); 1];
type Durations = Family<OperationLabel, Histogram, fn() -> Histogram>;
type ErrorLabels = [(&'static str, String); 2];

/// How NVML does.
#[derive(Debug, Clone)]
pub struct NvmlMetrics {
    durations: Durations,
    errors: Family<ErrorLabels, Counter>,
    flights: Arc<Flights>,
}

impl Default for NvmlMetrics {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            errors: Family::default(),
            flights: Arc::default(),
        }
    }
}

impl NvmlMetrics {
    pub(super) fn register(&self, page: &mut Registry) {
        page.register(
            "nvml_operation_duration_seconds",
            "How long NVML took, by what it was asked or told: one to a few hundred calls",
            self.durations.clone(),
        );
        page.register(
            "nvml_errors",
            "Answers of NVML that are errors, by function and NVML's code; function open: it \
             could not be opened",
            self.errors.clone(),
        );
    }

    fn count(&self, function: &'static str, code: u32) {
        let labels = [("function", function.to_owned()), ("code", code.to_string())];
        self.errors.get_or_create(&labels).inc();
    }

    /// What is under way in NVML now.
    #[must_use]
    pub fn flights(&self) -> &Arc<Flights> {
        &self.flights
    }
}

/// What is under way in NVML.
#[derive(Debug, Default)]
pub struct Flights(Mutex<Vec<(&'static str, Instant)>>);

impl Flights {
    /// What began first of all that has not come back, and how long ago.
    #[must_use]
    pub fn oldest(&self) -> Option<(&'static str, Duration)> {
        let oldest = self.lock().iter().min_by_key(|(_, since)| *since).copied();
        oldest.map(|(operation, since)| (operation, since.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(&'static str, Instant)>> {
        // Nothing in here can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, operation: &'static str) -> Flight<'_> {
        let since = Instant::now();
        self.lock().push((operation, since));
        Flight { flights: self, operation, since }
    }
}

/// Under way until it is dropped.
pub(crate) struct Flight<'f> {
    flights: &'f Flights,
    operation: &'static str,
    since: Instant,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut all = self.flights.lock();
        if let Some(at) = all.iter().position(|flight| *flight == (self.operation, self.since)) {
            all.swap_remove(at);
        }
    }
}

/// Which function failed, and how.
trait Blame {
    fn blame(&self) -> (&'static str, Code);
}

impl Blame for OpenError {
    fn blame(&self) -> (&'static str, Code) {
        match self {
            Self::Init(call) | Self::Call(call) => (call.call, call.code),
            Self::DriverNotLoaded => ("open", Code::DRIVER_NOT_LOADED),
            Self::VersionMismatch { .. } => ("open", Code::LIB_RM_VERSION_MISMATCH),
            Self::NoPermission { .. } => ("open", Code::NO_PERMISSION),
            _ => ("open", Code::NOT_FOUND),
        }
    }
}

impl Blame for GpuError {
    fn blame(&self) -> (&'static str, Code) {
        match self {
            Self::Driver(error) => error.blame(),
            Self::Gone { .. } => ("nvmlDeviceGetHandleByUUID", Code::NOT_FOUND),
            Self::Call { source, .. } => (source.call, source.code),
            Self::UnknownComputeMode { .. } => ("nvmlDeviceGetComputeMode", Code::UNKNOWN),
            Self::MigModeInUse { .. } => ("nvmlDeviceSetMigMode", Code::IN_USE),
            Self::MigModePending { .. } => ("nvmlDeviceSetMigMode", Code::RESET_REQUIRED),
            Self::PlacementTaken { .. } => {
                ("nvmlDeviceCreateGpuInstanceWithPlacement", Code::INSUFFICIENT_RESOURCES)
            }
            Self::NoGpuInstance { .. } => ("nvmlDeviceGetGpuInstanceById", Code::NOT_FOUND),
            Self::NoComputeProfile { .. } => {
                ("nvmlGpuInstanceGetComputeInstanceProfileInfo", Code::NOT_SUPPORTED)
            }
            Self::InstanceInUse { compute: Some(_), .. } => {
                ("nvmlComputeInstanceDestroy", Code::IN_USE)
            }
            Self::InstanceInUse { compute: None, .. } => ("nvmlGpuInstanceDestroy", Code::IN_USE),
        }
    }
}

/// [`Gpus`] that are timed.
pub struct MeasuredGpus {
    gpus: Arc<dyn Gpus>,
    metrics: NvmlMetrics,
}

impl MeasuredGpus {
    /// Times what is asked of these.
    #[must_use]
    pub fn new(gpus: Arc<dyn Gpus>, metrics: NvmlMetrics) -> Self {
        Self { gpus, metrics }
    }

    fn timed<T, E: Blame>(
        &self,
        operation: &'static str,
        ask: impl FnOnce(&dyn Gpus) -> Result<T, E>,
    ) -> Result<T, E> {
        let flight = self.metrics.flights.begin(operation);
        let answer = ask(self.gpus.as_ref());
        let time = flight.since.elapsed();
        drop(flight);
        let durations = self.metrics.durations.get_or_create(&[("operation", operation)]);
        durations.observe(time.as_secs_f64());
        if let Err(error) = &answer {
            let (function, code) = error.blame();
            self.metrics.count(function, code.0);
        }
        answer
    }
}

impl Gpus for MeasuredGpus {
    fn probe(&self) -> Result<Inventory, OpenError> {
        self.timed("probe", |gpus| gpus.probe())
    }

    fn fingerprint(&self) -> Result<Fingerprint, OpenError> {
        self.timed("fingerprint", |gpus| gpus.fingerprint())
    }

    fn minor_of(&self, uuid: &GpuUuid) -> Result<Minor, GpuError> {
        self.timed("minor_of", |gpus| gpus.minor_of(uuid))
    }

    fn compute_mode(&self, uuid: &GpuUuid) -> Result<ComputeMode, GpuError> {
        self.timed("compute_mode", |gpus| gpus.compute_mode(uuid))
    }

    fn set_compute_mode(&self, uuid: &GpuUuid, mode: ComputeMode) -> Result<(), GpuError> {
        self.timed("set_compute_mode", |gpus| gpus.set_compute_mode(uuid, mode))
    }

    fn persistence(&self, uuid: &GpuUuid) -> Result<bool, GpuError> {
        self.timed("persistence", |gpus| gpus.persistence(uuid))
    }

    fn set_persistence(&self, uuid: &GpuUuid, on: bool) -> Result<(), GpuError> {
        self.timed("set_persistence", |gpus| gpus.set_persistence(uuid, on))
    }

    fn mig_mode(&self, uuid: &GpuUuid) -> Result<Option<(MigMode, MigMode)>, GpuError> {
        self.timed("mig_mode", |gpus| gpus.mig_mode(uuid))
    }

    fn set_mig_mode(&self, uuid: &GpuUuid, mode: MigMode) -> Result<(), GpuError> {
        self.timed("set_mig_mode", |gpus| gpus.set_mig_mode(uuid, mode))
    }

    fn gpu_instances(&self, uuid: &GpuUuid) -> Result<Vec<GpuInstance>, GpuError> {
        self.timed("gpu_instances", |gpus| gpus.gpu_instances(uuid))
    }

    fn create_gpu_instance(
        &self,
        uuid: &GpuUuid,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstanceId, GpuError> {
        self.timed("create_gpu_instance", |gpus| {
            gpus.create_gpu_instance(uuid, profile_id, placement)
        })
    }

    fn create_compute_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
    ) -> Result<ComputeInstance, GpuError> {
        self.timed("create_compute_instance", |gpus| gpus.create_compute_instance(uuid, instance))
    }

    fn destroy_compute_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
        compute: ComputeInstanceId,
    ) -> Result<(), GpuError> {
        self.timed("destroy_compute_instance", |gpus| {
            gpus.destroy_compute_instance(uuid, instance, compute)
        })
    }

    fn destroy_gpu_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
    ) -> Result<(), GpuError> {
        self.timed("destroy_gpu_instance", |gpus| gpus.destroy_gpu_instance(uuid, instance))
    }

    fn health(&self, uuid: &GpuUuid) -> Result<HealthReading, OpenError> {
        let reading = self.timed("health", |gpus| gpus.health(uuid))?;
        // A reading of which parts are missing is none that failed.
        reading.failed.iter().for_each(|failed| self.metrics.count(failed.call, failed.code));
        Ok(reading)
    }

    fn processes(&self, uuid: &GpuUuid, since: SystemTime) -> Result<Vec<GpuProcess>, GpuError> {
        self.timed("processes", |gpus| gpus.processes(uuid, since))
    }
}
