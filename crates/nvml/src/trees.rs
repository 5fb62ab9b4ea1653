//! Where sysfs, procfs and the device nodes are: `/sys`, `/proc` and `/dev` on a real node,
//! staged trees in tests and in the demo.

use std::path::PathBuf;

/// Roots of the kernel's file trees as this process sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trees {
    /// sysfs: PCI devices and their roots.
    pub sysfs: PathBuf,
    /// procfs: the kernel driver's version and the GPUs bound to it.
    pub proc: PathBuf,
    /// Device nodes, as NVML itself opens them (not those under the driver root).
    pub dev: PathBuf,
}

impl Default for Trees {
    fn default() -> Self {
        Self { sysfs: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}
