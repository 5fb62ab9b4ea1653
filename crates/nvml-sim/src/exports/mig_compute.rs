//! Compute instances: profiles, create, list, describe, destroy.

use std::ffi::c_uint;

use gpu_dra_sim_data::mig_table::{CiProfile, GiProfile, MigTable, Placement};
use gpu_dra_sim_data::state::{ComputeInstance, GpuInstance};
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use super::mig_instances::handle_of;
use crate::abi::{ComputeInstanceArg, GpuInstanceArg, Out, chars};
use crate::code::{Answer, Code};
use crate::entry::Call;
use crate::handles::{Thing, handle};

/// `NVML_COMPUTE_INSTANCE_PROFILE_COUNT` of the newest header.
const PROFILE_INDEXES: c_uint = 9;

exports! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        instance: sys::nvmlGpuInstance_t,
        profile: c_uint,
        engines: c_uint,
        info: *mut sys::nvmlComputeInstanceProfileInfo_t,
    ) |call| {
        let (profile, whole) = by_index(call, instance, profile, engines)?;
        info.set(sys::nvmlComputeInstanceProfileInfo_t {
            id: profile.id,
            sliceCount: profile.slices,
            instanceCount: profile.max,
            multiprocessorCount: profile.multiprocessors,
            sharedCopyEngineCount: whole.copy_engines,
            sharedDecoderCount: whole.decoders,
            sharedEncoderCount: whole.encoders,
            sharedJpegCount: whole.jpeg_engines,
            sharedOfaCount: whole.ofa_engines,
        })
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        instance: sys::nvmlGpuInstance_t,
        profile: c_uint,
        engines: c_uint,
        info: *mut sys::nvmlComputeInstanceProfileInfo_v2_t,
    ) |call| {
        let version = info.version_word()?;
        let (profile, whole) = by_index(call, instance, profile, engines)?;
        let part = if profile.slices < whole.slices {
            format!("{}c.", profile.slices)
        } else {
            String::new()
        };
        let v2 = sys::nvmlComputeInstanceProfileInfo_v2_t {
            version,
            id: profile.id,
            sliceCount: profile.slices,
            instanceCount: profile.max,
            multiprocessorCount: profile.multiprocessors,
            sharedCopyEngineCount: whole.copy_engines,
            sharedDecoderCount: whole.decoders,
            sharedEncoderCount: whole.encoders,
            sharedJpegCount: whole.jpeg_engines,
            sharedOfaCount: whole.ofa_engines,
            name: chars(&format!("MIG {part}{}", whole.name)),
        };
        match version {
            0x0200_0088 => info.set(v2),
            0x0300_008c => info.version().set(sys::nvmlComputeInstanceProfileInfo_v3_t {
                version,
                id: v2.id,
                sliceCount: v2.sliceCount,
                instanceCount: v2.instanceCount,
                multiprocessorCount: v2.multiprocessorCount,
                sharedCopyEngineCount: v2.sharedCopyEngineCount,
                sharedDecoderCount: v2.sharedDecoderCount,
                sharedEncoderCount: v2.sharedEncoderCount,
                sharedJpegCount: v2.sharedJpegCount,
                sharedOfaCount: v2.sharedOfaCount,
                name: v2.name,
                // NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX
                capabilities: whole.has_graphics().into(),
            }),
            _ => Err(Code::ARGUMENT_VERSION_MISMATCH),
        }
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        count: *mut c_uint,
    ) |call| {
        let (_, table, found) = call.instance(instance)?;
        count.set(found.remaining(&by_id(table, &found, id)?))
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        placements: *mut sys::nvmlComputeInstancePlacement_t,
        count: *mut c_uint,
    ) |call| {
        let (_, table, found) = call.instance(instance)?;
        let profile = by_id(table, &found, id)?;
        let size = profile.slices;
        let all: Vec<_> = profile
            .starts()
            .into_iter()
            .map(|start| sys::nvmlComputeInstancePlacement_t { start, size })
            .collect();
        if placements.is_null() {
            return count.set(c_uint::try_from(all.len()).map_err(|_| Code::UNKNOWN)?);
        }
        placements.list(&all, count)
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        instance: sys::nvmlGpuInstance_t,
        profile: c_uint,
        compute: *mut sys::nvmlComputeInstance_t,
    ) |call| {
        create(call, instance, profile, None, compute)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        instance: sys::nvmlGpuInstance_t,
        profile: c_uint,
        placement: *const sys::nvmlComputeInstancePlacement_t,
        compute: *mut sys::nvmlComputeInstance_t,
    ) |call| {
        let sys::nvmlComputeInstancePlacement_t { start, size } = placement.get()?;
        create(call, instance, profile, Some(Placement { start, size }), compute)
    }

    fn nvmlComputeInstanceDestroy(compute: sys::nvmlComputeInstance_t) |call| {
        let (position, instance, found) = call.compute(compute)?;
        let trouble = call.trouble(position);
        let busy = trouble.processes.iter().any(|process| {
            process.gpu_instance == Some(instance.id) && process.compute_instance == Some(found.id)
        });
        if busy || trouble.instances_held {
            return Err(Code::IN_USE);
        }
        call.update(position, |state| Ok(state.destroy_compute_instance(instance.id, found.id)?))
    }

    fn nvmlGpuInstanceGetComputeInstances(
        instance: sys::nvmlGpuInstance_t,
        profile: c_uint,
        computes: *mut sys::nvmlComputeInstance_t,
        count: *mut c_uint,
    ) |call| {
        let (position, table, found) = call.instance(instance)?;
        by_id(table, &found, profile)?;
        let all: Vec<_> = found
            .compute
            .iter()
            .filter(|compute| compute.profile == profile)
            .map(|compute| compute_handle(position, &found, compute))
            .collect();
        computes.write_all(&all)?;
        count.set(c_uint::try_from(all.len()).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlGpuInstanceGetComputeInstanceById(
        instance: sys::nvmlGpuInstance_t,
        id: c_uint,
        compute: *mut sys::nvmlComputeInstance_t,
    ) |call| {
        let (position, _, found) = call.instance(instance)?;
        let one = found.compute.iter().find(|one| one.id == id).ok_or(Code::NOT_FOUND)?;
        compute.set(compute_handle(position, &found, one))
    }

    fn nvmlComputeInstanceGetInfo_v2(
        compute: sys::nvmlComputeInstance_t,
        info: *mut sys::nvmlComputeInstanceInfo_t,
    ) |call| {
        info.set(describe(call, compute)?)
    }

    /// The first version had no placement.
    fn nvmlComputeInstanceGetInfo(
        compute: sys::nvmlComputeInstance_t,
        info: *mut sys::nvmlComputeInstanceInfo_t,
    ) |call| {
        let all = describe(call, compute)?;
        info.version().set(all.device)?;
        info.version().nth(1).set(all.gpuInstance)?;
        info.version::<c_uint>().nth(4).write_all(&[all.id, all.profileId])
    }
}

fn compute_handle(
    gpu: usize,
    instance: &GpuInstance,
    compute: &ComputeInstance,
) -> sys::nvmlComputeInstance_t {
    handle(Thing::ComputeInstance {
        gpu,
        instance: instance.id,
        compute: compute.id,
        birth: compute.birth,
    })
}

fn by_id(table: &MigTable, instance: &GpuInstance, id: c_uint) -> Answer<CiProfile> {
    let all = instance.profile(table)?.ci_profiles(table);
    all.into_iter().find(|profile| profile.id == id).ok_or(Code::NOT_SUPPORTED)
}

/// The ids of compute-instance profiles are the indexes that they are asked by.
fn by_index(
    call: &Call,
    instance: GpuInstanceArg,
    index: c_uint,
    engines: c_uint,
) -> Answer<(CiProfile, GiProfile)> {
    let (_, table, found) = call.instance(instance)?;
    if index >= PROFILE_INDEXES || engines != 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok((by_id(table, &found, index)?, found.profile(table)?.clone()))
}

fn create(
    call: &Call,
    instance: GpuInstanceArg,
    profile: c_uint,
    placement: Option<Placement>,
    compute: Out<sys::nvmlComputeInstance_t>,
) -> Answer {
    let (position, table, found) = call.instance(instance)?;
    if compute.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let made = call.update(position, |state| {
        let id = state.create_compute_instance(table, found.id, profile, placement)?;
        let all = &state.instance(found.id)?.compute;
        all.iter().find(|one| one.id == id).copied().ok_or(Code::UNKNOWN)
    })?;
    compute.set(compute_handle(position, &found, &made))
}

fn describe(call: &Call, compute: ComputeInstanceArg) -> Answer<sys::nvmlComputeInstanceInfo_t> {
    let (position, instance, found) = call.compute(compute)?;
    Ok(sys::nvmlComputeInstanceInfo_t {
        device: call.gpu_handle(position)?,
        gpuInstance: handle_of(position, &instance),
        id: found.id,
        profileId: found.profile,
        placement: sys::nvmlComputeInstancePlacement_t {
            start: found.placement.start,
            size: found.placement.size,
        },
    })
}
