//! What one node has: the result of probing NVML and sysfs, as plain values.
//!
//! `None` always means "the hardware or driver doesn't say", never "we failed to ask":
//! a GPU that could not be asked is a [`BrokenGpu`]. Nothing here decides what is published.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{ComputeInstanceId, GpuInstanceId, GpuUuid, MigUuid, Minor, PciBusId};

/// Everything found on the node in one pass, GPUs in the order of their PCI addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Versions of the loaded driver.
    pub driver: DriverVersions,
    /// The GPUs that answered.
    pub gpus: Vec<Gpu>,
    /// The GPUs that are there but could not be asked; they never hide the others.
    pub broken: Vec<BrokenGpu>,
}

impl Inventory {
    /// The GPU with this UUID.
    #[must_use]
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }
}

/// Versions as the driver reports them, not yet normalised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverVersions {
    /// `nvmlSystemGetDriverVersion`, e.g. `570.124.06`.
    pub driver: String,
    /// `nvmlSystemGetCudaDriverVersion_v2`: 12040 is CUDA 12.4.
    pub cuda: Option<CudaVersion>,
    /// `nvmlSystemGetNVMLVersion`, e.g. `12.570.124.06`.
    pub nvml: Option<String>,
}

/// The newest CUDA version that the driver serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CudaVersion {
    /// The 12 of 12.4.
    pub major: u32,
    /// The 4 of 12.4.
    pub minor: u32,
}

impl CudaVersion {
    /// From NVML's integer, `1000 * major + 10 * minor`.
    #[must_use]
    pub fn from_nvml(number: u32) -> Self {
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One whole GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// `nvmlDeviceGetUUID`: the physical identity, stable over reboots.
    pub uuid: GpuUuid,
    /// `nvmlDeviceGetMinorNumber`: names the device node; may change over a reboot.
    pub minor: Minor,
    /// The NVML index of this pass. For people only: it shifts when a GPU is lost.
    pub index: u32,
    /// `nvmlDeviceGetPciInfo_v3`, in sysfs form.
    pub pci_bus_id: PciBusId,
    /// `nvmlDeviceGetName`, e.g. `NVIDIA H100 80GB HBM3`.
    pub product_name: String,
    /// `nvmlDeviceGetBrand` in the incumbent's spelling (`Nvidia`, `Tesla`, `NvidiaRTX`, …).
    pub brand: Option<String>,
    /// `nvmlDeviceGetArchitecture` in the incumbent's spelling (`Hopper`, `Ada Lovelace`, …).
    pub architecture: Option<String>,
    /// `nvmlDeviceGetCudaComputeCapability`.
    pub compute_capability: Option<ComputeCapability>,
    /// `nvmlDeviceGetMemoryInfo` total, in bytes. None on unified memory (GB10).
    pub memory_bytes: Option<u64>,
    /// `nvmlDeviceGetMemoryBusWidth`, in bits.
    pub memory_bus_width_bits: Option<u32>,
    /// The PCIe root complex, `pciDDDD:BB`, by the rule of `resource.kubernetes.io/pcieRoot`.
    pub pcie_root: Option<String>,
    /// `numa_node` of the PCI device in sysfs; None where it says -1.
    pub numa_node: Option<u32>,
    /// `nvmlDeviceGetAddressingMode`.
    pub addressing_mode: Option<AddressingMode>,
    /// `nvmlDeviceGetModuleId`: the position on an SXM board, from 1.
    pub module_id: Option<u32>,
    /// `nvmlDeviceGetGpuFabricInfoV`, once the fabric has been probed.
    pub fabric: Option<Fabric>,
    /// `nvmlDeviceGetVirtualizationMode` says that this is a vGPU guest.
    pub vgpu_guest: bool,
    /// Multi-Instance GPU: what it can and how it is set.
    pub mig: Mig,
}

/// CUDA compute capability, e.g. 9.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ComputeCapability {
    /// The 9 of 9.0.
    pub major: u32,
    /// The 0 of 9.0.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How the GPU addresses system memory (`nvmlDeviceAddressingModeType_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressingMode {
    /// Neither of the others.
    None,
    /// Heterogeneous Memory Management, in software.
    #[serde(rename = "HMM")]
    Hmm,
    /// Address Translation Services, in hardware.
    #[serde(rename = "ATS")]
    Ats,
}

