//! NVML's field values, with the scope that the wrapper can't pass. `unsafe` by the rules of
//! `raw`.

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallError, Code};

/// `nvmlDeviceGetFieldValues`: whole numbers by field (`NVML_FI_DEV_…`) and scope (a link's
/// number; 0 where the field has none), many in one call. Each field has an answer of its own.
pub(crate) fn field_values<const N: usize>(
    nvml: &Nvml,
    device: &Device<'_>,
    fields: [(u32, u32); N],
) -> Result<[Result<u64, CallError>; N], CallError> {
    const CALL: &str = "nvmlDeviceGetFieldValues";
    let function = nvml.lib().nvmlDeviceGetFieldValues.as_ref();
    let function = function.map_err(|_| CallError::missing(CALL))?;
    let mut values = fields.map(|(field, scope)| sys::nvmlFieldValue_t {
        fieldId: field,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: Code::UNKNOWN.0,
        value: sys::nvmlValue_t { ullVal: 0 },
    });
    let too_many = |_| CallError { call: CALL, code: Code::INVALID_ARGUMENT };
    let count = i32::try_from(N).map_err(too_many)?;
    // SAFETY: prototype from the bindings, handle from the same library; `values` has as many
    // entries as the function is told.
    let code = unsafe { function(device.handle(), count, values.as_mut_ptr()) };
    CallError::check(CALL, code)?;
    Ok(values.map(|value| {
        CallError::check(CALL, value.nvmlReturn)?;
        whole(&value).ok_or(CallError { call: CALL, code: Code::UNKNOWN })
    }))
}

/// The number, if it is a whole one that isn't negative.
fn whole(value: &sys::nvmlFieldValue_t) -> Option<u64> {
    // SAFETY: every field of the union is plain numbers, for which any bytes are fine, and
    // all its bytes were written before the call.
    unsafe {
        match value.valueType {
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => Some(value.value.uiVal.into()),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG =>
            {
                #[allow(clippy::useless_conversion, reason = "u32 on some machines")]
                Some(value.value.ulVal.into())
            }
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.value.ullVal),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => {
                value.value.sllVal.try_into().ok()
            }
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => value.value.siVal.try_into().ok(),
            sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => {
                Some(value.value.usVal.into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_all_types() {
        let value = |kind, value| sys::nvmlFieldValue_t {
            fieldId: 1,
            scopeId: 0,
            timestamp: 0,
            latencyUsec: 0,
            valueType: kind,
            nvmlReturn: 0,
            value,
        };
        // The rest of the union is whatever was there before.
        let dirty = |low: u64| sys::nvmlValue_t { ullVal: 0xdead_beef_0000_0000 | low };
        for (kind, of, is) in [
            (1, dirty(7), Some(7)),
            (3, sys::nvmlValue_t { ullVal: 1 << 40 }, Some(1 << 40)),
            (4, sys::nvmlValue_t { sllVal: -1 }, None),
            (5, dirty(7), Some(7)),
            (6, dirty(0xffff_0007), Some(7)),
            (0, sys::nvmlValue_t { dVal: 7.0 }, None),
            (99, dirty(7), None),
        ] {
            assert_eq!(whole(&value(kind, of)), is, "{kind}");
        }
    }
}
