//! NVML's texts. The wrapper reads on until a zero comes, beyond the end of its buffer if it
//! must; here a text without an end, or one that isn't UTF-8, is no answer. `unsafe` by the
//! rules of `raw`.

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use crate::code::{CallError, Code};
use crate::raw::get;

/// Room for any text of NVML's: 96 bytes is the most that its header asks for.
const ROOM: usize = 96;

/// A getter of a text of a device.
type DeviceText = Result<
    unsafe extern "C" fn(sys::nvmlDevice_t, *mut c_char, c_uint) -> sys::nvmlReturn_t,
    libloading::Error,
>;

/// A getter of a text of the driver.
type SystemText =
    Result<unsafe extern "C" fn(*mut c_char, c_uint) -> sys::nvmlReturn_t, libloading::Error>;

/// `nvmlDeviceGetUUID`, of a GPU or a MIG device.
pub(crate) fn uuid(device: &Device<'_>) -> Result<String, CallError> {
    of_device("nvmlDeviceGetUUID", &device.nvml().lib().nvmlDeviceGetUUID, device)
}

/// `nvmlDeviceGetName`.
pub(crate) fn name(nvml: &Nvml, device: &Device<'_>) -> Result<String, CallError> {
    of_device("nvmlDeviceGetName", &nvml.lib().nvmlDeviceGetName, device)
}

/// `nvmlSystemGetDriverVersion`.
pub(crate) fn driver_version(nvml: &Nvml) -> Result<String, CallError> {
    of_system("nvmlSystemGetDriverVersion", &nvml.lib().nvmlSystemGetDriverVersion)
}

/// `nvmlSystemGetNVMLVersion`.
pub(crate) fn nvml_version(nvml: &Nvml) -> Result<String, CallError> {
    of_system("nvmlSystemGetNVMLVersion", &nvml.lib().nvmlSystemGetNVMLVersion)
}

/// The address in `nvmlDeviceGetPciInfo_v3`.
pub(crate) fn pci_bus_id(nvml: &Nvml, device: &Device<'_>) -> Result<String, CallError> {
    const CALL: &str = "nvmlDeviceGetPciInfo_v3";
    let empty = sys::nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: [0; 32],
    };
    let info = get(CALL, &nvml.lib().nvmlDeviceGetPciInfo_v3, device, empty)?;
    text(CALL, &info.busId)
}

fn of_device(
    call: &'static str,
    symbol: &DeviceText,
    device: &Device<'_>,
) -> Result<String, CallError> {
    let function = symbol.as_ref().map_err(|_| CallError::missing(call))?;
    let mut room = [0; ROOM];
    // SAFETY: prototype from the bindings, handle from the same library; `room` has as many
    // bytes as the function is told.
    let code = unsafe { function(device.handle(), room.as_mut_ptr(), ROOM as c_uint) };
    CallError::check(call, code)?;
    text(call, &room)
}

fn of_system(call: &'static str, symbol: &SystemText) -> Result<String, CallError> {
    let function = symbol.as_ref().map_err(|_| CallError::missing(call))?;
    let mut room = [0; ROOM];
    // SAFETY: prototype from the bindings; `room` has as many bytes as the function is told.
    let code = unsafe { function(room.as_mut_ptr(), ROOM as c_uint) };
    CallError::check(call, code)?;
    text(call, &room)
}

/// A text that ends within its room.
pub(crate) fn text(call: &'static str, room: &[c_char]) -> Result<String, CallError> {
    // c_char is signed on some machines only.
    let bytes: Vec<u8> = room.iter().flat_map(|c| c.to_ne_bytes()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).ok().and_then(|text| text.to_str().ok());
    text.map(str::to_owned).ok_or(CallError { call, code: Code::UNKNOWN })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_an_end_and_is_utf_8() {
        let room = |bytes: [u8; 4]| bytes.map(|b| b as c_char);
        assert_eq!(text("f", &room(*b"ab\0c")), Ok("ab".to_owned()));
        assert_eq!(text("f", &room([0; 4])), Ok(String::new()));
        for bad in [room(*b"abcd"), room([0xff, 0xfe, 0, 0])] {
            assert_eq!(text("f", &bad).unwrap_err().code, Code::UNKNOWN);
        }
    }
}
