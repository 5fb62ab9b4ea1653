//! Memory errors: ECC counters, the row remapper, retired pages.

use std::ffi::{c_uint, c_ulonglong};

use gpu_dra_sim_data::control::{EccCounts, Remapped};
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::DeviceArg;
use crate::code::{Answer, Code};
use crate::entry::Call;

exports! {
    fn nvmlDeviceGetTotalEccErrors(
        device: sys::nvmlDevice_t,
        kind: sys::nvmlMemoryErrorType_t,
        counter: sys::nvmlEccCounterType_t,
        count: *mut c_ulonglong,
    ) |call| {
        count.set(pick(ecc(call, device)?, kind, counter)?)
    }

    /// All errors are the device memory's.
    fn nvmlDeviceGetMemoryErrorCounter(
        device: sys::nvmlDevice_t,
        kind: sys::nvmlMemoryErrorType_t,
        counter: sys::nvmlEccCounterType_t,
        location: sys::nvmlMemoryLocation_t,
        count: *mut c_ulonglong,
    ) |call| {
        let errors = pick(ecc(call, device)?, kind, counter)?;
        match location {
            sys::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_DRAM => count.set(errors),
            sys::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_SRAM => count.set(0),
            location if location < sys::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_COUNT => {
                Err(Code::NOT_SUPPORTED)
            }
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    /// Not told while MIG instances exist.
    fn nvmlDeviceGetRemappedRows(
        device: sys::nvmlDevice_t,
        corrected: *mut c_uint,
        uncorrected: *mut c_uint,
        pending: *mut c_uint,
        failure: *mut c_uint,
    ) |call| {
        let rows = remapped(call, device)?;
        corrected.set(rows.corrected)?;
        uncorrected.set(rows.uncorrected)?;
        pending.set(rows.pending.into())?;
        failure.set(rows.failure.into())
    }

    fn nvmlDeviceGetRowRemapperHistogram(
        device: sys::nvmlDevice_t,
        values: *mut sys::nvmlRowRemapperHistogramValues_t,
    ) |call| {
        let rows = remapped(call, device)?;
        let (_, gpu) = call.gpu(device)?;
        let banks = gpu.model.remap_banks.ok_or(Code::NOT_SUPPORTED)?;
        // A remapped row leaves its bank with less than the most rows to spare.
        let used = (rows.corrected + rows.uncorrected).min(banks);
        values.set(sys::nvmlRowRemapperHistogramValues_t {
            max: banks - used,
            high: used,
            partial: 0,
            low: 0,
            none: 0,
        })
    }

    fn nvmlDeviceGetRetiredPages(
        device: sys::nvmlDevice_t,
        cause: sys::nvmlPageRetirementCause_t,
        count: *mut c_uint,
        addresses: *mut c_ulonglong,
    ) |call| {
        let (position, gpu) = call.gpu(device)?;
        if !gpu.model.page_retirement {
            return Err(Code::NOT_SUPPORTED);
        }
        let retired = call.trouble(position).retired_pages;
        let pages = match cause {
            0 => retired.single_bit,
            1 => retired.double_bit,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        let all: Vec<_> = (0..pages).map(|page| c_ulonglong::from(page) << 16).collect();
        if addresses.is_null() && count.get()? == 0 {
            return count.set(pages);
        }
        addresses.list(&all, count)
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(
        device: sys::nvmlDevice_t,
        pending: *mut sys::nvmlEnableState_t,
    ) |call| {
        let (position, gpu) = call.gpu(device)?;
        if !gpu.model.page_retirement {
            return Err(Code::NOT_SUPPORTED);
        }
        pending.set(call.trouble(position).retired_pages.pending.into())
    }

    fn nvmlDeviceGetRepairStatus(
        device: sys::nvmlDevice_t,
        status: *mut sys::nvmlRepairStatus_v1_t,
    ) |call| {
        let version = status.version_word()?;
        let (_, gpu) = call.gpu(device)?;
        if gpu.model.remap_banks.is_none() {
            return Err(Code::NOT_SUPPORTED);
        }
        status.set(sys::nvmlRepairStatus_v1_t {
            version,
            bChannelRepairPending: 0,
            bTpcRepairPending: 0,
        })
    }
}

/// The counters of a GPU that has ECC.
pub(super) fn ecc(call: &Call, device: DeviceArg) -> Answer<EccCounts> {
    let (position, gpu) = call.physical(device)?;
    if gpu.model.ecc { Ok(call.trouble(position).ecc) } else { Err(Code::NOT_SUPPORTED) }
}

/// The row remapper of a GPU that has one.
pub(super) fn remapped(call: &Call, device: DeviceArg) -> Answer<Remapped> {
    let (position, gpu) = call.gpu(device)?;
    if gpu.model.remap_banks.is_none() || !call.gpu_state(position)?.instances.is_empty() {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(call.trouble(position).remapped)
}

fn pick(counts: EccCounts, kind: c_uint, counter: c_uint) -> Answer<c_ulonglong> {
    match (kind, counter) {
        (0, 0) => Ok(counts.volatile_corrected),
        (1, 0) => Ok(counts.volatile_uncorrected),
        (0, 1) => Ok(counts.aggregate_corrected),
        (1, 1) => Ok(counts.aggregate_uncorrected),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}
