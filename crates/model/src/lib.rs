//! The words all other crates speak: identifiers, quantities, the node's inventory
//! and the opaque configuration kinds.
//!
//! Values only. This crate never reads a file, a clock or the environment, knows no
//! Kubernetes client and no NVML, and never decides what to do with a value.

#![forbid(unsafe_code)]

pub mod config;
pub mod device;
pub mod ids;
pub mod inventory;
pub mod quantity;
mod shown;
pub mod version;

pub use device::{ComputeMode, DeviceKind, MigDevice, Partition, Shares};
pub use ids::{
    BootId, CdiDeviceId, ClaimRef, ClaimUid, ComputeInstanceId, DeviceName, DriverName,
    GpuInstanceId, GpuUuid, IdError, MigUuid, Minor, NodeName, PciBusId, PoolName, RequestName,
};
pub use inventory::{Gpu, Inventory, Placement};
pub use quantity::Quantity;
pub use shown::shown;
