//! What the node agent does to the machine, behind small traits: [`Files`], [`Processes`]
//! and [`Locks`]. Each has a real side and a simulated side that keeps unsynced data apart,
//! fails on demand and dies at effect N.
//!
//! Nothing here knows claims, GPUs or Kubernetes, and nothing decides: callers say what to do.

#![forbid(unsafe_code)]

pub mod boundary;
pub mod files;
pub mod locks;
pub mod processes;
pub mod sim;

pub use boundary::Boundary;
pub use files::{FileError, FileStamp, Files, RealFiles};
pub use locks::{LockError, LockGuard, Locks};
pub use processes::{Command, Output, ProcessError, Processes, RealProcesses};
