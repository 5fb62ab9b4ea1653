//! How many GPUs there are, and handles by index, UUID, PCI address and serial number.

use std::ffi::{c_char, c_uint};

use gpu_dra_sim_data::mig_uuid;
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{In, Out};
use crate::code::{Answer, Code};
use crate::entry::Call;
use crate::handles::{Thing, handle};

exports! {
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) |call| {
        count.set(c_uint::try_from(call.visible().len()).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlDeviceGetCount(count: *mut c_uint) |call| {
        count.set(c_uint::try_from(call.visible().len()).map_err(|_| Code::UNKNOWN)?)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut sys::nvmlDevice_t) |call| {
        by_index(call, index, device)
    }

    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut sys::nvmlDevice_t) |call| {
        by_index(call, index, device)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut sys::nvmlDevice_t) |call| {
        by_uuid(call, uuid.text()?, device)
    }

    /// Of the forms of a UUID only the text is known here.
    fn nvmlDeviceGetHandleByUUIDV(
        uuid: *const sys::nvmlUUID_t,
        device: *mut sys::nvmlDevice_t,
    ) |call| {
        let given = uuid.get()?;
        // NVML_UUID_TYPE_ASCII
        if given.type_ != 1 {
            return Err(Code::NOT_SUPPORTED);
        }
        // SAFETY: the type says that the text is the part in use; it's plain bytes anyway.
        let text = unsafe { given.value.str_ };
        let bytes: Vec<u8> =
            text.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        by_uuid(call, &String::from_utf8_lossy(&bytes), device)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, device: *mut sys::nvmlDevice_t) |call| {
        by_pci(call, id, device)
    }

    fn nvmlDeviceGetHandleByPciBusId(id: *const c_char, device: *mut sys::nvmlDevice_t) |call| {
        by_pci(call, id, device)
    }

    fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut sys::nvmlDevice_t) |call| {
        let serial = serial.text()?;
        let gpus = &call.node().gpus;
        let position = gpus.iter().position(|gpu| gpu.serial == serial).ok_or(Code::NOT_FOUND)?;
        found(call, position, device)
    }
}

fn by_index(call: &Call, index: c_uint, device: Out<sys::nvmlDevice_t>) -> Answer {
    let index = usize::try_from(index).map_err(|_| Code::INVALID_ARGUMENT)?;
    let position = *call.visible().get(index).ok_or(Code::INVALID_ARGUMENT)?;
    call.not_lost(position)?;
    device.set(call.gpu_handle(position)?)
}

/// An address as a caller writes it: any case, any number of digits for the domain.
fn by_pci(call: &Call, id: In<c_char>, device: Out<sys::nvmlDevice_t>) -> Answer {
    let wanted = id.text()?.to_ascii_lowercase();
    let wanted = wanted.trim_start_matches('0');
    let same = |pci: &str| pci.trim_start_matches('0') == wanted;
    let gpus = &call.node().gpus;
    let position = gpus.iter().position(|gpu| same(&gpu.place.pci.to_string()));
    found(call, position.ok_or(Code::NOT_FOUND)?, device)
}

fn by_uuid(call: &Call, uuid: &str, device: Out<sys::nvmlDevice_t>) -> Answer {
    if let Some(position) = call.node().gpus.iter().position(|gpu| gpu.uuid == uuid) {
        return found(call, position, device);
    }
    let state = call.state()?;
    for position in call.visible() {
        let (Some(gpu), Some(state)) = (call.node().gpus.get(position), state.gpus.get(position))
        else {
            continue;
        };
        for (instance, compute) in state.mig_devices() {
            if mig_uuid(&gpu.uuid, instance.id, compute.id) == uuid {
                call.not_lost(position)?;
                return device.set(handle(Thing::MigDevice {
                    gpu: position,
                    instance: instance.id,
                    compute: compute.id,
                    birth: compute.birth,
                }));
            }
        }
    }
    Err(Code::NOT_FOUND)
}

fn found(call: &Call, position: usize, device: Out<sys::nvmlDevice_t>) -> Answer {
    call.not_lost(position)?;
    if !call.visible().contains(&position) {
        return Err(Code::NOT_FOUND);
    }
    device.set(call.gpu_handle(position)?)
}
