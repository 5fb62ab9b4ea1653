//! An idle GPU's readings: power, temperature, load, its PCIe link.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::code::Code;

exports! {
    /// A tenth of the limit, in milliwatts.
    fn nvmlDeviceGetPowerUsage(device: sys::nvmlDevice_t, power: *mut c_uint) |call| {
        power.set(call.gpu(device)?.1.model.power.ok_or(Code::NOT_SUPPORTED)?.default_w * 100)
    }

    fn nvmlDeviceGetPowerManagementLimit(device: sys::nvmlDevice_t, limit: *mut c_uint) |call| {
        limit.set(call.gpu(device)?.1.model.power.ok_or(Code::NOT_SUPPORTED)?.default_w * 1000)
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(
        device: sys::nvmlDevice_t,
        limit: *mut c_uint,
    ) |call| {
        limit.set(call.gpu(device)?.1.model.power.ok_or(Code::NOT_SUPPORTED)?.default_w * 1000)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(device: sys::nvmlDevice_t, limit: *mut c_uint) |call| {
        limit.set(call.gpu(device)?.1.model.power.ok_or(Code::NOT_SUPPORTED)?.default_w * 1000)
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(
        device: sys::nvmlDevice_t,
        least: *mut c_uint,
        most: *mut c_uint,
    ) |call| {
        let power = call.gpu(device)?.1.model.power.ok_or(Code::NOT_SUPPORTED)?;
        least.set(power.min_w * 1000)?;
        most.set(power.max_w * 1000)
    }

    /// Degrees Celsius.
    fn nvmlDeviceGetTemperature(
        device: sys::nvmlDevice_t,
        sensor: sys::nvmlTemperatureSensors_t,
        degrees: *mut c_uint,
    ) |call| {
        call.gpu(device)?;
        if sensor == 0 { degrees.set(35) } else { Err(Code::INVALID_ARGUMENT) }
    }

    /// Not told while MIG is on.
    fn nvmlDeviceGetUtilizationRates(
        device: sys::nvmlDevice_t,
        rates: *mut sys::nvmlUtilization_t,
    ) |call| {
        let (position, _) = call.gpu(device)?;
        if call.gpu_state(position)?.mig {
            return Err(Code::NOT_SUPPORTED);
        }
        rates.set(sys::nvmlUtilization_t { gpu: 0, memory: 0 })
    }

    fn nvmlDeviceGetPerformanceState(
        device: sys::nvmlDevice_t,
        state: *mut sys::nvmlPstates_t,
    ) |call| {
        call.gpu(device)?;
        state.set(0)
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration(
        device: sys::nvmlDevice_t,
        generation: *mut c_uint,
    ) |call| {
        generation.set(call.gpu(device)?.1.model.pci.generation)
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(
        device: sys::nvmlDevice_t,
        generation: *mut c_uint,
    ) |call| {
        generation.set(call.gpu(device)?.1.model.pci.generation)
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(device: sys::nvmlDevice_t, width: *mut c_uint) |call| {
        width.set(call.gpu(device)?.1.model.pci.width)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: sys::nvmlDevice_t, width: *mut c_uint) |call| {
        width.set(call.gpu(device)?.1.model.pci.width)
    }

    /// Metrics by sampling aren't modelled for any GPU.
    fn nvmlGpmQueryDeviceSupport(
        device: sys::nvmlDevice_t,
        support: *mut sys::nvmlGpmSupport_t,
    ) |call| {
        let version = support.version_word()?;
        call.gpu(device)?;
        support.set(sys::nvmlGpmSupport_t { version, isSupportedDevice: 0 })
    }
}
