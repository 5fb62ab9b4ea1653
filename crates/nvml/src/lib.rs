//! The only place that loads NVML: a [`Session`] over one library file, turned into the
//! pure [`Inventory`](gpu_dra_model::Inventory), the [`Gpus`] seam that acts go through, and
//! the [`Events`] that GPUs raise.
//!
//! Every answer is matched by NVML's number, never by the wrapper's enums, which refuse
//! numbers newer than themselves. A call that the hardware or an older library doesn't know
//! leaves its attribute out; a GPU that can't be asked is set aside and never hides the rest.
//! Nothing here decides what is published, and nothing changes a GPU unless told to.

mod code;
mod current;
mod diagnose;
mod driver;
mod elf;
mod error;
mod events;
mod fingerprint;
mod gpus;
mod health;
mod instances;
mod limits;
mod mig;
mod names;
mod partitions;
mod probe;
mod processes;
mod profile_name;
mod raw;
mod raw_events;
mod raw_fields;
mod raw_mig;
mod raw_processes;
mod raw_text;
mod session;
mod sysfs;
mod trees;
mod watch;

pub use code::{CallError, Code};
pub use driver::Driver;
pub use error::{GpuError, OpenError};
pub use events::{Events, Heard};
pub use fingerprint::Fingerprint;
pub use gpu_dra_model::ComputeMode;
pub use gpus::Gpus;
pub use names::{architecture_name, brand_name};
pub use processes::GpuProcess;
pub use profile_name::profile_name;
pub use session::Session;
pub use sysfs::pcie_root;
pub use trees::Trees;
pub use watch::Watching;
#[cfg(feature = "fuzzing")]
pub use watch::hear;
