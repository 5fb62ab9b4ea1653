//! Where the driver and the kernel's trees are: flags that `node` and `inventory` share.

use std::path::PathBuf;

use gpu_dra_driverroot::DriverRoot;
use gpu_dra_nvml::Trees;

/// Where the driver and the kernel's trees are.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// The NVIDIA driver's root as the host sees it: / for a driver of the host,
    /// /run/nvidia/driver for GPU Operator, /home/kubernetes/bin/nvidia on GKE
    #[arg(long, env = "GPU_DRA_DRIVER_ROOT", default_value = "/")]
    pub(crate) driver_root: PathBuf,
    /// The same folder as this process sees it, where that differs
    #[arg(long, env = "GPU_DRA_DRIVER_ROOT_HERE")]
    pub(crate) driver_root_here: Option<PathBuf>,
    /// The host's / as this process sees it, for device nodes outside the driver's root
    #[arg(long, env = "GPU_DRA_HOST_ROOT_HERE", default_value = "/")]
    pub(crate) host_root_here: PathBuf,
    /// Where sysfs is
    #[arg(long, env = "GPU_DRA_SYSFS", default_value = "/sys")]
    pub(crate) sysfs: PathBuf,
    /// Where procfs is
    #[arg(long, env = "GPU_DRA_PROC", default_value = "/proc")]
    pub(crate) proc: PathBuf,
    /// Where NVML itself opens device nodes
    #[arg(long, env = "GPU_DRA_DEV", default_value = "/dev")]
    pub(crate) dev: PathBuf,
}

impl Place {
    pub(crate) fn root(&self) -> DriverRoot {
        DriverRoot {
            host: self.driver_root.clone(),
            here: self.driver_root_here.clone().unwrap_or_else(|| self.driver_root.clone()),
            host_root: self.host_root_here.clone(),
        }
    }

    pub(crate) fn trees(&self) -> Trees {
        Trees { sysfs: self.sysfs.clone(), proc: self.proc.clone(), dev: self.dev.clone() }
    }
}
