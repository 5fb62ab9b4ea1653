//! The words all other crates speak: identifiers, quantities, the node's inventory
//! and the opaque configuration kinds.
//!
//! Values only. This crate never reads a file, a clock or the environment, knows no
//! Kubernetes client and no NVML, and never decides what to do with a value.

#![forbid(unsafe_code)]

pub mod config;
pub mod ids;
pub mod inventory;
pub mod quantity;
pub mod version;

pub use ids::{
    BootId, CdiDeviceId, ClaimRef, ClaimUid, DeviceName, DriverName, GpuUuid, IdError, Minor,
    NodeName, PciBusId, PoolName, RequestName,
};
pub use inventory::{Gpu, Inventory};
pub use quantity::Quantity;
