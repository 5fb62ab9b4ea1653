//! GPU instances: create, list, describe, destroy.

use std::ffi::c_uint;

use gpu_dra_sim_data::mig_table::Placement;
use gpu_dra_sim_data::state::GpuInstance;
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use super::mig_profiles::by_id;
use crate::abi::{DeviceArg, Out};
use crate::code::{Answer, Code};
use crate::entry::Call;
use crate::handles::{Thing, handle};

exports! {
    fn nvmlDeviceCreateGpuInstance(
        device: sys::nvmlDevice_t,
        profile: c_uint,
        instance: *mut sys::nvmlGpuInstance_t,
    ) |call| {
        create(call, device, profile, None, instance)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        device: sys::nvmlDevice_t,
        profile: c_uint,
        placement: *const sys::nvmlGpuInstancePlacement_t,
        instance: *mut sys::nvmlGpuInstance_t,
    ) |call| {
        let sys::nvmlGpuInstancePlacement_t { start, size } = placement.get()?;
        create(call, device, profile, Some(Placement { start, size }), instance)
    }

    fn nvmlGpuInstanceDestroy(instance: sys::nvmlGpuInstance_t) |call| {
        let (position, _, found) = call.instance(instance)?;
        if call.trouble(position).instances_held {
            return Err(Code::IN_USE);
        }
        call.update(position, |state| Ok(state.destroy_gpu_instance(found.id)?))
    }

    fn nvmlDeviceGetGpuInstances(
        device: sys::nvmlDevice_t,
        profile: c_uint,
        instances: *mut sys::nvmlGpuInstance_t,
        count: *mut c_uint,
    ) |call| {
        let (position, table) = call.mig_gpu(device)?;
        by_id(table, profile)?;
        let all: Vec<_> = enabled(call, position)?
            .iter()
            .filter(|instance| instance.profile == profile)
            .map(|instance| handle_of(position, instance))
            .collect();
        // The caller gives room for as many as the profile allows; it isn't asked how many.
        instances.write_all(&all)?;
        count.set(c_uint::try_from(all.len()).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlDeviceGetGpuInstanceById(
        device: sys::nvmlDevice_t,
        id: c_uint,
        instance: *mut sys::nvmlGpuInstance_t,
    ) |call| {
        let (position, _) = call.mig_gpu(device)?;
        let all = enabled(call, position)?;
        let found = all.iter().find(|instance| instance.id == id).ok_or(Code::NOT_FOUND)?;
        instance.set(handle_of(position, found))
    }

    fn nvmlGpuInstanceGetInfo(
        instance: sys::nvmlGpuInstance_t,
        info: *mut sys::nvmlGpuInstanceInfo_t,
    ) |call| {
        let (position, _, found) = call.instance(instance)?;
        info.set(sys::nvmlGpuInstanceInfo_t {
            device: call.gpu_handle(position)?,
            id: found.id,
            profileId: found.profile,
            placement: sys::nvmlGpuInstancePlacement_t {
                start: found.placement.start,
                size: found.placement.size,
            },
        })
    }
}

fn enabled(call: &Call, position: usize) -> Answer<Vec<GpuInstance>> {
    let state = call.gpu_state(position)?;
    if state.mig { Ok(state.instances) } else { Err(Code::NOT_SUPPORTED) }
}

pub(super) fn handle_of(gpu: usize, instance: &GpuInstance) -> sys::nvmlGpuInstance_t {
    handle(Thing::GpuInstance { gpu, instance: instance.id, birth: instance.birth })
}

fn create(
    call: &Call,
    device: DeviceArg,
    profile: c_uint,
    placement: Option<Placement>,
    instance: Out<sys::nvmlGpuInstance_t>,
) -> Answer {
    let (position, table) = call.mig_gpu(device)?;
    if instance.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let made = call.update(position, |state| {
        let id = state.create_gpu_instance(table, profile, placement)?;
        Ok(state.instance(id)?.clone())
    })?;
    instance.set(handle_of(position, &made))
}
