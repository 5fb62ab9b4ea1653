//! The GPU models that can be simulated: data files, read once.
//!
//! A number that no public capture of real hardware shows stands in the file's `inferred`
//! list (JSON pointers into the type). Nothing may be invented without standing there.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::mig_table::MigTable;

/// One GPU model as NVML describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeType {
    /// `nvmlDeviceGetName`.
    pub name: String,
    /// Other spellings on the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// `nvmlBrandType_t`: 14 is NVIDIA, 13 NVIDIA RTX.
    pub brand: u32,
    /// `nvmlDeviceGetArchitecture`.
    pub architecture: Architecture,
    /// `nvmlDeviceGetCudaComputeCapability`.
    pub compute_capability: ComputeCapability,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Frame buffer. None on unified memory: NVML answers NOT_SUPPORTED.
    pub memory: Option<Memory>,
    /// Size of PCI BAR 1 in MiB.
    pub bar1_mib: Option<u64>,
    /// `nvmlDeviceGetMemoryBusWidth`, in bits.
    pub memory_bus_width_bits: Option<u32>,
    /// PCI ids and link.
    pub pci: PciIds,
    /// `nvmlDeviceGetVbiosVersion`.
    pub vbios: Option<String>,
    /// `nvmlDeviceGetBoardPartNumber`.
    pub part_number: Option<String>,
    /// Power limits.
    pub power: Option<Power>,
    /// `nvmlDeviceGetAddressingMode`; None answers NOT_SUPPORTED.
    pub addressing: Option<Addressing>,
    /// `nvmlDeviceGetC2cModeInfoV`; None answers NOT_SUPPORTED.
    pub c2c: Option<bool>,
    /// Whether it has ECC memory.
    pub ecc: bool,
    /// Banks of the row remapper; None answers NOT_SUPPORTED.
    pub remap_banks: Option<u32>,
    /// Whether bad pages are retired (before Ampere).
    pub page_retirement: bool,
    /// How GPUs of this type sit in a machine.
    pub board: Board,
    /// How they are joined.
    pub fabric: FabricKind,
    /// NVLink links.
    pub nvlinks: u32,
    /// Whether the time-slice interval can be set.
    pub time_slice: bool,
    /// MIG; None answers NOT_SUPPORTED.
    pub mig: Option<MigTable>,
    /// JSON pointers to the numbers above that no capture of real hardware backs.
    pub inferred: Vec<String>,
}

/// `nvmlDeviceArchitecture_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Architecture {
    /// Compute capability 6.
    Pascal,
    /// 7.5.
    Turing,
    /// 8.0 and 8.6.
    Ampere,
    /// 8.9.
    Ada,
    /// 9.0.
    Hopper,
    /// 10 and 12.
    Blackwell,
}

impl Architecture {
    /// NVML's number.
    #[must_use]
    pub fn nvml(self) -> u32 {
        match self {
            Self::Pascal => 4,
            Self::Turing => 6,
            Self::Ampere => 7,
            Self::Ada => 8,
            Self::Hopper => 9,
            Self::Blackwell => 10,
        }
    }

    /// As nvidia-smi prints it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pascal => "Pascal",
            Self::Turing => "Turing",
            Self::Ampere => "Ampere",
            Self::Ada => "Ada Lovelace",
            Self::Hopper => "Hopper",
            Self::Blackwell => "Blackwell",
        }
    }
}

/// CUDA compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeCapability {
    /// The 9 of 9.0.
    pub major: i32,
    /// The 0 of 9.0.
    pub minor: i32,
}

/// Frame buffer sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    /// All of it, in MiB.
    pub total_mib: u64,
    /// What the driver keeps for itself, in MiB.
    pub reserved_mib: u64,
}

/// PCI ids as hexadecimal text, and the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciIds {
    /// Device id, four hex digits; the vendor is always 10DE.
    pub device: Hex,
    /// Subsystem device id, four hex digits.
    pub subsystem: Hex,
    /// Class code, six hex digits.
    pub class: Hex,
    /// PCIe generation.
    pub generation: u32,
    /// PCIe lanes.
    pub width: u32,
}

/// A number written as hexadecimal text, as PCI ids are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex(pub u32);

impl TryFrom<String> for Hex {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u32::from_str_radix(&text, 16).map(Self)
    }
}

impl From<Hex> for String {
    fn from(number: Hex) -> Self {
        format!("{:04X}", number.0)
    }
}

/// Power limits in watts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Power {
    /// Limit after start.
    pub default_w: u32,
    /// Lowest limit that can be set.
    pub min_w: u32,
    /// Highest limit that can be set.
    pub max_w: u32,
}

/// `nvmlDeviceAddressingModeType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Addressing {
    /// Neither.
    None,
    /// Heterogeneous memory management.
    Hmm,
    /// Address translation services.
    Ats,
}

impl Addressing {
    /// NVML's number.
    #[must_use]
    pub fn nvml(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Hmm => 1,
            Self::Ats => 2,
        }
    }
}

/// How GPUs of a type sit in a machine: decides PCI addresses, sockets and module ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Board {
    /// A card in a slot.
    Pcie,
    /// SXM4 baseboard: pairs of GPUs behind switches, minors in another order than PCI.
    HgxA100,
    /// SXM5 and SXM6 baseboard: pairs of GPUs behind switches.
    Hgx,
    /// Grace superchip tray: a PCI domain for each GPU, two GPUs for each CPU.
    Grace,
    /// DGX Spark: one GPU in domain 000F, no NUMA information.
    Spark,
}

