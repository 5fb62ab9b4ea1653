//! MIG devices made for claims: a GPU instance exactly where it was allocated and the compute
//! instance that has all of it, and back. On GPUs whose mode is ours to switch, MIG mode goes
//! on for the first and off after the last.
//!
//! It never touches a GPU instance that lies elsewhere or has another profile than the one
//! it is asked for, and whoever asks has written down before that this one is its own.

use gpu_dra_claims::{HeldPart, KnownStep, Record};
use gpu_dra_executor::EffectError;
use gpu_dra_host::Boundary;
use gpu_dra_model::inventory::{GpuInstance, MigMode};
use gpu_dra_model::{GpuInstanceId, GpuUuid, MigDevice, Partition, Placement};
use gpu_dra_nvml::{GpuError, Gpus};

use super::said;
use crate::events::{Announcer, Severity};

/// The acts on one node's GPUs.
pub(crate) struct Partitions<'a> {
    pub(crate) gpus: &'a dyn Gpus,
    pub(crate) boundary: &'a Boundary,
    pub(crate) announcer: &'a Announcer,
}

impl Partitions<'_> {
    /// Whether something is in the way of the plan that no claim knows of, and whether the
    /// MIG devices of others that it uses are there.
    pub(crate) fn check(&self, plan: &Record) -> Result<(), EffectError> {
        for device in plan.devices.iter().filter(|device| !device.admin) {
            let gpu = &device.gpu;
            match &device.part {
                None => {
                    let off = KnownStep::MigModeOff { gpu: gpu.clone() };
                    let may_be_on = plan.known_steps().unwrap_or_default().contains(&&off);
                    if may_be_on && let Some(instance) = self.instances(gpu)?.first() {
                        return Err(foreign(gpu, instance));
                    }
                }
                Some(HeldPart::Partition(partition)) => {
                    let placement = partition.placement;
                    let instances = self.instances(gpu)?;
                    let mut in_the_way = instances.iter();
                    if let Some(instance) =
                        in_the_way.find(|other| other.placement.overlaps(placement))
                    {
                        return Err(foreign(gpu, instance));
                    }
                }
                Some(HeldPart::Static { device, .. }) => {
                    if !has(&self.instances(gpu)?, device) {
                        let (gpu, uuid) = (gpu.clone(), device.uuid.clone());
                        return Err(EffectError::MigDeviceGone { gpu, uuid });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether all MIG devices of a prepared claim are still there.
    pub(crate) fn holds(&self, record: &Record) -> Result<bool, EffectError> {
        for device in record.devices.iter().filter(|device| !device.admin) {
            let mig = match &device.part {
                None => continue,
                Some(HeldPart::Static { device, .. }) => Some(device),
                Some(HeldPart::Partition(partition)) => record.made(&device.gpu, *partition),
            };
            let instances = self.instances(&device.gpu)?;
            if !mig.is_some_and(|mig| has(&instances, mig)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The MIG device that lies there now, for claims that only watch.
    pub(crate) fn find(
        &self,
        gpu: &GpuUuid,
        partition: Partition,
    ) -> Result<Option<MigDevice>, EffectError> {
        let instances = self.instances(gpu)?;
        let instance = instances.iter().find(|instance| is(instance, partition));
        Ok(instance.and_then(|instance| {
            let compute = instance.compute_instances.first()?;
            Some(MigDevice {
                instance: instance.id,
                compute: compute.id,
                uuid: compute.uuid.clone(),
            })
        }))
    }

    /// Makes the GPU instance and its compute instance.
    pub(crate) fn make(
        &self,
        gpu: &GpuUuid,
        partition: Partition,
        switch_mode: bool,
    ) -> Result<MigDevice, EffectError> {
        let refused = |error: GpuError| EffectError::PartitionNotMade(said(&error));
        let mode = self.gpus.mig_mode(gpu).map_err(refused)?;
        if !matches!(mode, Some((MigMode::Enabled, _))) {
            if !switch_mode {
                let what =
                    format!("MIG mode of {gpu} is off, and this GPU needs a reset to change it");
                return Err(EffectError::PartitionNotMade(what));
            }
            self.switch(gpu, MigMode::Enabled).map_err(refused)?;
        }
        self.boundary.pass("create GPU instance");
        let made = self.gpus.create_gpu_instance(gpu, partition.profile_id, partition.placement);
        let instance = made.map_err(|error| {
            self.mode_off_after_the_last(gpu, switch_mode);
            refused(error)
        })?;
        self.boundary.pass("create compute instance");
        match self.gpus.create_compute_instance(gpu, instance) {
            Ok(compute) => {
                self.boundary.pass("MIG device is made");
                Ok(MigDevice { instance, compute: compute.id, uuid: compute.uuid })
            }
            Err(error) => Err(self.take_back(gpu, instance, switch_mode, &error)),
        }
    }

    /// A GPU instance on which nothing can run must not stay.
    fn take_back(
        &self,
        gpu: &GpuUuid,
        instance: GpuInstanceId,
        switch_mode: bool,
        error: &GpuError,
    ) -> EffectError {
        match self.gpus.destroy_gpu_instance(gpu, instance) {
            Ok(()) => {
                self.mode_off_after_the_last(gpu, switch_mode);
                EffectError::PartitionNotMade(said(error))
            }
            Err(second) => {
                tracing::warn!(%gpu, %instance, error = %said(&second), "GPU instance not taken back");
                EffectError::PartitionHalfMade(said(error))
            }
        }
    }

    /// Removes what [`Partitions::make`] made, or as much of it as there is.
    pub(crate) fn unmake(
        &self,
        gpu: &GpuUuid,
        partition: Partition,
        made: Option<&MigDevice>,
        switch_mode: bool,
    ) -> Result<(), EffectError> {
        let kept = |error: GpuError| EffectError::PartitionNotRemoved(said(&error));
        let instances = match self.gpus.gpu_instances(gpu) {
            // It comes back without instances.
            Err(GpuError::Gone { .. }) => return Ok(()),
            answer => answer.map_err(kept)?,
        };
        if let Some(instance) = instances.iter().find(|instance| is(instance, partition)) {
            let ours = made.is_none_or(|made| {
                instance.compute_instances.is_empty()
                    || instance.compute_instances.iter().any(|compute| compute.uuid == made.uuid)
            });
            if !ours {
                let message = format!(
                    "GPU instance {} of {gpu} was replaced by somebody else's while a claim held it; it stays",
                    instance.id
                );
                self.announcer.announce(Severity::Warning, "ForeignGpuInstance", message);
                return Ok(());
            }
            for compute in &instance.compute_instances {
                self.boundary.pass("destroy compute instance");
                self.gpus.destroy_compute_instance(gpu, instance.id, compute.id).map_err(kept)?;
            }
            self.boundary.pass("destroy GPU instance");
            self.gpus.destroy_gpu_instance(gpu, instance.id).map_err(kept)?;
        }
        self.mode_off_after_the_last(gpu, switch_mode);
        self.boundary.pass("MIG device is gone");
        Ok(())
    }

    /// A GPU in MIG mode runs no CUDA as a whole.
    pub(crate) fn leave_mig_mode(&self, gpu: &GpuUuid) -> Result<(), EffectError> {
        let stays = |error: GpuError| EffectError::MigModeStays(said(&error));
        match self.gpus.mig_mode(gpu).map_err(stays)? {
            Some((MigMode::Enabled, _)) => self.switch(gpu, MigMode::Disabled).map_err(stays),
            _ => Ok(()),
        }
    }

    /// An idle GPU is better off whole. That it can't be now (some program holds it) harms
    /// nobody yet: the next claim for the whole GPU tries again, and says why if it can't.
    fn mode_off_after_the_last(&self, gpu: &GpuUuid, switch_mode: bool) {
        if !switch_mode {
            return;
        }
        let idle = self.gpus.gpu_instances(gpu).map(|instances| instances.is_empty());
        let switched = match (idle, self.gpus.mig_mode(gpu)) {
            (Ok(true), Ok(Some((MigMode::Enabled, _)))) => self.switch(gpu, MigMode::Disabled),
            (Ok(_), Ok(_)) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        if let Err(error) = switched {
            let message = format!("MIG mode stays on with no MIG device left: {}", said(&error));
            self.announcer.announce(Severity::Warning, "MigModeStays", message);
        }
    }

    fn switch(&self, gpu: &GpuUuid, mode: MigMode) -> Result<(), GpuError> {
        self.boundary.pass("switch MIG mode");
        if let Err(error) = self.gpus.set_mig_mode(gpu, mode) {
            self.take_back_mode(gpu, mode);
            return Err(error);
        }
        let (reason, message) = match mode {
            MigMode::Enabled => {
                ("MigModeOn", format!("MIG mode of {gpu} is on, for its first MIG device"))
            }
            MigMode::Disabled => {
                ("MigModeOff", format!("MIG mode of {gpu} is off, it has no MIG device any more"))
            }
        };
        self.announcer.announce(Severity::Normal, reason, message);
        self.boundary.pass("MIG mode is switched");
        Ok(())
    }

    /// A mode that could not be switched to may stay pending: the next reset would bring it
    /// when nobody expects it any more, and until then the GPU is for one use only.
    fn take_back_mode(&self, gpu: &GpuUuid, refused: MigMode) {
        let before = match refused {
            MigMode::Enabled => MigMode::Disabled,
            MigMode::Disabled => MigMode::Enabled,
        };
        if let Err(error) = self.gpus.set_mig_mode(gpu, before) {
            tracing::warn!(%gpu, error = %said(&error), "MIG mode stays pending");
        }
    }

    fn instances(&self, gpu: &GpuUuid) -> Result<Vec<GpuInstance>, EffectError> {
        self.gpus.gpu_instances(gpu).map_err(|error| match error {
            GpuError::Gone { uuid } => EffectError::GpuGone(uuid),
            error => EffectError::MigNotRead(said(&error)),
        })
    }
}

fn is(instance: &GpuInstance, partition: Partition) -> bool {
    (instance.profile_id, instance.placement) == (partition.profile_id, partition.placement)
}

fn has(instances: &[GpuInstance], device: &MigDevice) -> bool {
    instances.iter().any(|instance| {
        instance.id == device.instance
            && instance.compute_instances.iter().any(|compute| compute.uuid == device.uuid)
    })
}

fn foreign(gpu: &GpuUuid, instance: &GpuInstance) -> EffectError {
    let placement: Placement = instance.placement;
    EffectError::ForeignInstance { gpu: gpu.clone(), instance: instance.id, placement }
}
