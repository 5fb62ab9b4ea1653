//! The custom resource `GpuClass`: a DeviceClass in plain fields. Its shape and strict
//! decoding, nothing else; deploy/gpuclass-crd.yaml says the same to the API server.

use std::borrow::Cow;

use gpu_dra_model::Quantity;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::problem::Problem;

/// The API group of our own kinds, and the prefix of our labels.
pub const GROUP: &str = "gpu-dra.io";
/// The version served.
pub const VERSION: &str = "v1alpha1";

/// A `GpuClass`. Spec and status are kept as they came: one object that can't be decoded must
/// not stop the watch of all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuClass {
    /// Name, UID and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What [`GpuClass::decoded`] decodes.
    #[serde(default)]
    pub spec: Value,
    /// What [`GpuClass::known_status`] decodes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

impl GpuClass {
    /// The spec.
    ///
    /// # Errors
    /// An unknown field, or a value of the wrong type, with its path.
    pub fn decoded(&self) -> Result<GpuClassSpec, Problem> {
        if self.spec.is_null() {
            return Ok(GpuClassSpec::default());
        }
        if !self.spec.is_object() {
            return Err(Problem::new("spec", "is no object"));
        }
        serde_path_to_error::deserialize(&self.spec).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { "spec".to_owned() } else { format!("spec.{path}") };
            Problem { path, reason: error.into_inner().to_string() }
        })
    }

    /// The status, if it is one that we could have written.
    #[must_use]
    pub fn known_status(&self) -> Option<GpuClassStatus> {
        GpuClassStatus::deserialize(&self.status).ok()
    }

    /// Its name; every stored object has one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether somebody wants it gone.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Resource for GpuClass {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "GpuClass".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "gpuclasses".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// `GpuClass.spec`: all that is given must hold of a device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GpuClassSpec {
    /// Which type of device; `mig` where a profile is given, otherwise `gpu`.
    pub r#type: Option<DeviceType>,
    /// Which product.
    pub model: Option<Model>,
    /// The least memory, a quantity such as `79Gi`. An 80 GB card has a little less than 80Gi.
    pub memory_at_least: Option<Quantity>,
    /// The MIG profile, such as `1g.10gb`.
    pub profile: Option<String>,
    /// The least CUDA compute capability, such as `"9.0"`.
    pub compute_capability_at_least: Option<String>,
    /// `sharing` of a GpuConfig or MigDeviceConfig, for claims that say nothing else.
    pub sharing: Option<Value>,
    /// The extended resource by which pods can ask for the class without a claim.
    pub extended_resource_name: Option<String>,
}

/// The published attribute `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceType {
    /// Whole GPUs.
    Gpu,
    /// MIG devices.
    Mig,
}

impl DeviceType {
    /// As published.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Mig => "mig",
        }
    }
}

/// Products: one that is named or whose name contains one of the texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Model {
    /// Full product names as NVML has them, such as `NVIDIA H100 80GB HBM3`.
    pub names: Vec<String>,
    /// Parts of product names, such as `H100`.
    pub contains: Vec<String>,
}

/// `GpuClass.status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuClassStatus {
    /// The generation of the spec that the rest is about.
    pub observed_generation: i64,
    /// Whether the spec compiles.
    pub valid: bool,
    /// The DeviceClass that is made of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device_class_name: Option<String>,
    /// Published devices that match.
    pub matching_devices: u64,
    /// Nodes with at least one of them.
    pub matching_nodes: u64,
    /// Matching devices that a claim could get now.
    pub free_devices: u64,
    /// `Valid`, `Applied`, `Matching`, and `ExtendedResource` where one is named.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
