//! Field values: numbers asked for by id, many at a time.

use std::ffi::{c_int, c_uint};
use std::time::{SystemTime, UNIX_EPOCH};

use gpu_dra_sim_data::mig_table::MigToggle;
use nvml_wrapper_sys::bindings as sys;

use super::{ecc, exports, fabric};
use crate::abi::DeviceArg;
use crate::code::{Answer, Code};
use crate::entry::Call;

exports! {
    /// Each field has its own return code; the call fails only as a whole.
    fn nvmlDeviceGetFieldValues(
        device: sys::nvmlDevice_t,
        count: c_int,
        values: *mut sys::nvmlFieldValue_t,
    ) |call| {
        call.physical(device)?;
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for nth in 0..count {
            let place = values.nth(nth);
            let mut field = place.get()?;
            field.timestamp = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
            field.latencyUsec = 0;
            match value(call, device, field.fieldId, field.scopeId) {
                Ok(value) => {
                    let (kind, value) = value.into_nvml();
                    field.valueType = kind;
                    field.value = value;
                    field.nvmlReturn = 0;
                }
                Err(Code(code)) => field.nvmlReturn = code,
            }
            place.set(field)?;
        }
        Ok(())
    }
}

/// `NVML_FI_DEV_…` of the header, which the bindings leave out.
mod field {
    pub(super) const ECC_SBE_VOL_TOTAL: u32 = 3;
    pub(super) const ECC_DBE_VOL_TOTAL: u32 = 4;
    pub(super) const ECC_SBE_AGG_TOTAL: u32 = 5;
    pub(super) const ECC_DBE_AGG_TOTAL: u32 = 6;
    pub(super) const RETIRED_SBE: u32 = 29;
    pub(super) const RETIRED_DBE: u32 = 30;
    pub(super) const RETIRED_PENDING: u32 = 31;
    pub(super) const NVLINK_LINK_COUNT: u32 = 91;
    pub(super) const NVLINK_GET_STATE: u32 = 165;
    pub(super) const REMAPPED_COR: u32 = 142;
    pub(super) const REMAPPED_UNC: u32 = 143;
    pub(super) const REMAPPED_PENDING: u32 = 144;
    pub(super) const REMAPPED_FAILURE: u32 = 145;
    pub(super) const IS_RESETLESS_MIG_SUPPORTED: u32 = 184;
    pub(super) const GET_GPU_RECOVERY_ACTION: u32 = 230;
}

/// `NVML_DEVICE_ARCH_HOPPER`: from it on links tell their state as a field too.
const HOPPER: u32 = 9;

enum Value {
    Number(c_uint),
    Long(u64),
}

impl Value {
    fn into_nvml(self) -> (sys::nvmlValueType_t, sys::nvmlValue_t) {
        match self {
            // The whole union is written, whichever part of it is in use.
            Self::Number(number) => (1, sys::nvmlValue_t { ullVal: number.into() }),
            Self::Long(number) => (3, sys::nvmlValue_t { ullVal: number }),
        }
    }
}

fn value(call: &Call, device: DeviceArg, id: c_uint, scope: c_uint) -> Answer<Value> {
    let ecc = || ecc::ecc(call, device);
    let rows = || ecc::remapped(call, device);
    let (position, gpu) = call.physical(device)?;
    let retired = || {
        let pages = call.trouble(position).retired_pages;
        if gpu.model.page_retirement { Ok(pages) } else { Err(Code::NOT_SUPPORTED) }
    };
    Ok(match id {
        field::ECC_SBE_VOL_TOTAL => Value::Long(ecc()?.volatile_corrected),
        field::ECC_DBE_VOL_TOTAL => Value::Long(ecc()?.volatile_uncorrected),
        field::ECC_SBE_AGG_TOTAL => Value::Long(ecc()?.aggregate_corrected),
        field::ECC_DBE_AGG_TOTAL => Value::Long(ecc()?.aggregate_uncorrected),
        field::RETIRED_SBE => Value::Number(retired()?.single_bit),
        field::RETIRED_DBE => Value::Number(retired()?.double_bit),
        field::RETIRED_PENDING => Value::Number(retired()?.pending.into()),
        field::REMAPPED_COR => Value::Number(rows()?.corrected),
        field::REMAPPED_UNC => Value::Number(rows()?.uncorrected),
        field::REMAPPED_PENDING => Value::Number(rows()?.pending.into()),
        field::REMAPPED_FAILURE => Value::Number(rows()?.failure.into()),
        field::NVLINK_LINK_COUNT => Value::Number(gpu.model.nvlinks),
        field::NVLINK_GET_STATE if gpu.model.architecture.nvml() >= HOPPER => {
            Value::Number(fabric::link_state(call, position, gpu, scope)?)
        }
        field::IS_RESETLESS_MIG_SUPPORTED => {
            let table = gpu.model.mig.as_ref().ok_or(Code::NOT_SUPPORTED)?;
            Value::Number((table.toggle == MigToggle::Live).into())
        }
        field::GET_GPU_RECOVERY_ACTION if call.knows_recovery_action() => {
            Value::Number(call.trouble(position).recovery_action)
        }
        _ => return Err(Code::NOT_SUPPORTED),
    })
}
