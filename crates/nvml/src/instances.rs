//! What a GPU is partitioned into now: GPU instances, and the MIG devices on them. Only read
//! here, and never kept: others create and destroy instances too, also while this looks.

use std::collections::BTreeSet;

use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigProfile};
use gpu_dra_model::{GpuInstanceId, MigUuid};
use nvml_wrapper::{Device, Nvml};

use crate::code::{CallError, Code};
use crate::limits::{self, at_most};
use crate::raw_mig::{self, GpuInstanceInfo};
use crate::raw_text;

/// What has to be known of a GPU instance profile to deal with its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The profile's id.
    pub(crate) id: u32,
    /// Compute slices.
    pub(crate) slices: u32,
}

impl From<&MigProfile> for Kind {
    fn from(profile: &MigProfile) -> Self {
        Self { id: profile.id, slices: profile.slices }
    }
}

/// All GPU instances, by id, with their compute instances. The GPU must be in MIG mode.
pub(crate) fn read(
    nvml: &Nvml,
    device: &Device<'_>,
    kinds: &[Kind],
) -> Result<Vec<GpuInstance>, CallError> {
    let mut instances: Vec<_> = gpu_instances(nvml, device, kinds)?
        .into_iter()
        .map(|info| GpuInstance {
            id: info.id,
            profile_id: info.profile_id,
            placement: info.placement,
            compute_instances: Vec::new(),
        })
        .collect();
    if instances.is_empty() {
        return Ok(instances);
    }
    for (parent, compute) in mig_devices(device, |mig| compute_instance(nvml, mig))? {
        // One that came after the list was read is seen at the next look.
        if let Some(instance) = instances.iter_mut().find(|instance| instance.id == parent) {
            instance.compute_instances.push(compute);
        }
    }
    for instance in &mut instances {
        instance.compute_instances.sort_by_key(|compute| compute.id);
    }
    Ok(instances)
}

/// The compute instance that a MIG device is, and the GPU instance that it's in.
pub(crate) fn compute_instance(
    nvml: &Nvml,
    mig: &Device<'_>,
) -> Result<(GpuInstanceId, ComputeInstance), CallError> {
    let attributes = mig.attributes().map_err(CallError::wrap("nvmlDeviceGetAttributes_v2"))?;
    let compute = ComputeInstance {
        id: raw_mig::compute_instance_id(nvml, mig)?,
        uuid: uuid(mig)?,
        slices: attributes.compute_instance_slice_count,
        multiprocessors: attributes.multiprocessor_count,
    };
    Ok((raw_mig::gpu_instance_id(nvml, mig)?, compute))
}

/// What `see` makes of each MIG device: of each compute instance, that is. `see` fails with
/// INVALID_ARGUMENT or NOT_FOUND where the device was destroyed meanwhile.
pub(crate) fn mig_devices<T>(
    device: &Device<'_>,
    see: impl Fn(&Device<'_>) -> Result<T, CallError>,
) -> Result<Vec<T>, CallError> {
    const MOST: &str = "nvmlDeviceGetMaxMigDeviceCount";
    let most = device.mig_device_count().map_err(CallError::wrap(MOST))?;
    let most = at_most(limits::OF_ONE_GPU, MOST, most)?;
    let at = |index| {
        device
            .mig_device_by_index(index)
            .map_err(CallError::wrap("nvmlDeviceGetMigDeviceHandleByIndex"))
            .and_then(|mig| see(&mig))
    };
    // Destroyed ones leave holes.
    (0..most).filter_map(|index| if_still_there(at(index)).transpose()).collect()
}

/// The instances that there are, and no more than it takes to tell them from others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    instances: Vec<GpuInstanceInfo>,
    devices: BTreeSet<MigUuid>,
}

impl Geometry {
    /// Costs a call for each profile and instance, and where there are instances, one for
    /// each MIG device that there could be.
    pub(crate) fn read(
        nvml: &Nvml,
        device: &Device<'_>,
        kinds: &[Kind],
    ) -> Result<Self, CallError> {
        let instances = gpu_instances(nvml, device, kinds)?;
        let devices = if instances.is_empty() {
            BTreeSet::new()
        } else {
            mig_devices(device, uuid)?.into_iter().collect()
        };
        Ok(Self { instances, devices })
    }

    /// That of instances that were read before.
    pub(crate) fn of(instances: &[GpuInstance]) -> Self {
        let info = |instance: &GpuInstance| GpuInstanceInfo {
            id: instance.id,
            profile_id: instance.profile_id,
            placement: instance.placement,
        };
        let computes = instances.iter().flat_map(|instance| &instance.compute_instances);
        Self {
            instances: instances.iter().map(info).collect(),
            devices: computes.map(|compute| compute.uuid.clone()).collect(),
        }
    }
}

/// All GPU instances, by id.
fn gpu_instances(
    nvml: &Nvml,
    device: &Device<'_>,
    kinds: &[Kind],
) -> Result<Vec<GpuInstanceInfo>, CallError> {
    let mut found = Vec::new();
    for kind in kinds {
        for instance in raw_mig::gpu_instances(nvml, device, kind.id)? {
            found.extend(if_still_there(instance.info())?);
        }
    }
    found.sort();
    Ok(found)
}

fn uuid(mig: &Device<'_>) -> Result<MigUuid, CallError> {
    let unknown = CallError { call: "nvmlDeviceGetUUID", code: Code::UNKNOWN };
    MigUuid::new(raw_text::uuid(mig)?).map_err(|_| unknown)
}

/// None for a handle that the library gave a moment ago and now refuses, or never gave.
fn if_still_there<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(CallError { code: Code::NOT_FOUND | Code::INVALID_ARGUMENT, .. }) => Ok(None),
        answer => answer.map(Some),
    }
}
