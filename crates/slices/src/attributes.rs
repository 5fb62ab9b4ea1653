//! The attributes of a whole GPU, in one table: name, type, meaning, where it comes from
//! and what stands there when it isn't known.
//!
//! Every GPU on every node carries the same keys in the driver's own domain, because a
//! selector that reads a missing one stops the pod on all nodes. Standard attributes are
//! left out where unknown, as their contract says. Nothing here guesses.

use std::collections::BTreeMap;

use gpu_dra_model::inventory::DriverVersions;
use gpu_dra_model::{Gpu, version};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

use crate::note::Note;

/// Longest string or version value, in bytes (`DeviceAttribute.string`, `.version`).
pub(crate) const MAX_VALUE_BYTES: usize = 64;

/// Most attributes and capacities of one device together (`Device.attributes`).
pub(crate) const MAX_KEYS: usize = 32;

/// Whether the GPU is published once more for those who only look, which the layout decides.
pub(crate) const HAS_MONITOR: &str = "hasMonitor";

/// One row of the table.
#[derive(Debug)]
pub struct AttributeSpec {
    /// The key; without `/` it lies in the driver's own domain.
    pub key: &'static str,
    /// Its type in the API, and what stands there when the value isn't known.
    pub unknown: Unknown,
    /// What it says, for people.
    pub meaning: &'static str,
    value: fn(&Gpu, &DriverVersions) -> Option<Value>,
}

/// What is published when the hardware or the driver doesn't say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// Nothing: an attribute of this type is left out (standard domain only).
    LeftOut(Kind),
    /// This string.
    Text(&'static str),
    /// This version.
    Version(&'static str),
    /// This number.
    Int(i64),
    /// This truth.
    Bool(bool),
    /// The GPU's own UUID, which no other GPU has.
    OwnUuid,
}

/// The type of an attribute in the API (`DeviceAttribute`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `string`.
    String,
    /// `version`, strict SemVer.
    Version,
    /// `int`.
    Int,
    /// `bool`.
    Bool,
}

impl Kind {
    /// As the API's field is called.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Version => "version",
            Self::Int => "int",
            Self::Bool => "bool",
        }
    }
}

enum Value {
    Text(String),
    Version(String),
    Int(i64),
}

fn text(value: impl Into<String>) -> Option<Value> {
    Some(value.into()).filter(|value| !value.is_empty()).map(Value::Text)
}

fn version(value: impl ToString) -> Option<Value> {
    Some(value.to_string()).filter(|value| !value.is_empty()).map(Value::Version)
}

fn int(value: impl Into<i64>) -> Option<Value> {
    Some(Value::Int(value.into()))
}

/// All attributes of a whole GPU, the most important first. Where a device would have more
/// than 32 attributes and capacities, the last rows are left off first, and from all
/// devices of the pool.
pub const WHOLE_GPU: &[AttributeSpec] = &[
    AttributeSpec {
        key: "type",
        unknown: Unknown::Text("gpu"),
        meaning: "kind of device, always gpu for a whole GPU",
        value: |_, _| text("gpu"),
    },
    AttributeSpec {
        key: "uuid",
        unknown: Unknown::OwnUuid,
        meaning: "UUID of the GPU, stable over reboots",
        value: |gpu, _| text(gpu.uuid.as_str()),
    },
    AttributeSpec {
        key: "productName",
        unknown: Unknown::Text("Unknown"),
        meaning: "product name as the driver reports it, at most 64 bytes",
        value: |gpu, _| text(gpu.product_name.as_str()),
    },
    AttributeSpec {
        key: "architecture",
        unknown: Unknown::Text("Unknown"),
        meaning: "architecture, e.g. Hopper",
        value: |gpu, _| text(gpu.architecture.clone()?),
    },
    AttributeSpec {
        key: "cudaComputeCapability",
        unknown: Unknown::Version("0.0.0"),
        meaning: "CUDA compute capability, as major.minor.0",
        value: |gpu, _| version(gpu.compute_capability?),
    },
    AttributeSpec {
        key: "driverVersion",
        unknown: Unknown::Version("0.0.0"),
        meaning: "version of the loaded driver, as three numbers without leading zeros",
        value: |_, versions| version(&versions.driver),
    },
    AttributeSpec {
        key: "cudaDriverVersion",
        unknown: Unknown::Version("0.0.0"),
        meaning: "newest CUDA version that the driver serves, as major.minor.0",
        value: |_, versions| version(versions.cuda?),
    },
    AttributeSpec {
        key: "brand",
        unknown: Unknown::Text("Unknown"),
        meaning: "brand, e.g. Nvidia, Tesla, GeForce",
        value: |gpu, _| text(gpu.brand.clone()?),
    },
    AttributeSpec {
        key: "index",
        unknown: Unknown::Int(0),
        meaning: "minor number (`/dev/nvidia<index>`); may change over a reboot, so advisory",
        value: |gpu, _| int(gpu.minor.0),
    },
    AttributeSpec {
        key: "resource.kubernetes.io/pciBusID",
        unknown: Unknown::LeftOut(Kind::String),
        meaning: "PCI address, dddd:bb:dd.f",
        value: |gpu, _| text(gpu.pci_bus_id.as_str()),
    },
    AttributeSpec {
        key: "resource.kubernetes.io/pcieRoot",
        unknown: Unknown::LeftOut(Kind::String),
        meaning: "PCIe root complex, pciDDDD:BB",
        value: |gpu, _| text(gpu.pcie_root.clone()?),
    },
    AttributeSpec {
        key: "resource.kubernetes.io/numaNode",
        unknown: Unknown::LeftOut(Kind::Int),
        meaning: "NUMA node of the PCI device",
        value: |gpu, _| int(gpu.numa_node?),
    },
    AttributeSpec {
        key: "addressingMode",
        unknown: Unknown::Text("Unknown"),
        meaning: "how it addresses system memory: None, HMM or ATS",
        value: |gpu, _| text(gpu.addressing_mode?.as_str()),
    },
    AttributeSpec {
        key: "cliqueID",
        unknown: Unknown::OwnUuid,
        meaning: "NVLink fabric clique, `<cluster UUID>.<clique id>`; a GPU in no fabric is alone \
                  in its clique, so matchAttribute never joins two such GPUs",
        value: |gpu, _| {
            let fabric = gpu.fabric.as_ref()?;
            text(format!("{}.{}", fabric.cluster_uuid, fabric.clique_id))
        },
    },
    AttributeSpec {
        key: "gpuModuleID",
        unknown: Unknown::Int(0),
        meaning: "position on the SXM board, from 1; 0 where there is no board",
        value: |gpu, _| int(gpu.module_id?),
    },
    AttributeSpec {
        key: "memoryBusWidth",
        unknown: Unknown::Int(0),
        meaning: "width of the memory bus, in bits",
        value: |gpu, _| int(gpu.memory_bus_width_bits?),
    },
    AttributeSpec {
        key: HAS_MONITOR,
        unknown: Unknown::Bool(false),
        meaning: "several claims may have parts of it, so it is watched through its monitor device",
        value: |_, _| None,
    },
];

