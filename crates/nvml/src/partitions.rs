//! Acts on one GPU's partitions: MIG mode, GPU instances, compute instances. Each is one
//! step that has happened, or has not and says why; what belongs to whom, and in which
//! order, is for others to know.

use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigMode, Placement};
use gpu_dra_model::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use nvml_wrapper::{Device, Nvml};
use tracing::warn;

use crate::code::{CallError, Code};
use crate::error::GpuError;
use crate::instances;
use crate::mig;
use crate::raw_mig::{self, COMPUTE_PROFILE_COUNT, ComputeProfile, GpuInstanceHandle};
use crate::session::Session;

/// One GPU, for one act.
pub(crate) struct Partitions<'s> {
    session: &'s Session,
    device: Device<'s>,
    uuid: &'s GpuUuid,
}

impl<'s> Partitions<'s> {
    /// The GPU with this UUID, looked up anew: its handle may be from before a mode change.
    pub(crate) fn of(session: &'s Session, uuid: &'s GpuUuid) -> Result<Self, GpuError> {
        Ok(Self { session, device: session.device(uuid)?, uuid })
    }

    fn nvml(&self) -> &'s Nvml {
        self.session.nvml()
    }

    fn refused(&self, source: CallError) -> GpuError {
        GpuError::Call { uuid: self.uuid.clone(), source }
    }

    pub(crate) fn mode(&self) -> Result<Option<(MigMode, MigMode)>, GpuError> {
        mig::mode(&self.device).map_err(|source| self.refused(source))
    }

    pub(crate) fn set_mode(&self, wanted: MigMode) -> Result<(), GpuError> {
        const CALL: &str = "nvmlDeviceSetMigMode";
        if self.mode()? == Some((wanted, wanted)) {
            return Ok(());
        }
        let answer = self.device.set_mig_mode(wanted == MigMode::Enabled);
        // The call may succeed and the activation fail.
        let status = match answer.map(Code).map_err(CallError::wrap(CALL)) {
            Ok(Code::IN_USE) | Err(CallError { code: Code::IN_USE, .. }) => {
                return Err(GpuError::MigModeInUse { uuid: self.uuid.clone(), mode: wanted });
            }
            Ok(status) => status,
            Err(source) => return Err(self.refused(source)),
        };
        match Self::of(self.session, self.uuid)?.mode()? {
            Some((current, _)) if current == wanted => Ok(()),
            Some((_, pending)) if pending == wanted => {
                Err(GpuError::MigModePending { uuid: self.uuid.clone(), mode: wanted })
            }
            _ => {
                let code = if status == Code(0) { Code::UNKNOWN } else { status };
                Err(self.refused(CallError { call: CALL, code }))
            }
        }
    }

    pub(crate) fn instances(&self) -> Result<Vec<GpuInstance>, GpuError> {
        match self.mode()? {
            Some((MigMode::Enabled, _)) => {}
            Some((MigMode::Disabled, _)) | None => return Ok(Vec::new()),
        }
        let kinds = self.session.kinds(self.uuid, &self.device);
        kinds
            .and_then(|kinds| instances::read(self.nvml(), &self.device, &kinds))
            .map_err(|source| self.refused(source))
    }

    pub(crate) fn create(
        &self,
        profile_id: u32,
        placement: Placement,
    ) -> Result<GpuInstanceId, GpuError> {
        let made = raw_mig::create_gpu_instance(self.nvml(), &self.device, profile_id, placement)
            .map_err(|source| match source.code {
            Code::INSUFFICIENT_RESOURCES => {
                GpuError::PlacementTaken { uuid: self.uuid.clone(), profile_id, placement }
            }
            _ => self.refused(source),
        })?;
        made.info().map(|info| info.id).map_err(|source| {
            self.undone(made.destroy());
            self.refused(source)
        })
    }

    pub(crate) fn create_compute(
        &self,
        instance: GpuInstanceId,
    ) -> Result<ComputeInstance, GpuError> {
        let found = self.find(instance)?;
        let found =
            found.ok_or_else(|| GpuError::NoGpuInstance { uuid: self.uuid.clone(), instance })?;
        let whole = self.whole(found).map_err(|source| self.refused(source))?;
        let whole = whole
            .ok_or_else(|| GpuError::NoComputeProfile { uuid: self.uuid.clone(), instance })?;
        let made =
            found.create_compute_instance(whole.id).map_err(|source| self.refused(source))?;
        let described = made.id().and_then(|id| self.described(instance, id));
        described.map_err(|source| {
            self.undone(made.destroy());
            self.refused(source)
        })
    }

    pub(crate) fn destroy_compute(
        &self,
        instance: GpuInstanceId,
        compute: ComputeInstanceId,
    ) -> Result<(), GpuError> {
        let Some(found) = self.find(instance)? else { return Ok(()) };
        let done = found.compute_instance_by_id(compute).and_then(|found| found.destroy());
        self.destroyed(done, instance, Some(compute))
    }

    pub(crate) fn destroy(&self, instance: GpuInstanceId) -> Result<(), GpuError> {
        let Some(found) = self.find(instance)? else { return Ok(()) };
        self.destroyed(found.destroy(), instance, None)
    }

    /// The GPU instance with this id; None also where MIG is off, since there is none then.
    fn find(&self, id: GpuInstanceId) -> Result<Option<GpuInstanceHandle<'s>>, GpuError> {
        match raw_mig::gpu_instance_by_id(self.nvml(), &self.device, id) {
            Ok(found) => Ok(Some(found)),
            Err(CallError { code: Code::NOT_FOUND, .. }) => Ok(None),
            Err(CallError { code: Code::NOT_SUPPORTED | Code::INVALID_ARGUMENT, .. })
                if !matches!(self.mode()?, Some((MigMode::Enabled, _))) =>
            {
                Ok(None)
            }
            Err(source) => Err(self.refused(source)),
        }
    }

    /// The kind of compute instance that has all of a GPU instance.
    fn whole(&self, instance: GpuInstanceHandle<'_>) -> Result<Option<ComputeProfile>, CallError> {
        let profile_id = instance.info()?.profile_id;
        let kinds = self.session.kinds(self.uuid, &self.device)?;
        let Some(kind) = kinds.iter().find(|kind| kind.id == profile_id) else { return Ok(None) };
        let mut offered = Vec::new();
        for index in 0..COMPUTE_PROFILE_COUNT {
            offered.extend(mig::if_there(instance.compute_profile(index))?);
        }
        Ok(whole_of(kind.slices, &offered))
    }

    /// A compute instance by its MIG device.
    fn described(
        &self,
        instance: GpuInstanceId,
        compute: ComputeInstanceId,
    ) -> Result<ComputeInstance, CallError> {
        let all = instances::mig_devices(&self.device, |mig| {
            instances::compute_instance(self.nvml(), mig)
        });
        let ours = all?.into_iter().find(|(gi, ci)| *gi == instance && ci.id == compute);
        ours.map(|(_, compute)| compute)
            .ok_or(CallError { call: "nvmlDeviceGetMigDeviceHandleByIndex", code: Code::NOT_FOUND })
    }

    /// What the answer to a destruction means: what isn't there need not be destroyed.
    fn destroyed(
        &self,
        done: Result<(), CallError>,
        instance: GpuInstanceId,
        compute: Option<ComputeInstanceId>,
    ) -> Result<(), GpuError> {
        match done {
            Ok(()) | Err(CallError { code: Code::NOT_FOUND, .. }) => Ok(()),
            Err(CallError { code: Code::IN_USE, .. }) => {
                Err(GpuError::InstanceInUse { uuid: self.uuid.clone(), instance, compute })
            }
            Err(source) => Err(self.refused(source)),
        }
    }

    /// Says that an instance that can't be described could not be taken back either.
    fn undone(&self, done: Result<(), CallError>) {
        if let Err(error) = done {
            warn!(gpu = %self.uuid, %error, "a MIG instance that can't be used stays behind");
        }
    }
}

