//! Why NVML can't be used, from its return code and what the kernel's trees show: one code
//! has several causes, and each cause its own remedy.

use std::path::{Path, PathBuf};

use crate::code::{CallError, Code};
use crate::error::OpenError;
use crate::sysfs::{self, KernelDriver};
use crate::trees::Trees;

/// The cause of a missing library.
pub(crate) fn no_library(place: PathBuf, trees: &Trees) -> OpenError {
    match sysfs::kernel_driver(trees) {
        KernelDriver::Loaded { .. } => OpenError::LibraryHidden { place },
        KernelDriver::Absent if sysfs::gpus_on_bus(trees) > 0 => OpenError::NoLibrary { place },
        KernelDriver::Absent => OpenError::NothingHere { place },
    }
}

/// The cause of a failed `nvmlInit_v2`.
pub(crate) fn failed_init(error: CallError, library: &Path, trees: &Trees) -> OpenError {
    match error.code {
        Code::DRIVER_NOT_LOADED => match sysfs::kernel_driver(trees) {
            KernelDriver::Loaded { .. } if !sysfs::has_gpu_nodes(trees) => {
                OpenError::NoDeviceNodes { dev: trees.dev.clone() }
            }
            _ => OpenError::DriverNotLoaded,
        },
        Code::LIB_RM_VERSION_MISMATCH => OpenError::VersionMismatch {
            library: or_unknown(library_version(library)),
            kernel: or_unknown(match sysfs::kernel_driver(trees) {
                KernelDriver::Loaded { version } => version,
                KernelDriver::Absent => None,
            }),
        },
        Code::NO_PERMISSION => OpenError::NoPermission { dev: trees.dev.clone() },
        _ => OpenError::Init(error),
    }
}

/// The cause of a device count of zero.
pub(crate) fn no_gpus(trees: &Trees) -> OpenError {
    match sysfs::gpus_on_bus(trees) {
        0 => OpenError::NoGpus,
        _ if !sysfs::has_gpu_nodes(trees) => OpenError::NoDeviceNodes { dev: trees.dev.clone() },
        on_bus => OpenError::GpusUnused { on_bus },
    }
}

/// The driver version in the name of the file behind the link: `libnvidia-ml.so.570.124.06`.
fn library_version(library: &Path) -> Option<String> {
    let file = library.canonicalize().ok()?;
    let version = file.file_name()?.to_str()?.split_once(".so.")?.1;
    version.contains('.').then(|| version.to_owned())
}

fn or_unknown(version: Option<String>) -> String {
    version.unwrap_or_else(|| "of unknown version".to_owned())
}
