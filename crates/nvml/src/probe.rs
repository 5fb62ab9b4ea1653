//! One full pass over the GPUs. What a GPU *is* (identity, memory, architecture, MIG) must be
//! answered or declared absent, else the GPU is set aside as broken with NVML's reason; where
//! it *sits* (fabric, module, bus width) is left out with a warning when a call fails.

use gpu_dra_model::inventory::{
    AddressingMode, BrokenGpu, ComputeCapability, CudaVersion, DriverVersions, Fabric, Gpu,
    Inventory,
};
use gpu_dra_model::{GpuUuid, Minor, PciBusId};
use nvml_wrapper::{Device, Nvml};
use tracing::warn;

use crate::code::{CallError, Code, if_known, if_possible};
use crate::limits::{self, at_most};
use crate::names::{architecture_name, brand_name};
use crate::trees::Trees;
use crate::{mig, raw, raw_text, sysfs};

/// `NVML_GPU_FABRIC_STATE_COMPLETED`: only then are clique and cluster valid.
const FABRIC_COMPLETED: u32 = 3;
/// `NVML_GPU_VIRTUALIZATION_MODE_VGPU`: this is a guest with a share of a GPU.
const VGPU_GUEST: u32 = 2;

/// Asks for everything. Fails only if NVML as a whole doesn't answer.
pub(crate) fn probe(nvml: &Nvml, trees: &Trees) -> Result<Inventory, CallError> {
    let mut inventory = Inventory { driver: versions(nvml)?, ..Inventory::default() };
    for index in 0..count(nvml)? {
        match gpu(nvml, trees, index) {
            Ok(gpu) => inventory.gpus.push(gpu),
            Err(broken) => inventory.broken.push(*broken),
        }
    }
    inventory.gpus.sort_by(|a, b| a.pci_bus_id.cmp(&b.pci_bus_id));
    inventory.broken.sort_by(|a, b| (&a.pci_bus_id, a.index).cmp(&(&b.pci_bus_id, b.index)));
    Ok(inventory)
}

/// `nvmlDeviceGetCount_v2`.
pub(crate) fn count(nvml: &Nvml) -> Result<u32, CallError> {
    const CALL: &str = "nvmlDeviceGetCount_v2";
    at_most(limits::GPUS, CALL, nvml.device_count().map_err(CallError::wrap(CALL))?)
}

fn versions(nvml: &Nvml) -> Result<DriverVersions, CallError> {
    let cuda = nvml.sys_cuda_driver_version();
    let cuda = if_known(cuda.map_err(CallError::wrap("nvmlSystemGetCudaDriverVersion_v2")))?;
    Ok(DriverVersions {
        driver: raw_text::driver_version(nvml)?,
        cuda: cuda.and_then(|number| u32::try_from(number).ok()).map(CudaVersion::from_nvml),
        nvml: if_known(raw_text::nvml_version(nvml))?,
    })
}

/// Asks one GPU; the error is what is known of a GPU that failed to answer.
fn gpu(nvml: &Nvml, trees: &Trees, index: u32) -> Result<Gpu, Box<BrokenGpu>> {
    let mut known =
        BrokenGpu { index, uuid: None, pci_bus_id: None, reason: String::new(), lost: false };
    let answer = identify(nvml, index, &mut known)
        .and_then(|(device, uuid, pci)| describe(nvml, trees, index, &device, uuid, pci));
    answer.map_err(|fault| {
        known.lost = matches!(&fault, Fault::Call(error) if error.code == Code::GPU_IS_LOST);
        known.reason = fault.to_string();
        Box::new(known)
    })
}

/// Why a GPU could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Id(#[from] gpu_dra_model::IdError),
}

/// Handle, UUID and PCI address, noting in `known` how far it came.
fn identify<'n>(
    nvml: &'n Nvml,
    index: u32,
    known: &mut BrokenGpu,
) -> Result<(Device<'n>, GpuUuid, PciBusId), Fault> {
    let device = handle(nvml, index)?;
    // The PCI address first: a GPU that fell off the bus may still tell that much.
    let pci = raw_text::pci_bus_id(nvml, &device).map_err(Fault::from);
    let pci = pci.and_then(|address| Ok(PciBusId::from_nvml(&address)?));
    known.pci_bus_id = pci.as_ref().ok().cloned();
    let uuid = uuid(&device)?;
    known.uuid = Some(uuid.clone());
    Ok((device, uuid, pci?))
}

/// `nvmlDeviceGetHandleByIndex_v2`.
pub(crate) fn handle(nvml: &Nvml, index: u32) -> Result<Device<'_>, CallError> {
    nvml.device_by_index(index).map_err(CallError::wrap("nvmlDeviceGetHandleByIndex_v2"))
}

/// `nvmlDeviceGetUUID`.
pub(crate) fn uuid(device: &Device<'_>) -> Result<GpuUuid, Fault> {
    Ok(GpuUuid::new(raw_text::uuid(device)?)?)
}

