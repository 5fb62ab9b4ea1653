//! What lies under a driver root, and what a container needs of it: driver libraries,
//! programs, firmware, configuration, sockets and device nodes, as CDI edits.
//!
//! Reads files only; the one thing it makes is a missing device node, where the setting
//! says so. Everything is derived from the files that exist now: nothing found is believed
//! longer than the folders it was found in stay unchanged, and nothing missing is
//! remembered at all.

#![forbid(unsafe_code)]

mod cache;
mod create;
mod drm;
mod edits;
mod error;
mod extras;
mod files;
mod kernel;
mod layout;
mod mig;
mod nodes;
mod nvml;
mod root;
mod scan;

pub use cache::DriverFilesCache;
pub use edits::{Hook, common_edits, gpu_edits, mig_edits};
pub use error::{FilesError, HookMissing, NodeError, NvmlNotFound, Rejected};
pub use files::{DriverFiles, HostFile, Library};
pub use mig::MigNodes;
pub use nodes::{CharNode, CommonNodes, DeviceNodes, GpuNodes, Node, NodeFinder};
pub use root::DriverRoot;
