//! The opaque configuration kinds of `resource.nvidia.com/v1beta1`, as the incumbent has
//! them: what a class or claim may say about how its devices are set up.
//!
//! Decoding is strict (an unknown field is an error with the nearest right name) and yields
//! values that are complete and in range, so that nothing is left to check but what depends
//! on the devices. Admission, lint and the node agent all use this, and say its sentences.
//! Nothing here looks at a device, and no input makes it panic.

use serde::{Deserialize, Serialize};

mod decode;
mod error;
mod mps;
mod nearest;
#[cfg(test)]
mod tests;

pub use decode::{MAX_CONFIG_BYTES, decode, decode_bytes, problems};
pub use error::ConfigError;
pub use mps::{LimitError, MemoryLimit, MpsConfig, MpsDevice, limits_beyond};
pub use nearest::nearest;

/// The only version served.
pub const API_VERSION: &str = "resource.nvidia.com/v1beta1";

/// One decoded, complete and valid configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum DeviceConfig {
    /// For whole GPUs.
    #[serde(rename = "GpuConfig")]
    Gpu(GpuConfig),
    /// For MIG devices.
    #[serde(rename = "MigDeviceConfig")]
    Mig(MigDeviceConfig),
    /// For GPUs that are passed through to a virtual machine.
    #[serde(rename = "VfioDeviceConfig")]
    Vfio(VfioDeviceConfig),
}

impl DeviceConfig {
    /// The kind as written in a manifest.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Gpu(_) => "GpuConfig",
            Self::Mig(_) => "MigDeviceConfig",
            Self::Vfio(_) => "VfioDeviceConfig",
        }
    }

    /// Why what a valid config asks can't be had of this driver yet, if it can't.
    #[must_use]
    pub fn unserved(&self) -> Option<ConfigError> {
        matches!(self, Self::Vfio(_)).then_some(ConfigError::Passthrough)
    }
}

/// Whether a config that names these requests may turn out to be for nothing: each is an
/// alternative, `request/subrequest`, of which the scheduler chooses one (KEP-4816). A config
/// that names none is for all.
pub fn are_alternatives<'a>(requests: impl IntoIterator<Item = &'a str>) -> bool {
    let mut requests = requests.into_iter().peekable();
    requests.peek().is_some() && requests.all(|name| name.contains('/'))
}

/// `GpuConfig`. Without sharing the GPU's settings are not touched at all: setting a
/// default time-slice breaks GPUs older than Volta.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuConfig {
    /// How processes share the GPU; None leaves it as it is.
    pub sharing: Option<Sharing>,
}

/// How the processes of a claim share a whole GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy")]
pub enum Sharing {
    /// The driver's time-slicing, with this slice.
    TimeSlicing {
        /// `timeSlicingConfig.interval`; Default where nothing is said.
        interval: Interval,
    },
    /// The Multi-Process Service.
    #[serde(rename = "MPS")]
    Mps(MpsConfig),
}

/// `timeSlicingConfig.interval`: classes of the driver, not durations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interval {
    /// What the driver starts with.
    #[default]
    Default,
    /// The shortest.
    Short,
    /// Between the two.
    Medium,
    /// The longest.
    Long,
}

impl Interval {
    /// The argument of `nvidia-smi compute-policy --set-timeslice`.
    #[must_use]
    pub fn timeslice_argument(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Short => 1,
            Self::Medium => 2,
            Self::Long => 3,
        }
    }
}

/// `MigDeviceConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigDeviceConfig {
    /// How processes share the MIG device; None leaves it as it is.
    pub sharing: Option<MigSharing>,
}

/// How the processes of a claim share a MIG device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy")]
pub enum MigSharing {
    /// Accepted, and does nothing: the slice is a setting of whole GPUs.
    TimeSlicing,
    /// The Multi-Process Service.
    #[serde(rename = "MPS")]
    Mps(MpsConfig),
}

/// `VfioDeviceConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfioDeviceConfig {
    /// Which IOMMU interface the virtual machine gets (`iommu.backendPolicy`).
    pub backend_policy: IommuBackendPolicy,
    /// Whether the container also gets the API device, `/dev/vfio/vfio` or `/dev/iommu`
    /// (`iommu.enableAPIDevice`).
    pub enable_api_device: bool,
}

/// `iommu.backendPolicy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IommuBackendPolicy {
    /// VFIO groups and containers.
    #[default]
    LegacyOnly,
    /// iommufd where the kernel has it.
    #[serde(rename = "PreferIommuFD")]
    PreferIommuFd,
}
