//! Processes on a GPU, from the control file.

use std::ffi::c_uint;

use gpu_dra_sim_data::control::Process;
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{DeviceArg, Out};
use crate::code::{Answer, Code};
use crate::entry::{Call, Device};

/// No instance: the process has the whole GPU.
const NONE: c_uint = 0xffff_ffff;

exports! {
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_t,
    ) |call| {
        list(&processes(call, device, |process| !process.mps)?, count, infos)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_v2_t,
    ) |call| {
        list(&processes(call, device, |process| !process.mps)?, count, infos)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_t,
    ) |call| {
        list(&processes(call, device, |process| process.mps)?, count, infos)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_v2_t,
    ) |call| {
        list(&processes(call, device, |process| process.mps)?, count, infos)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_t,
    ) |call| {
        list(&processes(call, device, |_| false)?, count, infos)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_v2_t,
    ) |call| {
        list(&processes(call, device, |_| false)?, count, infos)
    }

    fn nvmlDeviceGetComputeRunningProcesses(
        device: sys::nvmlDevice_t,
        count: *mut c_uint,
        infos: *mut sys::nvmlProcessInfo_v1_t,
    ) |call| {
        let all: Vec<_> = processes(call, device, |process| !process.mps)?
            .into_iter()
            .map(|info| sys::nvmlProcessInfo_v1_t { pid: info.pid, usedGpuMemory: info.usedGpuMemory })
            .collect();
        if count.get()? == 0 && all.is_empty() {
            return Ok(());
        }
        infos.list(&all, count)
    }
}

fn list(
    all: &[sys::nvmlProcessInfo_v2_t],
    count: Out<c_uint>,
    infos: Out<sys::nvmlProcessInfo_v2_t>,
) -> Answer {
    if count.get()? == 0 && all.is_empty() {
        return Ok(());
    }
    infos.list(all, count)
}

/// Those of a GPU, or those of a MIG device.
fn processes(
    call: &Call,
    device: DeviceArg,
    wanted: impl Fn(&Process) -> bool,
) -> Answer<Vec<sys::nvmlProcessInfo_v2_t>> {
    let (position, of) = match call.device(device)? {
        Device::Gpu(position, _) => (position, None),
        Device::Mig(mig) => (mig.position, Some((mig.instance.id, mig.compute.id))),
    };
    let here = |process: &Process| match of {
        Some((instance, compute)) => {
            process.gpu_instance == Some(instance) && process.compute_instance == Some(compute)
        }
        None => true,
    };
    call.trouble(position)
        .processes
        .iter()
        .filter(|process| here(process) && wanted(process))
        .map(|process| {
            Ok(sys::nvmlProcessInfo_v2_t {
                pid: process.pid,
                usedGpuMemory: process.memory_mib.checked_mul(1 << 20).ok_or(Code::UNKNOWN)?,
                gpuInstanceId: process.gpu_instance.unwrap_or(NONE),
                computeInstanceId: process.compute_instance.unwrap_or(NONE),
            })
        })
        .collect()
}
