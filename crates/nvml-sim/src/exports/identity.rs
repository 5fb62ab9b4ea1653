//! Which GPU it is: names, numbers, addresses.

use std::ffi::{c_char, c_int, c_uint};

use gpu_dra_sim_data::mig_uuid;
use gpu_dra_sim_data::node::Gpu;
use nvml_wrapper_sys::bindings as sys;

use super::exports;
use crate::abi::{Out, chars};
use crate::code::{Answer, Code};
use crate::entry::{Device, MigDevice};

exports! {
    fn nvmlDeviceGetIndex(device: sys::nvmlDevice_t, index: *mut c_uint) |call| {
        match call.device(device)? {
            Device::Gpu(position, _) => {
                let visible = call.visible();
                let nth = visible.iter().position(|other| *other == position);
                let nth = nth.and_then(|nth| c_uint::try_from(nth).ok());
                index.set(nth.ok_or(Code::INVALID_ARGUMENT)?)
            }
            Device::Mig(mig) => index.set(mig.compute.index),
        }
    }

    fn nvmlDeviceGetUUID(device: sys::nvmlDevice_t, uuid: *mut c_char, length: c_uint) |call| {
        match call.device(device)? {
            Device::Gpu(_, gpu) => uuid.text(&gpu.uuid, length),
            Device::Mig(mig) => {
                uuid.text(&mig_uuid(&mig.gpu.uuid, mig.instance.id, mig.compute.id), length)
            }
        }
    }

    fn nvmlDeviceGetName(device: sys::nvmlDevice_t, name: *mut c_char, length: c_uint) |call| {
        match call.device(device)? {
            Device::Gpu(_, gpu) => name.text(&gpu.model.name, length),
            Device::Mig(mig) => name.text(&mig_name(&mig)?, length),
        }
    }

    fn nvmlDeviceGetSerial(device: sys::nvmlDevice_t, serial: *mut c_char, length: c_uint) |call| {
        serial.text(&call.gpu(device)?.1.serial, length)
    }

    fn nvmlDeviceGetBrand(device: sys::nvmlDevice_t, brand: *mut sys::nvmlBrandType_t) |call| {
        brand.set(call.physical(device)?.1.model.brand)
    }

    fn nvmlDeviceGetArchitecture(
        device: sys::nvmlDevice_t,
        architecture: *mut sys::nvmlDeviceArchitecture_t,
    ) |call| {
        architecture.set(call.physical(device)?.1.model.architecture.nvml())
    }

    fn nvmlDeviceGetCudaComputeCapability(
        device: sys::nvmlDevice_t,
        major: *mut c_int,
        minor: *mut c_int,
    ) |call| {
        let capability = call.physical(device)?.1.model.compute_capability;
        major.set(capability.major)?;
        minor.set(capability.minor)
    }

    fn nvmlDeviceGetMinorNumber(device: sys::nvmlDevice_t, minor: *mut c_uint) |call| {
        minor.set(call.gpu(device)?.1.minor)
    }

    fn nvmlDeviceGetModuleId(device: sys::nvmlDevice_t, id: *mut c_uint) |call| {
        id.set(call.gpu(device)?.1.place.module_id)
    }

    fn nvmlDeviceGetVbiosVersion(
        device: sys::nvmlDevice_t,
        version: *mut c_char,
        length: c_uint,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        version.text(gpu.model.vbios.as_deref().ok_or(Code::NOT_SUPPORTED)?, length)
    }

    fn nvmlDeviceGetBoardPartNumber(
        device: sys::nvmlDevice_t,
        number: *mut c_char,
        length: c_uint,
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        number.text(gpu.model.part_number.as_deref().ok_or(Code::NOT_SUPPORTED)?, length)
    }

    fn nvmlDeviceGetPciInfo_v3(device: sys::nvmlDevice_t, pci: *mut sys::nvmlPciInfo_t) |call| {
        pci.set(pci_info(call.physical(device)?.1))
    }

    fn nvmlDeviceGetPciInfo_v2(device: sys::nvmlDevice_t, pci: *mut sys::nvmlPciInfo_t) |call| {
        old_pci_info(pci, call.physical(device)?.1, V2_WORDS)
    }

    fn nvmlDeviceGetPciInfo(device: sys::nvmlDevice_t, pci: *mut sys::nvmlPciInfo_t) |call| {
        old_pci_info(pci, call.physical(device)?.1, V1_WORDS)
    }

    fn nvmlDeviceGetPciInfoExt(device: sys::nvmlDevice_t, pci: *mut sys::nvmlPciInfoExt_t) |call| {
        let version = pci.version_word()?;
        let (_, gpu) = call.physical(device)?;
        let plain = pci_info(gpu);
        let class = gpu.model.pci.class.0;
        pci.set(sys::nvmlPciInfoExt_v1_t {
            version,
            domain: plain.domain,
            bus: plain.bus,
            device: plain.device,
            pciDeviceId: plain.pciDeviceId,
            pciSubSystemId: plain.pciSubSystemId,
            baseClass: class >> 16,
            subClass: class >> 8 & 0xff,
            busId: plain.busId,
        })
    }

    fn nvmlDeviceGetVirtualizationMode(
        device: sys::nvmlDevice_t,
        mode: *mut sys::nvmlGpuVirtualizationMode_t,
    ) |call| {
        mode.set(call.physical(device)?.1.virtualization)
    }

    fn nvmlDeviceGetPdi(device: sys::nvmlDevice_t, pdi: *mut sys::nvmlPdi_t) |call| {
        let version = pdi.version_word()?;
        let serial = call.gpu(device)?.1.serial.parse().map_err(|_| Code::NOT_SUPPORTED)?;
        pdi.set(sys::nvmlPdi_t { version, value: serial })
    }
}

