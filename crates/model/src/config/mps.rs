//! `mpsConfig`: what is asked of an MPS control daemon, and how its memory limits fall on
//! the devices of a claim. Never runs or asks a daemon.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Quantity;

/// `mpsConfig`; a field that is not set is left to MPS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpsConfig {
    /// `defaultActiveThreadPercentage`, 0 to 100.
    pub default_active_thread_percentage: Option<u8>,
    /// `defaultPinnedDeviceMemoryLimit`, for each device without a limit of its own.
    pub default_pinned_device_memory_limit: Option<MemoryLimit>,
    /// `defaultPerDevicePinnedMemoryLimit`, by index or UUID.
    pub default_per_device_pinned_memory_limit: BTreeMap<MpsDevice, MemoryLimit>,
    /// `multiUser`: serve clients of several users. Needs compute capability 7.0.
    pub multi_user: bool,
}

/// A memory limit as MPS takes it: whole MiB, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemoryLimit(u64);

impl MemoryLimit {
    /// Rounds down to whole MiB; None for less than one.
    #[must_use]
    pub fn new(quantity: &Quantity) -> Option<Self> {
        let bytes = quantity.ceil().and_then(|bytes| u64::try_from(bytes).ok())?;
        (bytes >> 20 > 0).then_some(Self(bytes >> 20))
    }

    /// The limit in MiB.
    #[must_use]
    pub fn mebibytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MemoryLimit {
    /// As `set_default_device_pinned_mem_limit` takes it: `5120M`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.0)
    }
}

/// Which device of the claim a per-device limit means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MpsDevice {
    /// Its place among the claim's UUIDs in alphabetical order, from 0.
    Index(u32),
    /// Its UUID, `GPU-…` or `MIG-…`.
    Uuid(String),
}

impl MpsDevice {
    /// From a key of `defaultPerDevicePinnedMemoryLimit`; None where it is neither.
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        if key.starts_with("GPU-") || key.starts_with("MIG-") {
            return (key.len() <= 80).then(|| Self::Uuid(key.to_owned()));
        }
        let digits = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| key.parse().ok().map(Self::Index)).flatten()
    }
}

impl fmt::Display for MpsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => index.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

impl TryFrom<String> for MpsDevice {
    type Error = String;
    fn try_from(key: String) -> Result<Self, String> {
        Self::new(&key).ok_or_else(|| format!("{key:?} is neither an index nor a UUID"))
    }
}

impl From<MpsDevice> for String {
    fn from(device: MpsDevice) -> Self {
        device.to_string()
    }
}

/// A per-device limit for a device that the claim hasn't.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "mpsConfig.defaultPerDevicePinnedMemoryLimit: no device {device} among the {devices} of the \
     request: name an index below {devices} or a UUID of them"
)]
pub struct LimitError {
    /// The key that fits none.
    pub device: MpsDevice,
    /// How many devices there are.
    pub devices: usize,
}

/// The limits of an undecoded config for devices by an index that nobody with so many devices
/// has, `devices` being the most that the config can be for. Also of configs that have other
/// faults, so that all can be told at once.
#[must_use]
pub fn limits_beyond(parameters: &Value, devices: usize) -> Vec<LimitError> {
    let limits = &parameters["sharing"]["mpsConfig"]["defaultPerDevicePinnedMemoryLimit"];
    let keys = limits.as_object().into_iter().flat_map(serde_json::Map::keys);
    keys.filter_map(|key| match MpsDevice::new(key)? {
        MpsDevice::Index(index) if usize::try_from(index).is_ok_and(|at| at < devices) => None,
        device @ MpsDevice::Index(_) => Some(LimitError { device, devices }),
        MpsDevice::Uuid(_) => None,
    })
    .collect()
}

impl MpsConfig {
    /// The limit of each device that has one, by UUID. Indices count the UUIDs in
    /// alphabetical order, whatever order they are given in.
    ///
    /// # Errors
    /// A limit names a device that is not among `uuids`.
    pub fn limits<'a>(
        &self,
        uuids: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<&'a str, MemoryLimit>, LimitError> {
        let mut sorted: Vec<&str> = uuids.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut limits: BTreeMap<&str, MemoryLimit> = BTreeMap::new();
        if let Some(limit) = self.default_pinned_device_memory_limit {
            limits.extend(sorted.iter().map(|uuid| (*uuid, limit)));
        }
        for (device, limit) in &self.default_per_device_pinned_memory_limit {
            let found = match device {
                MpsDevice::Index(index) => {
                    usize::try_from(*index).ok().and_then(|index| sorted.get(index))
                }
                MpsDevice::Uuid(uuid) => sorted.iter().find(|known| *known == uuid),
            };
            let uuid = found
                .ok_or_else(|| LimitError { device: device.clone(), devices: sorted.len() })?;
            limits.insert(uuid, *limit);
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limit(text: &str) -> MemoryLimit {
        MemoryLimit::new(&text.parse().unwrap()).unwrap()
    }

    #[test]
    fn indices_beyond_the_devices_are_found_in_configs_that_cannot_be_decoded_too() {
        let limits = json!({"0": "1Gi", "1": "512Ki", "7": 3, "GPU-a": "1Gi", "x": "1Gi"});
        let parameters = json!({"sharing": {"mpsConfig": {
            "defaultActiveThreadPercentage": 150,
            "defaultPerDevicePinnedMemoryLimit": limits,
        }}});
        let found = |devices| {
            let found = limits_beyond(&parameters, devices);
            found.into_iter().map(|error| error.device.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(1), ["1", "7"]);
        assert_eq!(found(8), [""; 0]);
        for odd in [json!(null), json!([]), json!({"sharing": {"mpsConfig": 3}})] {
            assert_eq!(limits_beyond(&odd, 0), []);
        }
    }

    #[test]
    fn limits_are_whole_mebibytes() {
        assert_eq!(limit("5Gi").to_string(), "5120M");
        assert_eq!(limit("1.5Gi").mebibytes(), 1536);
        assert_eq!(limit("2000k").mebibytes(), 1, "1.9 MiB");
        for low in ["512Ki", "0", "-5Gi", "1M", "Gi"] {
            assert_eq!(MemoryLimit::new(&low.parse().unwrap()), None, "{low}");
        }
    }

    #[test]
    fn per_device_limits_win_over_the_default() {
        let config = MpsConfig {
            default_pinned_device_memory_limit: Some(limit("1Gi")),
            default_per_device_pinned_memory_limit: BTreeMap::from([
                (MpsDevice::Index(0), limit("2Gi")),
                (MpsDevice::Uuid("GPU-c".into()), limit("3Gi")),
            ]),
            ..MpsConfig::default()
        };
        let limits = config.limits(["GPU-c", "GPU-a", "GPU-b"]).unwrap();
        let shown: Vec<_> = limits.iter().map(|(uuid, limit)| format!("{uuid}={limit}")).collect();
        assert_eq!(shown, ["GPU-a=2048M", "GPU-b=1024M", "GPU-c=3072M"]);
        let error = config.limits(["GPU-a"]).unwrap_err();
        assert_eq!(error.device, MpsDevice::Uuid("GPU-c".into()));
        assert!(error.to_string().len() < 200, "{error}");
    }
}
