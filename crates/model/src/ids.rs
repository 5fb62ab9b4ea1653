//! One newtype per kind of identifier, checked when made, so that a device name can
//! never be passed where a claim UID belongs. Formats are Kubernetes' (API validation),
//! NVML's or CDI's own. Nothing here looks anything up.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::shown;

/// A text that is no identifier of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value:?} is not valid: {rule}")]
pub struct IdError {
    /// What kind of identifier was expected.
    pub kind: &'static str,
    /// The text that was refused, shortened.
    pub value: String,
    /// The rule that it broke.
    pub rule: &'static str,
}

impl IdError {
    fn new(kind: &'static str, value: &str, rule: &'static str) -> Self {
        Self { kind, value: shown(value, 80), rule }
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path, $rule:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks the text and wraps it.
            ///
            /// # Errors
            /// The rule that the text breaks.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                if $check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(IdError::new($kind, text, $rule))
                }
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

id!(
    /// The UID of a ResourceClaim: lower-case RFC 4122 text. It names files, so the
    /// check also keeps path separators out.
    ClaimUid, "claim UID", is_uuid, "want lower-case 8-4-4-4-12 hex digits"
);
id!(
    /// The name of a device in its pool: a DNS-1123 label of at most 63 bytes.
    DeviceName, "device name", is_dns_label, "want a DNS label: a-z, 0-9 and '-', at most 63 bytes"
);
id!(
    /// The name of a pool: `/`-separated DNS-1123 subdomains, at most 253 bytes.
    PoolName, "pool name", is_pool_name, "want '/'-separated DNS subdomains, at most 253 bytes"
);
id!(
    /// The DRA driver's name: a DNS-1123 subdomain of at most 63 bytes.
    DriverName, "driver name", is_driver_name, "want a lower-case DNS subdomain of at most 63 bytes"
);
id!(
    /// The name of a Node: a DNS-1123 subdomain of at most 253 bytes.
    NodeName, "node name", is_dns_subdomain, "want a lower-case DNS subdomain of at most 253 bytes"
);
id!(
    /// A request as an allocation result names it: `request` or `request/subrequest`.
    RequestName, "request name", is_request_name, "want a DNS label, or two with '/' between"
);
id!(
    /// A GPU's UUID as NVML prints it: `GPU-` and 8-4-4-4-12 hex digits.
    GpuUuid, "GPU UUID", is_gpu_uuid, "want GPU- and 8-4-4-4-12 hex digits"
);
id!(
    /// A MIG device's UUID as NVML prints it: `MIG-` and 8-4-4-4-12 hex digits (driver R470
    /// and newer), or `MIG-GPU-<uuid>/<GPU instance>/<compute instance>` before.
    MigUuid, "MIG device UUID", is_mig_uuid, "want MIG- and 8-4-4-4-12 hex digits"
);
id!(
    /// A PCI address in the form of sysfs and of `resource.kubernetes.io/pciBusID`:
    /// `dddd:bb:dd.f`, lower-case hex. Make it from NVML's form with [`PciBusId::from_nvml`].
    PciBusId, "PCI address", is_pci_bus_id, "want dddd:bb:dd.f in lower-case hex"
);
id!(
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`).
    BootId, "boot id", is_uuid, "want lower-case 8-4-4-4-12 hex digits"
);
id!(
    /// A fully qualified CDI device: `vendor/class=name` (CDI specification, "Device names").
    CdiDeviceId, "CDI device", is_cdi_device, "want vendor/class=name"
);

/// The GPU's minor number: it names `/dev/nvidia<minor>` and the files in
/// `/proc/driver/nvidia/capabilities/gpu<minor>`. May change over a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Minor(pub u32);

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A GPU instance's number on its GPU (`nvmlGpuInstanceInfo_t.id`): the `gi<N>` of the
/// driver's proc files. The driver derives it from the placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuInstanceId(pub u32);

impl fmt::Display for GpuInstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A compute instance's number in its GPU instance (`nvmlComputeInstanceInfo_t.id`): the
/// `ci<N>` of the driver's proc files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ComputeInstanceId(pub u32);

impl fmt::Display for ComputeInstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which ResourceClaim is meant: its UID, and the name to say to people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The claim's UID, the only part that identifies it over time.
    pub uid: ClaimUid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl PciBusId {
    /// From NVML's form, `00000000:3B:00.0`: the domain has eight digits and the hex is
    /// upper case (`nvmlPciInfo_t.busId`).
    ///
    /// # Errors
    /// When the text is no PCI address, or its domain doesn't fit four digits.
    pub fn from_nvml(text: &str) -> Result<Self, IdError> {
        let lower = text.trim().to_ascii_lowercase();
        let short = match lower.split_once(':') {
            Some((domain, _)) if domain.len() == 8 => lower.strip_prefix("0000").unwrap_or(&lower),
            _ => &lower,
        };
        Self::new(short)
    }
}

impl RequestName {
    /// The name of the base request: what stands before the `/` of a subrequest.
    /// Containers and the kubelet name this one.
    #[must_use]
    pub fn base(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(base, _)| base)
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|&b| inner(b) || b == b'-')
        && bytes.first().is_some_and(|&b| inner(b))
        && bytes.last().is_some_and(|&b| inner(b))
}

fn is_dns_subdomain(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.split('.').all(is_dns_label)
}

fn is_driver_name(text: &str) -> bool {
    text.len() <= 63 && is_dns_subdomain(text)
}

fn is_pool_name(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.split('/').all(is_dns_subdomain)
}

fn is_request_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((request, sub)) => is_dns_label(request) && is_dns_label(sub),
        None => is_dns_label(text),
    }
}

fn is_uuid(text: &str) -> bool {
    uuid_shape(text, |b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_gpu_uuid(text: &str) -> bool {
    text.strip_prefix("GPU-").is_some_and(|rest| uuid_shape(rest, |b| b.is_ascii_hexdigit()))
}

fn is_mig_uuid(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_hexdigit();
    let Some(rest) = text.strip_prefix("MIG-") else { return false };
    if uuid_shape(rest, hex) {
        return true;
    }
    let mut parts = rest.split('/');
    let number = |part: Option<&str>| {
        part.is_some_and(|part| part.parse::<u8>().is_ok_and(|n| n.to_string() == part))
    };
    parts.next().is_some_and(is_gpu_uuid)
        && number(parts.next())
        && number(parts.next())
        && parts.next().is_none()
}

fn uuid_shape(text: &str, digit: impl Fn(u8) -> bool) -> bool {
    let mut groups = text.split('-');
    [8, 4, 4, 4, 12].into_iter().all(|length| {
        groups.next().is_some_and(|group| group.len() == length && group.bytes().all(&digit))
    }) && groups.next().is_none()
}

fn is_pci_bus_id(text: &str) -> bool {
    let hex = |part: &str, length: usize| {
        part.len() == length
            && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let Some((domain, rest)) = text.split_once(':') else { return false };
    let Some((bus, rest)) = rest.split_once(':') else { return false };
    let Some((device, function)) = rest.split_once('.') else { return false };
    hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1)
}

fn is_cdi_device(text: &str) -> bool {
    let Some((kind, name)) = text.split_once('=') else { return false };
    let Some((vendor, class)) = kind.split_once('/') else { return false };
    let part = |part: &str, starts: fn(u8) -> bool, extra: &[u8]| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|&b| starts(b))
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || extra.contains(b))
    };
    let alphabetic = |b: u8| b.is_ascii_alphabetic();
    part(vendor, alphabetic, b"_-.")
        && part(class, alphabetic, b"_-.")
        && part(name, |b| b.is_ascii_alphanumeric(), b"_-.:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvml_pci_form_becomes_sysfs_form() {
        for (nvml, sysfs) in [
            ("00000000:3B:00.0", "0000:3b:00.0"),
            ("0000000F:01:00.0", "000f:01:00.0"),
            ("0000:af:00.0", "0000:af:00.0"),
        ] {
            assert_eq!(PciBusId::from_nvml(nvml).unwrap().as_str(), sysfs);
        }
        assert!(PciBusId::from_nvml("00010000:3B:00.0").is_err(), "domain needs five digits");
        assert!(PciBusId::from_nvml("garbage").is_err());
    }

    #[test]
    fn each_kind_refuses_what_the_api_would() {
        assert!(DeviceName::new("gpu-0").is_ok());
        for bad in ["", "gpu_0", "GPU-0", "-a", "a-", "gpu-0-mig-1g.5gb", &"a".repeat(64)] {
            assert!(DeviceName::new(bad).is_err(), "{bad}");
        }
        assert!(ClaimUid::new("0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01").is_ok());
        for bad in ["", "../../etc/passwd", "0F6C1F3A-2b7e-4c55-9d1f-6a0d6b1e4c01", "0f6c1f3a"] {
            assert!(ClaimUid::new(bad).is_err(), "{bad}");
        }
        assert!(PoolName::new("node-1.example/gpu").is_ok());
        assert!(PoolName::new("a//b").is_err());
        assert!(RequestName::new("gpu/h100").is_ok());
        assert_eq!(RequestName::new("gpu/h100").unwrap().base(), "gpu");
        assert!(GpuUuid::new("GPU-11111111-0000-0000-0000-000000000000").is_ok());
        assert!(GpuUuid::new("MIG-11111111-0000-0000-0000-000000000000").is_err());
        assert!(MigUuid::new("MIG-11111111-0000-0000-0000-000000000000").is_ok());
        assert!(MigUuid::new("MIG-GPU-11111111-0000-0000-0000-000000000000/1/0").is_ok());
        assert!(MigUuid::new("MIG-GPU-11111111-0000-0000-0000-000000000000/1/../0").is_err());
        assert!(CdiDeviceId::new("k8s.gpu.nvidia.com/claim=0f6c-gpu-1").is_ok());
        assert!(CdiDeviceId::new("claim=0f6c").is_err());
        assert!(DriverName::new("gpu.nvidia.com").is_ok());
    }

    #[test]
    fn a_refusal_is_short_whatever_was_given() {
        for bad in ["x".repeat(500), "\u{b}".repeat(500), "\u{10ffff}".repeat(80)] {
            let error = PciBusId::new(&bad).unwrap_err().to_string();
            assert!(error.len() < 200, "{error}");
        }
    }

    #[test]
    fn ids_survive_json() {
        let uid = ClaimUid::new("0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01").unwrap();
        let json = serde_json::to_string(&uid).unwrap();
        assert_eq!(serde_json::from_str::<ClaimUid>(&json).unwrap(), uid);
        assert!(serde_json::from_str::<ClaimUid>("\"x\"").is_err());
    }
}
