//! MIG devices: compute instances as devices of their own.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{DeviceArg, Out, zeroed};
use crate::code::{Answer, Code};
use crate::entry::{Call, Device, MigDevice};
use crate::handles::{Thing, handle};

exports! {
    fn nvmlDeviceIsMigDeviceHandle(device: sys::nvmlDevice_t, is_mig: *mut c_uint) |call| {
        is_mig.set(matches!(call.device(device)?, Device::Mig(_)).into())
    }

    /// The greatest number there can be; none while MIG is off.
    fn nvmlDeviceGetMaxMigDeviceCount(device: sys::nvmlDevice_t, count: *mut c_uint) |call| {
        let (position, gpu) = call.gpu(device)?;
        let on = call.gpu_state(position)?.mig;
        count.set(gpu.model.mig.as_ref().filter(|_| on).map_or(0, |table| table.max_devices))
    }

    /// Indexes have holes once devices are destroyed.
    fn nvmlDeviceGetMigDeviceHandleByIndex(
        device: sys::nvmlDevice_t,
        index: c_uint,
        mig: *mut sys::nvmlDevice_t,
    ) |call| {
        let (position, table) = call.mig_gpu(device)?;
        let state = call.gpu_state(position)?;
        if !state.mig {
            return Err(Code::NOT_FOUND);
        }
        if index >= table.max_devices {
            return Err(Code::INVALID_ARGUMENT);
        }
        let found = state.mig_devices().find(|(_, compute)| compute.index == index);
        let (instance, compute) = found.ok_or(Code::NOT_FOUND)?;
        mig.set(handle(Thing::MigDevice {
            gpu: position,
            instance: instance.id,
            compute: compute.id,
            birth: compute.birth,
        }))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        mig: sys::nvmlDevice_t,
        device: *mut sys::nvmlDevice_t,
    ) |call| {
        device.set(call.gpu_handle(mig_device(call, mig)?.position)?)
    }

    fn nvmlDeviceGetGpuInstanceId(mig: sys::nvmlDevice_t, id: *mut c_uint) |call| {
        id.set(mig_device(call, mig)?.instance.id)
    }

    fn nvmlDeviceGetComputeInstanceId(mig: sys::nvmlDevice_t, id: *mut c_uint) |call| {
        id.set(mig_device(call, mig)?.compute.id)
    }

    fn nvmlDeviceGetAttributes_v2(
        mig: sys::nvmlDevice_t,
        attributes: *mut sys::nvmlDeviceAttributes_t,
    ) |call| {
        self::attributes(call, mig, attributes)
    }

    fn nvmlDeviceGetAttributes(
        mig: sys::nvmlDevice_t,
        attributes: *mut sys::nvmlDeviceAttributes_t,
    ) |call| {
        self::attributes(call, mig, attributes)
    }
}

/// Functions that whole GPUs don't have go through here.
fn mig_device(call: &Call, argument: DeviceArg) -> Answer<MigDevice<'_>> {
    match call.device(argument)? {
        Device::Mig(mig) => Ok(mig),
        Device::Gpu(..) => Err(Code::NOT_SUPPORTED),
    }
}

fn attributes(call: &Call, mig: DeviceArg, out: Out<sys::nvmlDeviceAttributes_t>) -> Answer {
    let mig = mig_device(call, mig)?;
    let profile = mig.instance.profile(mig.table)?;
    let ci = profile.ci_profiles(mig.table).into_iter().find(|ci| ci.id == mig.compute.profile);
    let ci = ci.ok_or(Code::UNKNOWN)?;
    let mut all: sys::nvmlDeviceAttributes_t = zeroed();
    all.multiprocessorCount = ci.multiprocessors;
    all.sharedCopyEngineCount = profile.copy_engines;
    all.sharedDecoderCount = profile.decoders;
    all.sharedEncoderCount = profile.encoders;
    all.sharedJpegCount = profile.jpeg_engines;
    all.sharedOfaCount = profile.ofa_engines;
    all.gpuInstanceSliceCount = profile.slices;
    all.computeInstanceSliceCount = ci.slices;
    all.memorySizeMB = profile.memory_mib;
    out.set(all)
}
