//! Modes that can be set: compute, persistence, ECC.

use std::ffi::c_uint;

use gpu_dra_sim_data::state::Activation;
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::code::Code;

/// `nvmlComputeMode_t` ends before this.
const COMPUTE_MODES: c_uint = 4;

exports! {
    fn nvmlDeviceGetComputeMode(
        device: sys::nvmlDevice_t,
        mode: *mut sys::nvmlComputeMode_t,
    ) |call| {
        mode.set(call.gpu_state(call.gpu(device)?.0)?.compute_mode)
    }

    fn nvmlDeviceSetComputeMode(device: sys::nvmlDevice_t, mode: sys::nvmlComputeMode_t) |call| {
        let (position, _) = call.gpu(device)?;
        if mode >= COMPUTE_MODES {
            return Err(Code::INVALID_ARGUMENT);
        }
        call.update(position, |state| {
            state.compute_mode = mode;
            Ok(())
        })
    }

    fn nvmlDeviceGetPersistenceMode(
        device: sys::nvmlDevice_t,
        mode: *mut sys::nvmlEnableState_t,
    ) |call| {
        mode.set(call.gpu_state(call.gpu(device)?.0)?.persistence.into())
    }

    fn nvmlDeviceSetPersistenceMode(
        device: sys::nvmlDevice_t,
        mode: sys::nvmlEnableState_t,
    ) |call| {
        let (position, _) = call.gpu(device)?;
        let on = flag(mode)?;
        call.update(position, |state| {
            state.persistence = on;
            Ok(())
        })
    }

    fn nvmlDeviceGetMigMode(
        device: sys::nvmlDevice_t,
        current: *mut c_uint,
        pending: *mut c_uint,
    ) |call| {
        let (position, _) = call.mig_gpu(device)?;
        let state = call.gpu_state(position)?;
        current.set(state.mig.into())?;
        pending.set(state.mig_pending.into())
    }

    fn nvmlDeviceSetMigMode(
        device: sys::nvmlDevice_t,
        mode: c_uint,
        status: *mut sys::nvmlReturn_t,
    ) |call| {
        let (position, table) = call.mig_gpu(device)?;
        let on = flag(mode)?;
        if status.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let trouble = call.trouble(position);
        let held = trouble.mig_mode_held || !trouble.processes.is_empty();
        let activation = call.update(position, |state| {
            if state.mig == on || !(held || trouble.reset_refused) {
                return Ok(state.set_mig(table, on));
            }
            state.mig_pending = on;
            Ok(if held { Activation::InUse } else { Activation::ResetRequired })
        })?;
        status.set(match activation {
            Activation::Done => 0,
            Activation::ResetRequired => Code::RESET_REQUIRED.0,
            Activation::InUse => Code::IN_USE.0,
        })
    }

    fn nvmlDeviceGetEccMode(
        device: sys::nvmlDevice_t,
        current: *mut sys::nvmlEnableState_t,
        pending: *mut sys::nvmlEnableState_t,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        if !gpu.model.ecc {
            return Err(Code::NOT_SUPPORTED);
        }
        current.set(1)?;
        pending.set(1)
    }

    fn nvmlDeviceGetDefaultEccMode(
        device: sys::nvmlDevice_t,
        mode: *mut sys::nvmlEnableState_t,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        if gpu.model.ecc { mode.set(1) } else { Err(Code::NOT_SUPPORTED) }
    }

    fn nvmlDeviceGetDisplayActive(
        device: sys::nvmlDevice_t,
        active: *mut sys::nvmlEnableState_t,
    ) |call| {
        call.gpu(device)?;
        active.set(0)
    }
}

fn flag(mode: c_uint) -> Result<bool, Code> {
    match mode {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}
