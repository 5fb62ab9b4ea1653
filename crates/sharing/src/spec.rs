//! What a control daemon is to serve, made from a claim's `mpsConfig`. Values only: nothing
//! here looks at a GPU or runs anything.

use std::collections::BTreeMap;
use std::fmt;

use gpu_dra_model::config::{LimitError, MemoryLimit, MpsConfig};
use gpu_dra_model::{GpuUuid, MigUuid};
use serde::{Deserialize, Serialize};

/// A daemon on more devices than any node has is a mistake.
const MOST_DEVICES: usize = 64;

/// A daemon that can't be described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The name of a daemon.
    #[error(
        "{0:?} names no MPS daemon; want 1 to {max} of a-z 0-9 and inner hyphens",
        max = DaemonId::LONGEST
    )]
    Id(String),
    /// The UUID of a device.
    #[error("{0:?} is no device UUID; want GPU-… or MIG-… as NVML prints it")]
    Device(String),
    /// No devices, or too many.
    #[error("an MPS daemon serves 1 to {MOST_DEVICES} devices, not {0}")]
    Count(usize),
    /// A thread percentage above 100.
    #[error("defaultActiveThreadPercentage {0} is above 100")]
    Percentage(u8),
    /// A memory limit for a device that the daemon doesn't serve.
    #[error("memory limit for {0}, which the MPS daemon doesn't serve")]
    LimitOfOther(VisibleDevice),
    /// A memory limit of the claim that fits none of its devices.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// The name of a daemon, unique on the node: `<claim UID>-<hash>`, `gpu-<uuid>`, …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DaemonId(Box<str>);

impl DaemonId {
    /// Longest name in bytes, so that the daemon's socket path fits `sockaddr_un`.
    pub const LONGEST: usize = 48;

    /// From lower-case letters, digits and inner hyphens.
    ///
    /// # Errors
    /// Anything else.
    pub fn new(text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
        if ends && text.len() <= Self::LONGEST && text.bytes().all(|b| plain(b) || b == b'-') {
            Ok(Self(text.into()))
        } else {
            Err(SpecError::Id(text.chars().take(60).collect()))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for DaemonId {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::new(text)
    }
}

impl From<DaemonId> for String {
    fn from(id: DaemonId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for DaemonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A device as `CUDA_VISIBLE_DEVICES` names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum VisibleDevice {
    /// A whole GPU.
    Gpu(GpuUuid),
    /// A MIG device.
    Mig(MigUuid),
}

impl VisibleDevice {
    /// The UUID.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Gpu(uuid) => uuid.as_str(),
            Self::Mig(uuid) => uuid.as_str(),
        }
    }
}

impl TryFrom<String> for VisibleDevice {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        GpuUuid::new(text.as_str())
            .map(Self::Gpu)
            .or_else(|_| MigUuid::new(text.as_str()).map(Self::Mig))
            .map_err(|_| SpecError::Device(text.chars().take(60).collect()))
    }
}

impl From<VisibleDevice> for String {
    fn from(device: VisibleDevice) -> Self {
        device.as_str().to_owned()
    }
}

impl fmt::Display for VisibleDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one control daemon serves, and the limits that its clients get by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct DaemonSpec {
    devices: Vec<VisibleDevice>,
    active_thread_percentage: Option<u8>,
    memory_limits: BTreeMap<VisibleDevice, MemoryLimit>,
    multi_user: bool,
}

/// A spec as it is sent and kept. Strict: a limit that a reader doesn't know must not be lost.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    devices: Vec<VisibleDevice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    active_thread_percentage: Option<u8>,
    /// In MiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    memory_limits: BTreeMap<VisibleDevice, MemoryLimit>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    multi_user: bool,
}

impl DaemonSpec {
    /// What a claim's `mpsConfig` asks for on these devices. Their order doesn't matter.
    ///
    /// # Errors
    /// No device or too many, or a limit for a device that isn't among them.
    pub fn from_config(
        config: &MpsConfig,
        devices: impl IntoIterator<Item = VisibleDevice>,
    ) -> Result<Self, SpecError> {
        let devices: Vec<VisibleDevice> = devices.into_iter().collect();
        let limits = config.limits(devices.iter().map(VisibleDevice::as_str))?;
        let of = |device: &VisibleDevice| limits.get(device.as_str()).copied();
        let memory_limits =
            devices.iter().filter_map(|device| Some((device.clone(), of(device)?))).collect();
        Self::try_from(Written {
            devices,
            active_thread_percentage: config.default_active_thread_percentage,
            memory_limits,
            multi_user: config.multi_user,
        })
    }