/// How GPUs of a type are joined, which decides what the fabric calls answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FabricKind {
    /// No fabric: the calls answer NOT_SUPPORTED.
    None,
    /// NVSwitch inside one machine: completed, clique 0, all-zero cluster.
    Nvswitch,
    /// A multi-node NVLink rack: a clique and a cluster UUID.
    Nvl72,
}

macro_rules! catalogue {
    ($($key:literal),* $(,)?) => {
        [$(($key, include_str!(concat!("../data/", $key, ".yaml")))),*]
    };
}

const FILES: [(&str, &str); 15] = catalogue![
    "p4",
    "t4",
    "l4",
    "l40s",
    "a10",
    "a30",
    "a100-40",
    "a100-80",
    "h100-80",
    "h100-pcie",
    "h200",
    "b200",
    "gb200",
    "gb10",
    "rtx-pro-6000",
];

impl NodeType {
    /// Every type by its name on the command line.
    #[must_use]
    pub fn all() -> &'static BTreeMap<&'static str, Self> {
        static ALL: OnceLock<BTreeMap<&'static str, NodeType>> = OnceLock::new();
        // The files are part of the build: one that doesn't parse is left out here and
        // fails the test below.
        ALL.get_or_init(|| {
            FILES
                .iter()
                .filter_map(|(key, text)| Some((*key, serde_saphyr::from_str(text).ok()?)))
                .collect()
        })
    }

    /// The type of that name or alias, whatever its case.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::find(name).map(|(_, node_type)| node_type)
    }

    /// The type of that name or alias with its own name.
    #[must_use]
    pub fn find(name: &str) -> Option<(&'static str, &'static Self)> {
        let wanted = name.to_ascii_lowercase();
        Self::all()
            .iter()
            .find(|(key, node_type)| **key == wanted || node_type.aliases.contains(&wanted))
            .map(|(key, node_type)| (*key, node_type))
    }

    /// Whether the value at a JSON pointer is one that no capture backs.
    #[must_use]
    pub fn is_inferred(&self, pointer: &str) -> bool {
        self.inferred.iter().any(|listed| listed == pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_parses() {
        for (key, text) in FILES {
            let parsed: Result<NodeType, _> = serde_saphyr::from_str(text);
            assert!(parsed.is_ok(), "{key}: {:?}", parsed.err());
        }
        assert_eq!(NodeType::all().len(), FILES.len());
    }

    #[test]
    fn what_is_listed_as_inferred_is_there() {
        for (key, node_type) in NodeType::all() {
            let value = serde_json::to_value(node_type).unwrap();
            for pointer in &node_type.inferred {
                let found = value.pointer(pointer);
                assert!(found.is_some(), "{key}: {pointer} is not in the data");
            }
        }
    }

    #[test]
    fn what_nobody_has_seen_is_listed_as_inferred() {
        let unknown = [
            ("b200", 9, ["multiprocessors", "memoryMib", "starts"]),
            ("b200", 5, ["multiprocessors", "memoryMib", "starts"]),
            ("b200", 0, ["multiprocessors", "memoryMib", "starts"]),
            ("gb200", 9, ["multiprocessors", "memoryMib", "copyEngines"]),
            ("gb200", 5, ["multiprocessors", "memoryMib", "copyEngines"]),
            ("gb200", 0, ["multiprocessors", "memoryMib", "copyEngines"]),
        ];
        for (key, profile, fields) in unknown {
            for field in fields {
                let pointer = format!("/mig/profiles/{profile}/{field}");
                assert!(NodeType::named(key).unwrap().is_inferred(&pointer), "{key} {pointer}");
            }
        }
        for (key, node_type) in NodeType::all() {
            let width = node_type.memory_bus_width_bits.is_none();
            assert!(width || node_type.is_inferred("/memoryBusWidthBits"), "{key}");
        }
        assert!(NodeType::named("b200").unwrap().is_inferred("/multiprocessors"));
        assert!(NodeType::named("a30").unwrap().is_inferred("/mig/profiles/6/starts"));
        assert!(!NodeType::named("h100").unwrap().is_inferred("/mig/profiles/9/multiprocessors"));
    }

    #[test]
    fn names_and_aliases_ignore_case() {
        assert_eq!(NodeType::find("H100").unwrap().0, "h100-80");
        assert_eq!(NodeType::find("GB200").unwrap().0, "gb200");
        assert!(NodeType::find("h1000").is_none());
    }

    /// The naming rule that both peers use must give the names that real drivers print.
    #[test]
    fn profile_names_follow_from_the_sizes() {
        for (key, node_type) in NodeType::all() {
            let (Some(table), Some(memory)) = (&node_type.mig, node_type.memory) else { continue };
            let total = memory.total_mib as f64;
            for profile in table.profiles.values() {
                let eighths = (profile.memory_mib as f64 / total * 8.0).ceil() / 8.0;
                let gb = (eighths * (total / 1024.0).ceil()).round();
                let plain = profile.name.split(['+', '-']).next().unwrap();
                assert_eq!(plain, format!("{}g.{gb}gb", profile.slices), "{key}");
            }
        }
    }
}
