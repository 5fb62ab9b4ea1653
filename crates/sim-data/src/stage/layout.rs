//! Where the driver lies on different kinds of hosts.

/// How the driver is installed on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// By the distribution's packages (Debian's paths): the driver root is `/`.
    #[default]
    Host,
    /// In NVIDIA GPU Operator's driver container, `/run/nvidia/driver`, with its own `/dev`.
    GpuOperator,
    /// On Google's container-optimised OS, `/home/kubernetes/bin/nvidia`.
    Gke,
    /// On Bottlerocket: `/`, with the libraries below the system root of its toolchain.
    Bottlerocket,
}

/// The paths of a layout; none begins with a slash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paths {
    /// Below the host's root.
    pub(crate) driver_root: &'static str,
    pub(crate) dev_in_driver_root: bool,
    /// Below the driver root.
    pub(crate) libraries: &'static str,
    /// Below the driver root.
    pub(crate) programs: &'static str,
    /// Below the driver root.
    pub(crate) firmware: &'static str,
    /// Below the driver root.
    pub(crate) share: &'static str,
    /// Below the driver root.
    pub(crate) etc: &'static str,
}

#[cfg(target_arch = "aarch64")]
const DEBIAN_LIBRARIES: &str = "usr/lib/aarch64-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const DEBIAN_LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

#[cfg(target_arch = "aarch64")]
const BOTTLEROCKET_LIBRARIES: &str = "aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla";
#[cfg(not(target_arch = "aarch64"))]
const BOTTLEROCKET_LIBRARIES: &str = "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla";

#[cfg(target_arch = "aarch64")]
const BOTTLEROCKET_PROGRAMS: &str =
    "aarch64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin";
#[cfg(not(target_arch = "aarch64"))]
const BOTTLEROCKET_PROGRAMS: &str =
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin";

impl Layout {
    pub(crate) fn paths(self) -> Paths {
        let host = Paths {
            driver_root: "",
            dev_in_driver_root: false,
            libraries: DEBIAN_LIBRARIES,
            programs: "usr/bin",
            firmware: "lib/firmware",
            share: "usr/share",
            etc: "etc",
        };
        match self {
            Self::Host => host,
            Self::GpuOperator => Paths {
                driver_root: "run/nvidia/driver",
                dev_in_driver_root: true,
                libraries: "usr/lib64",
                ..host
            },
            Self::Gke => Paths {
                driver_root: "home/kubernetes/bin/nvidia",
                libraries: "lib64",
                programs: "bin",
                firmware: "firmware",
                share: "share",
                ..host
            },
            Self::Bottlerocket => {
                Paths { libraries: BOTTLEROCKET_LIBRARIES, programs: BOTTLEROCKET_PROGRAMS, ..host }
            }
        }
    }
}