fn describe(
    nvml: &Nvml,
    trees: &Trees,
    index: u32,
    device: &Device<'_>,
    uuid: GpuUuid,
    pci_bus_id: PciBusId,
) -> Result<Gpu, Fault> {
    let memory_bytes = memory_total(nvml, device)?;
    let extra = Extra { uuid: &uuid };
    Ok(Gpu {
        minor: minor(device)?,
        index,
        product_name: raw_text::name(nvml, device)?,
        brand: if_known(raw::brand(nvml, device))?.and_then(brand_name).map(str::to_owned),
        architecture: if_known(raw::architecture(nvml, device))?
            .and_then(architecture_name)
            .map(str::to_owned),
        compute_capability: compute_capability(device)?,
        memory_bytes,
        memory_bus_width_bits: extra.of(device
            .memory_bus_width()
            .map_err(CallError::wrap("nvmlDeviceGetMemoryBusWidth")))?,
        pcie_root: sysfs::read_pcie_root(trees, &pci_bus_id),
        numa_node: sysfs::read_numa_node(trees, &pci_bus_id),
        addressing_mode: extra.of(raw::addressing_mode(nvml, device))?.and_then(addressing_mode),
        // Boards without modules answer 0.
        module_id: extra.of(raw::module_id(nvml, device))?.filter(|id| *id != 0),
        fabric: extra.of(raw::fabric_info(nvml, device))?.and_then(|info| joined(&info)),
        vgpu_guest: if_known(raw::virtualization_mode(nvml, device))? == Some(VGPU_GUEST),
        mig: mig::mig(nvml, device, memory_bytes)?,
        pci_bus_id,
        uuid,
    })
}

/// `nvmlDeviceGetMinorNumber`.
pub(crate) fn minor(device: &Device<'_>) -> Result<Minor, CallError> {
    device.minor_number().map(Minor).map_err(CallError::wrap("nvmlDeviceGetMinorNumber"))
}

/// Total memory; None on a GPU without memory of its own (GB10).
fn memory_total(nvml: &Nvml, device: &Device<'_>) -> Result<Option<u64>, CallError> {
    let newer = device.memory_info().map_err(CallError::wrap("nvmlDeviceGetMemoryInfo_v2"));
    let total = match if_known(newer)? {
        Some(memory) => Some(memory.total),
        None => if_known(raw::memory_total_v1(nvml, device))?,
    };
    Ok(total.filter(|bytes| *bytes > 0))
}

fn compute_capability(device: &Device<'_>) -> Result<Option<ComputeCapability>, CallError> {
    let answer = device.cuda_compute_capability();
    let answer = if_known(answer.map_err(CallError::wrap("nvmlDeviceGetCudaComputeCapability")))?;
    Ok(answer.and_then(|cc| {
        Some(ComputeCapability {
            major: u32::try_from(cc.major).ok()?,
            minor: u32::try_from(cc.minor).ok()?,
        })
    }))
}

fn addressing_mode(number: u32) -> Option<AddressingMode> {
    match number {
        0 => Some(AddressingMode::None),
        1 => Some(AddressingMode::Hmm),
        2 => Some(AddressingMode::Ats),
        _ => None,
    }
}

/// The fabric that the GPU has joined; None while it has not, or failed to.
pub(crate) fn joined(info: &raw::FabricInfo) -> Option<Fabric> {
    if info.state != FABRIC_COMPLETED || info.status != 0 {
        return None;
    }
    let mut cluster_uuid = String::with_capacity(36);
    for (at, byte) in info.cluster_uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            cluster_uuid.push('-');
        }
        cluster_uuid.push_str(&format!("{byte:02x}"));
    }
    Some(Fabric { cluster_uuid, clique_id: info.clique_id })
}

/// Attributes that a GPU works without.
struct Extra<'a> {
    uuid: &'a GpuUuid,
}

impl Extra<'_> {
    /// None, with a warning, for a failed call; an error only if the GPU itself is gone.
    fn of<T>(&self, answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
        if let Err(error) = &answer
            && !error.code.is_absent()
        {
            warn!(gpu = %self.uuid, %error, "attribute left out");
        }
        if_possible(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabric_counts_only_when_joined() {
        let mut info = raw::FabricInfo {
            cluster_uuid: [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 0, 0, 0, 0, 0, 0, 9],
            clique_id: 32766,
            state: FABRIC_COMPLETED,
            status: 0,
        };
        let fabric = joined(&info).unwrap();
        assert_eq!(fabric.cluster_uuid, "01234567-89ab-cdef-0000-000000000009");
        assert_eq!(fabric.clique_id, 32766);
        info.state = 2;
        assert_eq!(joined(&info), None, "still joining");
        (info.state, info.status) = (FABRIC_COMPLETED, 999);
        assert_eq!(joined(&info), None, "failed to join");
    }
}
