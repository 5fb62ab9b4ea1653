//! [`Gpus`], the seam through which the node agent asks and changes GPUs. It says what there
//! is to ask; how, is the driver's side.

use std::time::SystemTime;

use gpu_dra_health::HealthReading;
use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigMode, Placement};
use gpu_dra_model::{ComputeInstanceId, ComputeMode, GpuInstanceId, GpuUuid, Inventory, Minor};

use crate::error::{GpuError, OpenError};
use crate::fingerprint::Fingerprint;
use crate::processes::GpuProcess;

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

    /// The MIG modes in force and pending (`nvmlDeviceGetMigMode`); they differ while a reset
    /// is due. None where the GPU has no MIG.
    ///
    /// # Errors
    /// The GPU is gone or doesn't answer.
    fn mig_mode(&self, uuid: &GpuUuid) -> Result<Option<(MigMode, MigMode)>, GpuError>;

    /// Switches MIG mode (`nvmlDeviceSetMigMode`) and looks whether it is in force: at once
    /// on Hopper and newer, after a reset before. Nothing is done if it already is. Needs
    /// root, and a GPU without clients and instances.
    ///
    /// # Errors
    /// [`GpuError::MigModeInUse`] if another client has the GPU, [`GpuError::MigModePending`]
    /// if only a reset brings the mode into force; both may leave it pending, which setting
    /// the mode in force takes back. Else the GPU is gone or refuses.
    fn set_mig_mode(&self, uuid: &GpuUuid, mode: MigMode) -> Result<(), GpuError>;

    /// All GPU instances by id with their compute instances (`nvmlDeviceGetGpuInstances`,
    /// `nvmlDeviceGetMigDeviceHandleByIndex`), whoever made them. Empty while MIG is off.
    ///
    /// # Errors
    /// The GPU is gone or doesn't answer.
    fn gpu_instances(&self, uuid: &GpuUuid) -> Result<Vec<GpuInstance>, GpuError>;

    /// Creates a GPU instance exactly there (`nvmlDeviceCreateGpuInstanceWithPlacement`); it
    /// outlives this process, but not a reboot or reset. Needs root and MIG mode.
    ///
    /// # Errors
    /// [`GpuError::PlacementTaken`] if others are in the way; the GPU is gone, has no such
    /// profile or placement, or refuses.
    fn create_gpu_instance(
        &self,
        uuid: &GpuUuid,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstanceId, GpuError>;

    /// Creates the compute instance that has the whole GPU instance
    /// (`nvmlGpuInstanceCreateComputeInstance`). On an error none is left behind, unless the
    /// log says so. Needs root.
    ///
    /// # Errors
    /// [`GpuError::NoGpuInstance`], [`GpuError::NoComputeProfile`]; the GPU is gone or
    /// refuses, with [`Code::INSUFFICIENT_RESOURCES`](crate::Code::INSUFFICIENT_RESOURCES) if
    /// the GPU instance has a compute instance already.
    fn create_compute_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
    ) -> Result<ComputeInstance, GpuError>;

    /// Destroys a compute instance (`nvmlComputeInstanceDestroy`), or finds it gone. Needs
    /// root.
    ///
    /// # Errors
    /// [`GpuError::InstanceInUse`] while processes run on it; the GPU is gone or refuses.
    fn destroy_compute_instance(
        &self,
        uuid: &GpuUuid,
        instance: GpuInstanceId,
        compute: ComputeInstanceId,
    ) -> Result<(), GpuError>;

    /// Destroys a GPU instance (`nvmlGpuInstanceDestroy`), or finds it gone. Needs root.
    ///
    /// # Errors
    /// [`GpuError::InstanceInUse`] while it has compute instances; the GPU is gone or refuses.
    fn destroy_gpu_instance(&self, uuid: &GpuUuid, instance: GpuInstanceId)
    -> Result<(), GpuError>;

    /// What the GPU says of its health. Two calls, three with NVLink. A GPU that isn't there
    /// any more is told as lost, like one that has fallen off the bus; what it can't be asked
    /// is left out.
    ///
    /// # Errors
    /// NVML can't be used.
    fn health(&self, uuid: &GpuUuid) -> Result<HealthReading, OpenError> {
        // For sides that know nothing of health.
        let _ = uuid;
        Ok(HealthReading::default())
    }

    /// What runs on the GPU and its MIG instances now, with what each process has used since
    /// then (`nvmlDeviceGetComputeRunningProcesses_v3`,
    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`, `nvmlDeviceGetProcessUtilization`). Five
    /// to eight calls; empty where the driver is older than 510.
    ///
    /// # Errors
    /// The GPU is gone or doesn't answer.
    fn processes(&self, uuid: &GpuUuid, since: SystemTime) -> Result<Vec<GpuProcess>, GpuError> {
        // For sides on which nothing runs.
        let _ = (uuid, since);
        Ok(Vec::new())
    }
}
