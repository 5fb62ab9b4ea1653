//! Processes on a GPU, from the control file.

use std::ffi::{c_uint, c_ulonglong};
use std::time::{SystemTime, UNIX_EPOCH};

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

    /// One sample, of now, of each process that did anything. Not told while MIG is on.
    fn nvmlDeviceGetProcessUtilization(
        device: sys::nvmlDevice_t,
        samples: *mut sys::nvmlProcessUtilizationSample_t,
        count: *mut c_uint,
        since: c_ulonglong,
    ) |call| {
        let (position, _) = call.gpu(device)?;
        if call.gpu_state(position)?.mig {
            return Err(Code::NOT_SUPPORTED);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Code::UNKNOWN)?;
        let now = u64::try_from(now.as_micros()).map_err(|_| Code::UNKNOWN)?;
        let trouble = call.trouble(position);
        let busy = trouble.processes.iter().filter(|process| {
            now > since && process.sm_percent + process.memory_percent > 0
        });
        let all: Vec<_> = busy
            .map(|process| sys::nvmlProcessUtilizationSample_t {
                pid: process.pid,
                timeStamp: now,
                smUtil: process.sm_percent,
                memUtil: process.memory_percent,
                encUtil: 0,
                decUtil: 0,
            })
            .collect();
        if all.is_empty() {
            return Err(Code::NOT_FOUND);
        }
        // Asked for the number, it tells that there is no room.
        let room = if samples.is_null() { 0 } else { count.get()? };
        count.set(room)?;
        samples.list(&all, count)
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