impl AddressingMode {
    /// The incumbent's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Hmm => "HMM",
            Self::Ats => "ATS",
        }
    }
}

/// The NVLink fabric that the GPU has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fabric {
    /// UUID of the fabric's cluster; all zero within one node's NVSwitches.
    pub cluster_uuid: String,
    /// GPUs with the same cluster and clique reach each other over NVLink.
    pub clique_id: u32,
}

/// What the GPU says about MIG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "support")]
pub enum Mig {
    /// `nvmlDeviceGetMigMode` answers NOT_SUPPORTED.
    Unsupported,
    /// The GPU can be partitioned.
    Supported {
        /// The mode in force.
        current: MigMode,
        /// The mode after the next reset; differs from `current` while a reset is due.
        pending: MigMode,
        /// GPU instance profiles, by id; readable also while the mode is off.
        profiles: Vec<MigProfile>,
        /// What exists now, by id; empty while the mode is off.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        instances: Vec<GpuInstance>,
    },
}

/// A part of a GPU with memory, multiprocessors and engines of its own
/// (`nvmlGpuInstanceInfo_t`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuInstance {
    /// The driver's number for it; it depends on the placement, not on the order of creation.
    pub id: GpuInstanceId,
    /// Its profile, an id of [`MigProfile`].
    pub profile_id: u32,
    /// Where it lies.
    pub placement: Placement,
    /// What CUDA runs on, by id. None at all makes the instance unusable.
    pub compute_instances: Vec<ComputeInstance>,
}

/// A part of a GPU instance's multiprocessors: the MIG device that programs see
/// (`nvmlComputeInstanceInfo_t` and `nvmlDeviceGetAttributes_v2` of its MIG handle).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeInstance {
    /// Its number in the GPU instance, from 0.
    pub id: ComputeInstanceId,
    /// The UUID of the MIG device.
    pub uuid: MigUuid,
    /// Compute slices: the 1 of `1c.3g.40gb`; as many as the GPU instance has in `3g.40gb`.
    pub slices: u32,
    /// Streaming multiprocessors of its own.
    pub multiprocessors: u32,
}

/// MIG mode of a GPU (`NVML_DEVICE_MIG_ENABLE` / `DISABLE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigMode {
    /// Off: the GPU is used whole.
    Disabled,
    /// On: only its instances run CUDA.
    Enabled,
}

/// One GPU instance profile (`nvmlGpuInstanceProfileInfo_t`) with its placements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigProfile {
    /// The GPU instance profile's id (19 for 1g on an eight-slice GPU), not NVML's enum index.
    pub id: u32,
    /// The driver's name for it, e.g. `1g.10gb+me`.
    pub name: String,
    /// Compute slices: the 1 of 1g.
    pub slices: u32,
    /// How many such instances fit an empty GPU.
    pub max_instances: u32,
    /// Memory of one instance, in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG engines.
    pub jpeg_engines: u32,
    /// Optical flow accelerators.
    pub ofa_engines: u32,
    /// Where an instance may lie, in memory slices.
    pub placements: Vec<Placement>,
}

/// A run of memory slices (`nvmlGpuInstancePlacement_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placement {
    /// The first memory slice, from 0.
    pub start: u32,
    /// How many slices.
    pub size: u32,
}

impl Placement {
    /// The memory slices that it takes.
    #[must_use]
    pub fn slices(self) -> std::ops::Range<u32> {
        self.start..self.start.saturating_add(self.size)
    }

    /// Whether the two have a memory slice in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.slices().start < other.slices().end && other.slices().start < self.slices().end
    }
}

/// A GPU that is there but did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokenGpu {
    /// The NVML index that was asked.
    pub index: u32,
    /// Its UUID, if that much was answered.
    pub uuid: Option<GpuUuid>,
    /// Its PCI address, if known.
    pub pci_bus_id: Option<PciBusId>,
    /// What NVML said, for people.
    pub reason: String,
    /// It fell off the bus (`NVML_ERROR_GPU_IS_LOST`).
    pub lost: bool,
}
