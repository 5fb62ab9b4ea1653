//! CDI spec documents (Container Device Interface): what they contain, how they and their
//! devices are named, the lowest version that a reader must know, and their bytes.
//!
//! Pure: it never touches a file. Which libraries and device nodes exist is the business
//! of `gpu-dra-driverroot`; writing the file that of the node agent.

#![forbid(unsafe_code)]

mod build;
mod document;
mod name;
mod validate;
mod version;

pub use build::{SpecDevice, claim_spec};
pub use document::{ContainerEdits, Device, DeviceNode, DeviceType, Hook, HookName, Mount, Spec};
pub use name::{ShareId, claim_of_file_name, device_id, device_name, file_name, kind};
pub use validate::SpecError;
pub use version::CdiVersion;
