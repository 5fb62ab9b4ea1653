//! Memory, its bus, and how it's addressed.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::DeviceArg;
use crate::code::{Answer, Code};
use crate::entry::{Call, Device};

const MIB: u64 = 1 << 20;

exports! {
    fn nvmlDeviceGetMemoryInfo(device: sys::nvmlDevice_t, memory: *mut sys::nvmlMemory_t) |call| {
        let now = now(call, device)?;
        // The first version counts what the driver keeps as used.
        let used = now.used + now.reserved;
        memory.set(sys::nvmlMemory_t { total: now.total, free: now.total - used, used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(
        device: sys::nvmlDevice_t,
        memory: *mut sys::nvmlMemory_v2_t,
    ) |call| {
        let version = memory.version_word()?;
        if version != 0x0200_0028 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let Now { total, reserved, used } = now(call, device)?;
        memory.set(sys::nvmlMemory_v2_t { version, total, reserved, free: total - reserved - used, used })
    }

    fn nvmlDeviceGetBAR1MemoryInfo(
        device: sys::nvmlDevice_t,
        memory: *mut sys::nvmlBAR1Memory_t,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        let total = gpu.model.bar1_mib.ok_or(Code::NOT_SUPPORTED)? * MIB;
        memory.set(sys::nvmlBAR1Memory_t { bar1Total: total, bar1Free: total, bar1Used: 0 })
    }

    fn nvmlDeviceGetMemoryBusWidth(device: sys::nvmlDevice_t, bits: *mut c_uint) |call| {
        let (_, gpu) = call.physical(device)?;
        bits.set(gpu.model.memory_bus_width_bits.ok_or(Code::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetAddressingMode(
        device: sys::nvmlDevice_t,
        mode: *mut sys::nvmlDeviceAddressingMode_t,
    ) |call| {
        let version = mode.version_word()?;
        if version != 0x0100_0008 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let (_, gpu) = call.physical(device)?;
        let value = gpu.model.addressing.ok_or(Code::NOT_SUPPORTED)?.nvml();
        mode.set(sys::nvmlDeviceAddressingMode_v1_t { version, value })
    }

    fn nvmlDeviceGetNumaNodeId(device: sys::nvmlDevice_t, node: *mut c_uint) |call| {
        let (_, gpu) = call.physical(device)?;
        node.set(gpu.place.memory_numa_node.ok_or(Code::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetC2cModeInfoV(
        device: sys::nvmlDevice_t,
        info: *mut sys::nvmlC2cModeInfo_v1_t,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        let enabled = gpu.model.c2c.ok_or(Code::NOT_SUPPORTED)?;
        info.set(sys::nvmlC2cModeInfo_v1_t { isC2cEnabled: enabled.into() })
    }
}

/// Bytes as of now.
struct Now {
    total: u64,
    reserved: u64,
    used: u64,
}

fn now(call: &Call, device: DeviceArg) -> Answer<Now> {
    match call.device(device)? {
        Device::Gpu(position, gpu) => {
            let memory = gpu.model.memory.ok_or(Code::NOT_SUPPORTED)?;
            let room = memory.total_mib - memory.reserved_mib.min(memory.total_mib);
            Ok(Now {
                total: memory.total_mib * MIB,
                reserved: (memory.total_mib - room) * MIB,
                used: call.trouble(position).memory_used_mib.min(room) * MIB,
            })
        }
        Device::Mig(mig) => {
            let profile = mig.instance.profile(mig.table)?;
            Ok(Now { total: profile.memory_mib * MIB, reserved: 0, used: 0 })
        }
    }
}
