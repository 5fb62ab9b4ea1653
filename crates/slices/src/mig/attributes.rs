//! The attributes and capacities of a MIG device, the incumbent's and the place. What a MIG
//! device has from its GPU is taken from the GPU's own attributes.
//!
//! Every MIG device has the same keys in the driver's domain, but for the UUID: a partition
//! that isn't made yet has none. There is no index or minor of the GPU: both change over a
//! reboot, and `parentUUID` says which GPU it is.

use std::collections::BTreeMap;

use gpu_dra_model::inventory::{MigProfile, Placement};
use gpu_dra_model::quantity::Format;
use gpu_dra_model::{Gpu, MigUuid, Quantity};
use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource as api;

use crate::attributes::{Kind, MAX_KEYS, MAX_VALUE_BYTES, cut, integer, kind_of, string};

/// What is known of a MIG device beside its GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) profile: &'a str,
    pub(crate) placement: Placement,
    pub(crate) uuid: Option<&'a MigUuid>,
}

/// One row of the table.
enum Row {
    /// The MIG device's own.
    Own(&'static str, &'static str, fn(Facts<'_>) -> Option<DeviceAttribute>),
    /// The GPU's, if it has it.
    OfGpu(&'static str),
}

fn text(value: &str) -> DeviceAttribute {
    string(cut(value, MAX_VALUE_BYTES).to_owned())
}

/// The most important first.
const ROWS: &[Row] = &[
    Row::Own("type", "kind of device, always mig for a MIG device", |_| Some(text("mig"))),
    Row::Own("parentUUID", "UUID of the GPU, stable over reboots", |facts| {
        Some(text(facts.gpu.uuid.as_str()))
    }),
    Row::Own("profile", "profile by the driver's name, e.g. 1g.10gb+me", |facts| {
        Some(text(facts.profile))
    }),
    Row::Own(
        "uuid",
        "UUID of a MIG device that exists; one made on demand has none yet",
        |facts| facts.uuid.map(|uuid| text(uuid.as_str())),
    ),
    Row::OfGpu("productName"),
    Row::OfGpu("architecture"),
    Row::OfGpu("cudaComputeCapability"),
    Row::OfGpu("driverVersion"),
    Row::OfGpu("cudaDriverVersion"),
    Row::OfGpu("brand"),
    Row::Own("placementStart", "first memory slice of the GPU that it takes, from 0", |facts| {
        Some(integer(facts.placement.start.into()))
    }),
    Row::OfGpu("resource.kubernetes.io/pciBusID"),
    Row::OfGpu("resource.kubernetes.io/pcieRoot"),
    Row::OfGpu("resource.kubernetes.io/numaNode"),
    Row::OfGpu("addressingMode"),
    Row::OfGpu("gpuModuleID"),
];

/// The attributes of a MIG device on a GPU that has those of `gpu_attributes`.
pub(crate) fn attributes(
    facts: Facts<'_>,
    gpu_attributes: &BTreeMap<String, DeviceAttribute>,
) -> BTreeMap<String, DeviceAttribute> {
    let attribute = |row: &Row| match row {
        Row::Own(key, _, value) => Some(((*key).to_owned(), value(facts)?)),
        Row::OfGpu(key) => Some(((*key).to_owned(), gpu_attributes.get(*key)?.clone())),
    };
    ROWS.iter().filter_map(attribute).collect()
}

/// What an instance of the profile has. Engines it may not have are zero, so that a selector
/// never misses one.
pub(crate) fn capacities(
    profile: &MigProfile,
    multiprocessors: u32,
) -> BTreeMap<String, DeviceCapacity> {
    let mut capacities: BTreeMap<_, _> = [
        ("multiprocessors", multiprocessors),
        ("copyEngines", profile.copy_engines),
        ("decoders", profile.decoders),
        ("encoders", profile.encoders),
        ("jpegEngines", profile.jpeg_engines),
        ("ofaEngines", profile.ofa_engines),
    ]
    .map(|(key, number)| (key.to_owned(), count(number)))
    .into();
    let memory = Quantity::from_bytes_binary(profile.memory_mib.saturating_mul(1 << 20));
    capacities.insert("memory".to_owned(), capacity(memory));
    capacities
}

/// Adds the memory slices of an existing instance. Where 32 attributes and capacities don't
/// leave room for all of them (only on GPUs with twelve), none is added: `profile` and
/// `placementStart` say the same.
pub(crate) fn add_slices(
    capacities: &mut BTreeMap<String, DeviceCapacity>,
    attributes: usize,
    placement: Placement,
) {
    let used = attributes + capacities.len();
    if usize::try_from(placement.size).is_ok_and(|slices| used + slices <= MAX_KEYS) {
        capacities
            .extend(placement.slices().map(|slice| (format!("memorySlice{slice}"), count(1))));
    }
}

fn count(number: u32) -> DeviceCapacity {
    capacity(Quantity::from_integer(number.into(), Format::DecimalSi))
}

fn capacity(value: Quantity) -> DeviceCapacity {
    DeviceCapacity { value: api::Quantity(value.to_string()), request_policy: None }
}

/// The table as Markdown, for the documentation.
pub(crate) fn markdown() -> String {
    let mut text = String::from("| attribute | type | meaning |\n|---|---|---|\n");
    for row in ROWS {
        let (key, kind, meaning) = match row {
            Row::Own(key @ "placementStart", meaning, _) => (*key, Kind::Int, *meaning),
            Row::Own(key, meaning, _) => (*key, Kind::String, *meaning),
            Row::OfGpu(key) => (*key, kind_of(key), "as its GPU"),
        };
        text.push_str(&format!("| `{key}` | {} | {meaning} |\n", kind.as_str()));
    }
    text
}
