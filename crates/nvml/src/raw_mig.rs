//! The NVML calls on GPU instances, compute instances and MIG devices, which the wrapper
//! doesn't have. All `unsafe` of MIG is here, by the rules of `raw`; nothing here
//! decides what is created or destroyed.

use std::ptr;

use gpu_dra_model::inventory::Placement;
use gpu_dra_model::{ComputeInstanceId, GpuInstanceId};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::code::CallError;
use crate::limits::{self, at_most};
use crate::raw::get;

/// `NVML_COMPUTE_INSTANCE_PROFILE_COUNT` of the newest header; older ones stop earlier.
pub(crate) const COMPUTE_PROFILE_COUNT: u32 = 9;
/// `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`: the only one that there is.
const ENGINES_SHARED: u32 = 0;

/// A GPU instance of an initialised library. NVML gives no promise on it once the instance
/// is destroyed or the GPU's MIG mode changes, so none is kept between two acts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuInstanceHandle<'n> {
    handle: sys::nvmlGpuInstance_t,
    nvml: &'n Nvml,
}

/// A compute instance of an initialised library, likewise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComputeInstanceHandle<'n> {
    handle: sys::nvmlComputeInstance_t,
    nvml: &'n Nvml,
}

/// What identifies a GPU instance (`nvmlGpuInstanceInfo_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GpuInstanceInfo {
    pub(crate) id: GpuInstanceId,
    pub(crate) profile_id: u32,
    pub(crate) placement: Placement,
}

/// A kind of compute instance that a GPU instance offers (`nvmlComputeInstanceProfileInfo_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComputeProfile {
    pub(crate) id: u32,
    pub(crate) slices: u32,
    pub(crate) multiprocessors: u32,
}

/// The function behind a symbol of the bindings, or NVML's own answer for a missing one.
fn function<F: Copy>(
    call: &'static str,
    symbol: &Result<F, libloading::Error>,
) -> Result<F, CallError> {
    symbol.as_ref().copied().map_err(|_| CallError::missing(call))
}

/// `nvmlDeviceGetGpuInstances`: the instances of one profile.
pub(crate) fn gpu_instances<'n>(
    nvml: &'n Nvml,
    device: &Device<'_>,
    profile_id: u32,
) -> Result<Vec<GpuInstanceHandle<'n>>, CallError> {
    const CALL: &str = "nvmlDeviceGetGpuInstances";
    let function = function(CALL, &nvml.lib().nvmlDeviceGetGpuInstances)?;
    let mut count = limits::OF_ONE_GPU;
    let mut found = [ptr::null_mut(); limits::OF_ONE_GPU as usize];
    // SAFETY: prototype from the bindings, handle from the same library. The function isn't told
    // how much room there is; it writes as many handles as there are instances of the profile,
    // and no GPU can have more than there is room for. What the library says elsewhere of how
    // many these are (`instanceCount`) isn't relied upon.
    let code = unsafe { function(device.handle(), profile_id, found.as_mut_ptr(), &raw mut count) };
    CallError::check(CALL, code)?;
    let count = at_most(limits::OF_ONE_GPU, CALL, count)? as usize;
    Ok(found.into_iter().take(count).map(|handle| GpuInstanceHandle { handle, nvml }).collect())
}

/// `nvmlDeviceGetGpuInstanceById`.
pub(crate) fn gpu_instance_by_id<'n>(
    nvml: &'n Nvml,
    device: &Device<'_>,
    id: GpuInstanceId,
) -> Result<GpuInstanceHandle<'n>, CallError> {
    const CALL: &str = "nvmlDeviceGetGpuInstanceById";
    let function = function(CALL, &nvml.lib().nvmlDeviceGetGpuInstanceById)?;
    let mut handle = ptr::null_mut();
    // SAFETY: prototype from the bindings, handle from the same library, `handle` is live.
    let code = unsafe { function(device.handle(), id.0, &raw mut handle) };
    CallError::check(CALL, code)?;
    Ok(GpuInstanceHandle { handle, nvml })
}

/// `nvmlDeviceCreateGpuInstanceWithPlacement`. Needs root.
pub(crate) fn create_gpu_instance<'n>(
    nvml: &'n Nvml,
    device: &Device<'_>,
    profile_id: u32,
    placement: Placement,
) -> Result<GpuInstanceHandle<'n>, CallError> {
    const CALL: &str = "nvmlDeviceCreateGpuInstanceWithPlacement";
    let function = function(CALL, &nvml.lib().nvmlDeviceCreateGpuInstanceWithPlacement)?;
    let placement =
        sys::nvmlGpuInstancePlacement_t { start: placement.start, size: placement.size };
    let mut handle = ptr::null_mut();
    // SAFETY: prototype from the bindings, handle from the same library; `placement` is only
    // read, `handle` is live.
    let code =
        unsafe { function(device.handle(), profile_id, &raw const placement, &raw mut handle) };
    CallError::check(CALL, code)?;
    Ok(GpuInstanceHandle { handle, nvml })
}

