//! MIG devices: partitions that are made on demand, with the counters that keep those apart
//! which can't coexist, and compute instances that others made.
//!
//! Everything follows from the driver's own tables of profiles and placements; no model of
//! GPU is known here by name.

use std::collections::BTreeMap;

use gpu_dra_model::{DeviceKind, DeviceName, Gpu};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

pub(crate) mod attributes;
pub(crate) mod counters;
pub(crate) mod foreign;
pub(crate) mod instances;
pub(crate) mod layout;
mod name;
mod order;
pub(crate) mod partitions;

/// A device and what it is.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) name: DeviceName,
    pub(crate) device: Device,
    pub(crate) kind: DeviceKind,
}

/// A GPU under its name, with its attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parent<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) name: &'a DeviceName,
    pub(crate) attributes: &'a BTreeMap<String, DeviceAttribute>,
}

impl Parent<'_> {
    /// The name of the counters that the GPU and its partitions share.
    pub(crate) fn counter_set(&self) -> String {
        format!("{}-counter-set", self.name)
    }
}