impl AttributeSpec {
    /// The attribute's type in the API.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.unknown {
            Unknown::LeftOut(kind) => kind,
            Unknown::Int(_) => Kind::Int,
            Unknown::Bool(_) => Kind::Bool,
            Unknown::Version(_) => Kind::Version,
            Unknown::Text(_) | Unknown::OwnUuid => Kind::String,
        }
    }

    fn attribute(
        &self,
        gpu: &Gpu,
        versions: &DriverVersions,
        notes: &mut Vec<Note>,
    ) -> Option<DeviceAttribute> {
        let published = match (self.value)(gpu, versions) {
            Some(Value::Int(number)) => Some(integer(number)),
            Some(Value::Text(value)) => self.text(&value, notes).map(string),
            Some(Value::Version(value)) => self.version(&value, notes).map(semver),
            None => None,
        };
        published.or_else(|| self.unknown.attribute(gpu))
    }

    fn text(&self, value: &str, notes: &mut Vec<Note>) -> Option<String> {
        let kept = cut(value, MAX_VALUE_BYTES);
        if kept.len() == value.len() {
            return Some(kept.to_owned());
        }
        // Half an identifier is a wrong identifier; half a product name still reads.
        if self.unknown == Unknown::Text("Unknown") {
            self.normalised(value, kept, notes);
            Some(kept.to_owned())
        } else {
            notes.push(Note::Unusable { key: self.key, value: value.to_owned() });
            None
        }
    }

    fn version(&self, value: &str, notes: &mut Vec<Note>) -> Option<String> {
        let normalised = version::normalised(value);
        match &normalised {
            // 9.0 to 9.0.0 is how the API writes it, nothing to tell.
            Some(version) if version.trim_end_matches(".0") == value.trim_end_matches(".0") => {}
            Some(version) => self.normalised(value, version, notes),
            None => notes.push(Note::Unusable { key: self.key, value: value.to_owned() }),
        }
        normalised
    }

    fn normalised(&self, from: &str, to: &str, notes: &mut Vec<Note>) {
        notes.push(Note::Normalised { key: self.key, from: from.to_owned(), to: to.to_owned() });
    }
}

impl Unknown {
    fn attribute(self, gpu: &Gpu) -> Option<DeviceAttribute> {
        match self {
            Self::LeftOut(_) => None,
            Self::Text(text) => Some(string(text.to_owned())),
            Self::Version(text) => Some(semver(text.to_owned())),
            Self::Int(number) => Some(integer(number)),
            Self::Bool(truth) => Some(boolean(truth)),
            Self::OwnUuid => Some(string(gpu.uuid.as_str().to_owned())),
        }
    }
}

pub(crate) fn string(value: String) -> DeviceAttribute {
    DeviceAttribute { string: Some(value), ..DeviceAttribute::default() }
}

