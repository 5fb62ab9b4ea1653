//! What can go wrong, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// No NVML library that could be loaded lies under the driver root.
#[derive(Debug, thiserror::Error)]
#[error(
    "no libnvidia-ml.so.1 under driver root {}{}: install the NVIDIA driver, or correct the driver root",
    root.display(),
    first_rejected(rejected)
)]
pub struct NvmlNotFound {
    /// The driver root, as the host sees it.
    pub root: PathBuf,
    /// What has the name but can't be loaded.
    pub rejected: Vec<Rejected>,
}

/// Something named like the library that isn't one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Where it lies, as the host sees it.
    pub path: PathBuf,
    /// Why it can't be used, as the end of a sentence ("is a directory").
    pub why: String,
}

fn first_rejected(rejected: &[Rejected]) -> String {
    rejected
        .first()
        .map(|first| format!(" ({} {})", first.path.display(), first.why))
        .unwrap_or_default()
}

/// The driver's files couldn't be collected.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The root itself can't be opened.
    #[error("open driver root {}: is the driver installed and the path mounted?", root.display())]
    Root {
        /// The root, as this process sees it.
        root: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No libraries of the loaded driver's version.
    #[error(
        "no libraries of driver {version} under {}{}: finish the driver's upgrade or reload its modules",
        root.display(),
        versions_found(found)
    )]
    NoLibraries {
        /// The root, as the host sees it.
        root: PathBuf,
        /// The version that NVML reports.
        version: String,
        /// The versions whose libraries are there.
        found: Vec<String>,
    },
    /// A file or folder could not be looked at.
    #[error("look at {} in the driver root", path.display())]
    Io {
        /// Its path from the root.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A path that no CDI file can carry.
    #[error("path {} is not UTF-8, which CDI needs: rename it", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
}

fn versions_found(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(" (found {})", found.join(", ")) }
}

/// A device node is missing or isn't what it must be.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It isn't there.
    #[error("device node {} is missing: run nvidia-modprobe on the node, or allow its creation", path.display())]
    Missing {
        /// Its path on the host.
        path: PathBuf,
    },
    /// Something else has its name.
    #[error("{} is no device node: remove it and run nvidia-modprobe on the node", path.display())]
    NotADevice {
        /// Its path on the host.
        path: PathBuf,
    },
    /// It belongs to another device or driver load.
    #[error(
        "device node {} is {}:{} but the driver has {}:{}: remove it and run nvidia-modprobe on the node",
        path.display(), found.0, found.1, wanted.0, wanted.1
    )]
    WrongNumbers {
        /// Its path on the host.
        path: PathBuf,
        /// Major and minor of the node.
        found: (u32, u32),
        /// Major and minor that the kernel gave the driver.
        wanted: (u32, u32),
    },
    /// CUDA can't work without this module.
    #[error("kernel module nvidia-uvm is not loaded: run `nvidia-modprobe -u` on the node")]
    UvmNotLoaded,
    /// The driver has no MIG, or its part of `/proc` is hidden.
    #[error("the driver shows no MIG capabilities in {}: it needs version R450 or newer, the node agent the host's /proc", path.display())]
    NoCapabilities {
        /// The file or folder that lacks them.
        path: PathBuf,
    },
    /// The driver has MIG, but not this instance.
    #[error("MIG instance is gone, the driver has no {}: see `nvidia-smi mig -lgi`, delete the pod to start it anew", path.display())]
    InstanceGone {
        /// The instance's capability file.
        path: PathBuf,
    },
    /// A capability file of another format.
    #[error("{} doesn't say DeviceFileMinor and DeviceFileMode: report it with the driver's version", path.display())]
    BadCapability {
        /// The file.
        path: PathBuf,
    },
    /// The driver's settings forbid making nodes.
    #[error("device node {} is missing and NVreg_ModifyDeviceFiles=0 forbids to make it: make it by udev", path.display())]
    CreationForbidden {
        /// Its path on the host.
        path: PathBuf,
    },
    /// Making the node failed.
    #[error("make device node {}: the node agent needs CAP_MKNOD and a writable /dev", path.display())]
    Create {
        /// Its path on the host.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file or folder could not be looked at.
    #[error("look at {}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The hook that specs would name isn't there: every container start would fail.
#[derive(Debug, thiserror::Error)]
#[error("container hook {} is not an executable file: the node agent must install it first", path.display())]
pub struct HookMissing {
    /// Its path, as this process sees it.
    pub path: PathBuf,
    /// The reason, where the system gave one.
    #[source]
    pub source: Option<io::Error>,
}
