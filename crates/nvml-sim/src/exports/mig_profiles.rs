//! What a GPU can be cut into: profiles, placements, room that is left.

use std::ffi::c_uint;

use gpu_dra_sim_data::mig_rules;
use gpu_dra_sim_data::mig_table::{GiProfile, MigTable};
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{DeviceArg, Out, chars};
use crate::code::{Answer, Code};
use crate::entry::Call;

/// `NVML_GPU_INSTANCE_PROFILE_COUNT` of the newest header.
const PROFILE_INDEXES: c_uint = 18;

exports! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        device: sys::nvmlDevice_t,
        profile: c_uint,
        info: *mut sys::nvmlGpuInstanceProfileInfo_t,
    ) |call| {
        let (_, table) = call.mig_gpu(device)?;
        let (id, profile) = by_index(table, profile)?;
        info.set(sys::nvmlGpuInstanceProfileInfo_t {
            id,
            isP2pSupported: 0,
            sliceCount: profile.slices,
            instanceCount: profile.max,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: profile.copy_engines,
            decoderCount: profile.decoders,
            encoderCount: profile.encoders,
            jpegCount: profile.jpeg_engines,
            ofaCount: profile.ofa_engines,
            memorySizeMB: profile.memory_mib,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        device: sys::nvmlDevice_t,
        profile: c_uint,
        info: *mut sys::nvmlGpuInstanceProfileInfo_v2_t,
    ) |call| {
        let (_, table) = call.mig_gpu(device)?;
        let (id, profile) = by_index(table, profile)?;
        versioned(id, profile, info)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        device: sys::nvmlDevice_t,
        id: c_uint,
        info: *mut sys::nvmlGpuInstanceProfileInfo_v2_t,
    ) |call| {
        let (_, table) = call.mig_gpu(device)?;
        versioned(id, by_id(table, id)?, info)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        device: sys::nvmlDevice_t,
        id: c_uint,
        placements: *mut sys::nvmlGpuInstancePlacement_t,
        count: *mut c_uint,
    ) |call| {
        possible(call, device, id, placements, count)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        device: sys::nvmlDevice_t,
        id: c_uint,
        placements: *mut sys::nvmlGpuInstancePlacement_t,
        count: *mut c_uint,
    ) |call| {
        possible(call, device, id, placements, count)
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        device: sys::nvmlDevice_t,
        id: c_uint,
        count: *mut c_uint,
    ) |call| {
        let (position, table) = call.mig_gpu(device)?;
        by_id(table, id)?;
        let state = call.gpu_state(position)?;
        if !state.mig {
            return Err(Code::NOT_SUPPORTED);
        }
        count.set(mig_rules::remaining(table, &state.occupied(), id))
    }
}

fn by_index(table: &MigTable, index: c_uint) -> Answer<(c_uint, &GiProfile)> {
    if index >= PROFILE_INDEXES {
        return Err(Code::INVALID_ARGUMENT);
    }
    table.by_index(index).ok_or(Code::NOT_SUPPORTED)
}

pub(super) fn by_id(table: &MigTable, id: c_uint) -> Answer<&GiProfile> {
    table.profiles.get(&id).ok_or(Code::NOT_SUPPORTED)
}

/// A null pointer asks for the number alone.
fn possible(
    call: &Call,
    device: DeviceArg,
    id: c_uint,
    placements: Out<sys::nvmlGpuInstancePlacement_t>,
    count: Out<c_uint>,
) -> Answer {
    let (_, table) = call.mig_gpu(device)?;
    let all: Vec<_> = by_id(table, id)?
        .placements()
        .map(|place| sys::nvmlGpuInstancePlacement_t { start: place.start, size: place.size })
        .collect();
    if placements.is_null() {
        return count.set(c_uint::try_from(all.len()).map_err(|_| Code::UNKNOWN)?);
    }
    placements.list(&all, count)
}

/// Both versions are of one size; the version word tells which the caller means.
fn versioned(
    id: c_uint,
    profile: &GiProfile,
    info: Out<sys::nvmlGpuInstanceProfileInfo_v2_t>,
) -> Answer {
    let version = info.version_word()?;
    let name = chars(&format!("MIG {}", profile.name));
    let v2 = sys::nvmlGpuInstanceProfileInfo_v2_t {
        version,
        id,
        isP2pSupported: 0,
        sliceCount: profile.slices,
        instanceCount: profile.max,
        multiprocessorCount: profile.multiprocessors,
        copyEngineCount: profile.copy_engines,
        decoderCount: profile.decoders,
        encoderCount: profile.encoders,
        jpegCount: profile.jpeg_engines,
        ofaCount: profile.ofa_engines,
        memorySizeMB: profile.memory_mib,
        name,
    };
    match version {
        0x0200_0098 => info.set(v2),
        0x0300_0098 => info.version().set(sys::nvmlGpuInstanceProfileInfo_v3_t {
            version,
            id: v2.id,
            sliceCount: v2.sliceCount,
            instanceCount: v2.instanceCount,
            multiprocessorCount: v2.multiprocessorCount,
            copyEngineCount: v2.copyEngineCount,
            decoderCount: v2.decoderCount,
            encoderCount: v2.encoderCount,
            jpegCount: v2.jpegCount,
            ofaCount: v2.ofaCount,
            memorySizeMB: v2.memorySizeMB,
            name: v2.name,
            // NVML_GPU_INSTANCE_PROFILE_CAPS_GFX
            capabilities: u32::from(profile.has_graphics()) << 1,
        }),
        _ => Err(Code::ARGUMENT_VERSION_MISMATCH),
    }
}