/// `NVIDIA H100 80GB HBM3 MIG 1g.10gb`, or `… MIG 1c.3g.40gb` where a compute instance has
/// only a part of its GPU instance.
fn mig_name(mig: &MigDevice<'_>) -> Answer<String> {
    let profile = mig.instance.profile(mig.table)?;
    let slices = mig.compute.placement.size;
    let part = if slices < profile.slices { format!("{slices}c.") } else { String::new() };
    Ok(format!("{} MIG {part}{}", mig.gpu.model.name, profile.name))
}

/// NVIDIA's PCI vendor id, in the low half of device and subsystem ids.
const VENDOR: u32 = 0x10de;

pub(super) fn pci_info(gpu: &Gpu) -> sys::nvmlPciInfo_t {
    let pci = gpu.place.pci;
    sys::nvmlPciInfo_t {
        busIdLegacy: chars(&pci.to_string().to_ascii_uppercase()),
        domain: pci.domain,
        bus: pci.bus,
        device: pci.device,
        pciDeviceId: gpu.model.pci.device.0 << 16 | VENDOR,
        pciSubSystemId: gpu.model.pci.subsystem.0 << 16 | VENDOR,
        busId: chars(&pci.nvml()),
    }
}

/// Numbers after the 16 characters of the address in the first version of the struct.
const V1_WORDS: usize = 4;
/// The second version adds the subsystem and four reserved numbers.
const V2_WORDS: usize = 9;

/// Old programs have less room than today's struct needs.
fn old_pci_info(pci: Out<sys::nvmlPciInfo_t>, gpu: &Gpu, words: usize) -> Answer {
    let info = pci_info(gpu);
    pci.version::<c_char>().write_all(&info.busIdLegacy)?;
    let numbers =
        [info.domain, info.bus, info.device, info.pciDeviceId, info.pciSubSystemId, 0, 0, 0, 0];
    let after = pci.version::<c_uint>().nth(info.busIdLegacy.len() / size_of::<c_uint>());
    after.write_all(numbers.get(..words).unwrap_or(&numbers))
}
