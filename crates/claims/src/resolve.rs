//! Which opaque config applies to which device. Class before claim, later over earlier, a
//! config that names the parent request covers its subrequests (KEP-4816; kubernetes
//! `structured` allocator). The incumbent drops that last kind silently.

use gpu_dra_model::DeviceKind;
use gpu_dra_model::config::{self, ConfigError, DeviceConfig};

use crate::allocation::{AllocatedDevice, Allocation, ConfigSource, OpaqueConfig};
use crate::refusal::Refusal;

/// The type of device that a config can fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceType {
    /// A whole GPU.
    Gpu,
    /// A MIG device, static or made on demand.
    Mig,
}

impl DeviceType {
    /// The type of this device.
    #[must_use]
    pub fn of(kind: &DeviceKind) -> Self {
        match kind {
            DeviceKind::Gpu { .. } | DeviceKind::Monitor { .. } => Self::Gpu,
            DeviceKind::StaticMig { .. } | DeviceKind::Partition { .. } => Self::Mig,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Mig => "mig",
        }
    }

    fn fits(self, config: &DeviceConfig) -> bool {
        match self {
            Self::Gpu => matches!(config, DeviceConfig::Gpu(_)),
            Self::Mig => matches!(config, DeviceConfig::Mig(_)),
        }
    }
}

/// A config in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// What it says.
    pub config: DeviceConfig,
    /// Position in `status.allocation.devices.config`.
    pub index: usize,
}

/// The config in force for `device`, or None where nobody asked for anything.
///
/// Every config that applies is decoded, also one that a later one overrides: a mistake
/// in it is its author's to know.
///
/// # Errors
/// A config that doesn't decode, or one that names the request of a device it doesn't fit.
pub fn config_for(
    allocation: &Allocation,
    device: &AllocatedDevice,
    device_type: DeviceType,
) -> Result<Option<Resolved>, Refusal> {
    let mut applying: Vec<_> =
        allocation.configs.iter().filter(|config| applies(config, device)).collect();
    // Stable: within one source the allocation's order stays.
    applying.sort_by_key(|config| config.source);

    let mut in_force = None;
    for entry in applying {
        let config = config::decode(&entry.parameters)
            .map_err(|error| bad_config(allocation, entry, error))?;
        if device_type.fits(&config) {
            in_force = Some(Resolved { config, index: entry.index });
        } else if !entry.requests.is_empty() {
            return Err(Refusal::WrongKind {
                claim: allocation.claim.clone(),
                index: entry.index,
                kind: config.kind(),
                device: device.device.clone(),
                device_type: device_type.as_str(),
            });
        }
    }
    Ok(in_force)
}

/// Refuses a config for passthrough wherever it stands: also where it fits no device, or names
/// requests that others serve. Passed over, its author would get a GPU that isn't passed
/// through. Only that of an alternative which the scheduler didn't choose is for nothing.
///
/// # Errors
/// The first such config; if it is invalid, what is wrong with it.
pub(crate) fn refuse_passthrough(allocation: &Allocation) -> Result<(), Refusal> {
    let is_chosen = |name: &String| allocation.devices.iter().any(|d| d.request.as_str() == name);
    for entry in &allocation.configs {
        let is_passthrough = entry.parameters.get("kind").is_some_and(|k| k == "VfioDeviceConfig");
        let is_for_nothing = config::are_alternatives(entry.requests.iter().map(String::as_str))
            && !entry.requests.iter().any(is_chosen);
        if !is_passthrough || is_for_nothing {
            continue;
        }
        let error = match config::decode(&entry.parameters) {
            Ok(config) => config.unserved(),
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            return Err(bad_config(allocation, entry, error));
        }
    }
    Ok(())
}

fn bad_config(allocation: &Allocation, entry: &OpaqueConfig, error: ConfigError) -> Refusal {
    Refusal::BadConfig {
        claim: allocation.claim.clone(),
        index: entry.index,
        source_name: match entry.source {
            ConfigSource::Class => "from class",
            ConfigSource::Claim => "from claim",
        },
        error: Box::new(error),
    }
}

fn applies(config: &OpaqueConfig, device: &AllocatedDevice) -> bool {
    config.requests.is_empty()
        || config
            .requests
            .iter()
            .any(|name| name == device.request.as_str() || name == device.request.base())
}