fn semver(value: String) -> DeviceAttribute {
    DeviceAttribute { version: Some(value), ..DeviceAttribute::default() }
}

pub(crate) fn integer(value: i64) -> DeviceAttribute {
    DeviceAttribute { int: Some(value), ..DeviceAttribute::default() }
}

pub(crate) fn boolean(value: bool) -> DeviceAttribute {
    DeviceAttribute { bool: Some(value), ..DeviceAttribute::default() }
}

/// The longest start of the text that fits, cut between characters.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// The attributes of one whole GPU.
pub(crate) fn of_whole_gpu(
    gpu: &Gpu,
    versions: &DriverVersions,
    notes: &mut Vec<Note>,
) -> BTreeMap<String, DeviceAttribute> {
    WHOLE_GPU
        .iter()
        .filter_map(|spec| Some((spec.key.to_owned(), spec.attribute(gpu, versions, notes)?)))
        .collect()
}

/// Leaves off the least important attributes, from all devices alike, until each device
/// has at most 32 attributes and capacities. `order` has the most important key first; keys
/// that it doesn't name go before all others.
pub(crate) fn drop_excess(devices: &mut [Device], order: &[&str], notes: &mut Vec<Note>) {
    let keys = |device: &Device| {
        device.attributes.as_ref().map_or(0, BTreeMap::len)
            + device.capacity.as_ref().map_or(0, BTreeMap::len)
    };
    while devices.iter().any(|device| keys(device) > MAX_KEYS) {
        let rank = |key: &str| order.iter().position(|k| *k == key).unwrap_or(usize::MAX);
        let least = devices
            .iter()
            .flat_map(|device| device.attributes.iter().flat_map(BTreeMap::keys))
            .max_by_key(|key| (rank(key), *key))
            .cloned();
        let Some(key) = least else { return };
        for device in devices.iter_mut() {
            if let Some(attributes) = &mut device.attributes {
                attributes.remove(&key);
            }
        }
        notes.push(Note::KeyDropped { key });
    }
}

/// The type of an attribute of whole GPUs; a string where there is none of this key.
pub(crate) fn kind_of(key: &str) -> Kind {
    WHOLE_GPU.iter().find(|spec| spec.key == key).map_or(Kind::String, AttributeSpec::kind)
}

/// The table of MIG devices as Markdown, for the documentation.
#[must_use]
pub fn mig_markdown() -> String {
    crate::mig::attributes::markdown()
}

/// The table as Markdown, for the documentation.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| attribute | type | meaning | if unknown |\n|---|---|---|---|\n");
    for spec in WHOLE_GPU {
        let unknown = match spec.unknown {
            Unknown::LeftOut(_) => "left out".to_owned(),
            Unknown::Text(value) | Unknown::Version(value) => format!("`{value}`"),
            Unknown::Int(number) => format!("`{number}`"),
            Unknown::Bool(truth) => format!("`{truth}`"),
            Unknown::OwnUuid => "the GPU's own UUID".to_owned(),
        };
        let kind = spec.kind().as_str();
        let (key, meaning) = (spec.key, spec.meaning);
        text.push_str(&format!("| `{key}` | {kind} | {meaning} | {unknown} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::DeviceCapacity;

    use super::*;

    fn device(attributes: usize, capacities: usize) -> Device {
        Device {
            attributes: Some((0..attributes).map(|n| (format!("a{n:02}"), integer(1))).collect()),
            capacity: Some(
                (0..capacities).map(|n| (format!("c{n:02}"), DeviceCapacity::default())).collect(),
            ),
            ..Device::default()
        }
    }

    #[test]
    fn the_least_important_keys_go_first_and_from_all_devices() {
        let mut devices = [device(30, 5), device(3, 0), device(2, 1)];
        let mut notes = Vec::new();
        drop_excess(&mut devices, &["a29", "a28", "a00", "a01", "a02"], &mut notes);
        let dropped: Vec<_> = notes
            .iter()
            .map(|note| match note {
                Note::KeyDropped { key } => key.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(dropped, ["a27", "a26", "a25"], "what the order doesn't name goes first");
        assert_eq!(devices.each_ref().map(|d| d.attributes.as_ref().unwrap().len()), [27, 3, 2]);
        drop_excess(&mut devices, &[], &mut notes);
        assert_eq!(notes.len(), 3, "within the limit nothing goes");
    }

    #[test]
    fn a_named_key_goes_from_devices_that_would_fit_with_it() {
        let mut devices = [device(33, 0), device(33, 0), device(33, 0)];
        devices[2].attributes.as_mut().unwrap().retain(|key, _| key == "a32");
        let order: Vec<_> = (0..33).map(|n| format!("a{n:02}")).collect();
        let order: Vec<_> = order.iter().map(String::as_str).collect();
        drop_excess(&mut devices, &order, &mut Vec::new());
        assert_eq!(devices.each_ref().map(|d| d.attributes.as_ref().unwrap().len()), [32, 32, 0]);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("é", 1), "");
    }
}