/// The one of the offered kinds that has `slices` compute slices and the most
/// multiprocessors: a 1g instance with double memory has a kind of its own for all that it
/// has, and seven slices come plain and for NVLink. The first of equals wins.
fn whole_of(slices: u32, offered: &[ComputeProfile]) -> Option<ComputeProfile> {
    let whole = offered.iter().copied().filter(|profile| profile.slices == slices);
    whole.reduce(|best, next| if next.multiprocessors > best.multiprocessors { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_has_the_whole_gpu_instance() {
        let profile = |id, slices, multiprocessors| ComputeProfile { id, slices, multiprocessors };
        for (what, slices, offered, id) in [
            ("2g", 2, vec![profile(0, 1, 16), profile(1, 2, 32)], Some(1)),
            ("3g", 3, vec![profile(0, 1, 16), profile(1, 2, 32), profile(2, 3, 60)], Some(2)),
            ("1g, double memory", 1, vec![profile(7, 1, 26)], Some(7)),
            (
                "1g, double memory, both told",
                1,
                vec![profile(0, 1, 16), profile(7, 1, 26)],
                Some(7),
            ),
            ("7g", 7, vec![profile(3, 4, 64), profile(4, 7, 132)], Some(4)),
            ("7g with NVLink's", 7, vec![profile(4, 7, 132), profile(8, 7, 132)], Some(4)),
            ("no such", 4, vec![profile(0, 1, 16)], None),
        ] {
            assert_eq!(whole_of(slices, &offered).map(|profile| profile.id), id, "{what}");
        }
    }
}