    /// The devices in alphabetical order, each once: the clients' device numbers count them.
    #[must_use]
    pub fn devices(&self) -> &[VisibleDevice] {
        &self.devices
    }

    /// The share of a device's threads that a client gets by default, 0 to 100.
    #[must_use]
    pub fn active_thread_percentage(&self) -> Option<u8> {
        self.active_thread_percentage
    }

    /// How much memory a client may pin on a device by default.
    #[must_use]
    pub fn memory_limits(&self) -> &BTreeMap<VisibleDevice, MemoryLimit> {
        &self.memory_limits
    }

    /// One server serves clients of all users.
    #[must_use]
    pub fn multi_user(&self) -> bool {
        self.multi_user
    }
}

impl TryFrom<Written> for DaemonSpec {
    type Error = SpecError;
    fn try_from(mut written: Written) -> Result<Self, SpecError> {
        written.devices.sort();
        written.devices.dedup();
        let count = written.devices.len();
        if count == 0 || count > MOST_DEVICES {
            return Err(SpecError::Count(count));
        }
        if let Some(percentage) = written.active_thread_percentage.filter(|value| *value > 100) {
            return Err(SpecError::Percentage(percentage));
        }
        let other = |device: &&VisibleDevice| !written.devices.contains(device);
        if let Some(device) = written.memory_limits.keys().find(other) {
            return Err(SpecError::LimitOfOther(device.clone()));
        }
        Ok(Self {
            devices: written.devices,
            active_thread_percentage: written.active_thread_percentage,
            memory_limits: written.memory_limits,
            multi_user: written.multi_user,
        })
    }
}

impl From<DaemonSpec> for Written {
    fn from(spec: DaemonSpec) -> Self {
        Self {
            devices: spec.devices,
            active_thread_percentage: spec.active_thread_percentage,
            memory_limits: spec.memory_limits,
            multi_user: spec.multi_user,
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_dra_model::config::MpsDevice;

    use super::*;

    fn gpu(n: u32) -> VisibleDevice {
        format!("GPU-11111111-0000-0000-0000-{n:012x}").try_into().unwrap()
    }

    #[test]
    fn ids_can_not_leave_their_folder() {
        for id in ["0f6c1f3a-2b7e-4c55-9d1f-000000000001-0a1b2c3d", "a", "gpu-1"] {
            assert_eq!(DaemonId::new(id).unwrap().as_str(), id);
        }
        for id in ["", ".", "..", "a/b", "-a", "a-", "A", "a.json", &"a".repeat(49)] {
            assert!(DaemonId::new(id).is_err(), "{id}");
        }
    }

    #[test]
    fn a_config_becomes_a_spec() {
        let limit = |text: &str| MemoryLimit::new(&text.parse().unwrap()).unwrap();
        let config = MpsConfig {
            default_active_thread_percentage: Some(50),
            default_pinned_device_memory_limit: Some(limit("10Gi")),
            default_per_device_pinned_memory_limit: BTreeMap::from([(
                MpsDevice::Index(1),
                limit("5Gi"),
            )]),
            multi_user: true,
        };
        let spec = DaemonSpec::from_config(&config, [gpu(2), gpu(1), gpu(2)]).unwrap();
        assert_eq!(spec.devices(), [gpu(1), gpu(2)]);
        assert_eq!(
            spec.memory_limits().values().map(|limit| limit.mebibytes()).collect::<Vec<_>>(),
            [10240, 5120]
        );
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<DaemonSpec>(&text).unwrap(), spec);
        assert_eq!(DaemonSpec::from_config(&MpsConfig::default(), []), Err(SpecError::Count(0)));
    }

    #[test]
    fn a_spec_from_outside_is_checked() {
        let reject = |text: &str, part: &str| {
            let error = serde_json::from_str::<DaemonSpec>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        let uuid = gpu(1);
        let other = gpu(2);
        reject(r#"{"devices": []}"#, "1 to 64 devices");
        reject(r#"{"devices": ["GPU-1"]}"#, "no device UUID");
        reject(
            &format!(r#"{{"devices": ["{uuid}"], "activeThreadPercentage": 101}}"#),
            "above 100",
        );
        reject(&format!(r#"{{"devices": ["{uuid}"], "memoryLimits": {{"{other}": 1}}}}"#), "serve");
        reject(&format!(r#"{{"devices": ["{uuid}"], "computeLimit": 1}}"#), "unknown field");
    }
}