impl<'n> GpuInstanceHandle<'n> {
    /// `nvmlGpuInstanceGetInfo`.
    pub(crate) fn info(self) -> Result<GpuInstanceInfo, CallError> {
        const CALL: &str = "nvmlGpuInstanceGetInfo";
        let function = function(CALL, &self.nvml.lib().nvmlGpuInstanceGetInfo)?;
        let mut info = sys::nvmlGpuInstanceInfo_t {
            device: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: prototype from the bindings, the library gave the handle, `info` is live.
        let code = unsafe { function(self.handle, &raw mut info) };
        CallError::check(CALL, code)?;
        Ok(GpuInstanceInfo {
            id: GpuInstanceId(info.id),
            profile_id: info.profileId,
            placement: Placement { start: info.placement.start, size: info.placement.size },
        })
    }

    /// `nvmlGpuInstanceDestroy`. Needs root.
    pub(crate) fn destroy(self) -> Result<(), CallError> {
        const CALL: &str = "nvmlGpuInstanceDestroy";
        let function = function(CALL, &self.nvml.lib().nvmlGpuInstanceDestroy)?;
        // SAFETY: prototype from the bindings, the library gave the handle.
        CallError::check(CALL, unsafe { function(self.handle) })
    }

    /// `nvmlGpuInstanceGetComputeInstanceProfileInfo` of NVML's enum `index`.
    pub(crate) fn compute_profile(self, index: u32) -> Result<ComputeProfile, CallError> {
        const CALL: &str = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
        let symbol = &self.nvml.lib().nvmlGpuInstanceGetComputeInstanceProfileInfo;
        let function = function(CALL, symbol)?;
        let mut info = sys::nvmlComputeInstanceProfileInfo_t {
            id: 0,
            sliceCount: 0,
            instanceCount: 0,
            multiprocessorCount: 0,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
        };
        // SAFETY: prototype from the bindings, the library gave the handle, `info` is live.
        let code = unsafe { function(self.handle, index, ENGINES_SHARED, &raw mut info) };
        CallError::check(CALL, code)?;
        Ok(ComputeProfile {
            id: info.id,
            slices: info.sliceCount,
            multiprocessors: info.multiprocessorCount,
        })
    }

    /// `nvmlGpuInstanceCreateComputeInstance`. Needs root.
    pub(crate) fn create_compute_instance(
        self,
        profile_id: u32,
    ) -> Result<ComputeInstanceHandle<'n>, CallError> {
        const CALL: &str = "nvmlGpuInstanceCreateComputeInstance";
        let function = function(CALL, &self.nvml.lib().nvmlGpuInstanceCreateComputeInstance)?;
        let mut handle = ptr::null_mut();
        // SAFETY: prototype from the bindings, the library gave the handle, `handle` is live.
        let code = unsafe { function(self.handle, profile_id, &raw mut handle) };
        CallError::check(CALL, code)?;
        Ok(ComputeInstanceHandle { handle, nvml: self.nvml })
    }

    /// `nvmlGpuInstanceGetComputeInstanceById`.
    pub(crate) fn compute_instance_by_id(
        self,
        id: ComputeInstanceId,
    ) -> Result<ComputeInstanceHandle<'n>, CallError> {
        const CALL: &str = "nvmlGpuInstanceGetComputeInstanceById";
        let function = function(CALL, &self.nvml.lib().nvmlGpuInstanceGetComputeInstanceById)?;
        let mut handle = ptr::null_mut();
        // SAFETY: prototype from the bindings, the library gave the handle, `handle` is live.
        let code = unsafe { function(self.handle, id.0, &raw mut handle) };
        CallError::check(CALL, code)?;
        Ok(ComputeInstanceHandle { handle, nvml: self.nvml })
    }
}

impl ComputeInstanceHandle<'_> {
    /// The id by `nvmlComputeInstanceGetInfo_v2`.
    pub(crate) fn id(self) -> Result<ComputeInstanceId, CallError> {
        const CALL: &str = "nvmlComputeInstanceGetInfo_v2";
        let function = function(CALL, &self.nvml.lib().nvmlComputeInstanceGetInfo_v2)?;
        let mut info = sys::nvmlComputeInstanceInfo_t {
            device: ptr::null_mut(),
            gpuInstance: ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: sys::nvmlComputeInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: prototype from the bindings, the library gave the handle, `info` is live.
        let code = unsafe { function(self.handle, &raw mut info) };
        CallError::check(CALL, code)?;
        Ok(ComputeInstanceId(info.id))
    }

    /// `nvmlComputeInstanceDestroy`. Needs root.
    pub(crate) fn destroy(self) -> Result<(), CallError> {
        const CALL: &str = "nvmlComputeInstanceDestroy";
        let function = function(CALL, &self.nvml.lib().nvmlComputeInstanceDestroy)?;
        // SAFETY: prototype from the bindings, the library gave the handle.
        CallError::check(CALL, unsafe { function(self.handle) })
    }
}

/// `nvmlDeviceGetGpuInstanceId` of a MIG device.
pub(crate) fn gpu_instance_id(nvml: &Nvml, mig: &Device<'_>) -> Result<GpuInstanceId, CallError> {
    let symbol = &nvml.lib().nvmlDeviceGetGpuInstanceId;
    get("nvmlDeviceGetGpuInstanceId", symbol, mig, 0).map(GpuInstanceId)
}

/// `nvmlDeviceGetComputeInstanceId` of a MIG device.
pub(crate) fn compute_instance_id(
    nvml: &Nvml,
    mig: &Device<'_>,
) -> Result<ComputeInstanceId, CallError> {
    let symbol = &nvml.lib().nvmlDeviceGetComputeInstanceId;
    get("nvmlDeviceGetComputeInstanceId", symbol, mig, 0).map(ComputeInstanceId)
}
