//! Where the driver is installed, seen by the host and by this process.

use std::path::{Path, PathBuf};

use crate::error::NvmlNotFound;

/// A driver installation. The node agent runs in a container, so each path has two forms:
/// CDI files name the host's, the agent opens its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverRoot {
    /// The root as the host sees it: `/`, `/run/nvidia/driver` (GPU Operator),
    /// `/home/kubernetes/bin/nvidia` (GKE), …
    pub host: PathBuf,
    /// The same folder as this process sees it.
    pub here: PathBuf,
    /// The host's `/` as this process sees it, for the device nodes of a root that has no
    /// `dev` folder.
    pub host_root: PathBuf,
}

/// Where drivers are installed, in the order of looking: by the distribution (Bottlerocket
/// and Talos too), by the GPU Operator's driver container, by GKE's installer.
const KNOWN_ROOTS: [&str; 3] = ["/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"];

impl DriverRoot {
    /// A root that this process sees under another path than the host. The host's `/` is
    /// taken to be this process's; set [`DriverRoot::host_root`] where it isn't.
    #[must_use]
    pub fn new(host: impl Into<PathBuf>, here: impl Into<PathBuf>) -> Self {
        Self { host: host.into(), here: here.into(), host_root: PathBuf::from("/") }
    }

    /// A root that this process and the host see under the same path.
    #[must_use]
    pub fn same(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::new(path.clone(), path)
    }

    /// Looks for the driver where drivers are usually installed, in a host whose `/` this
    /// process sees as `host_root`.
    ///
    /// # Errors
    /// That of the last place looked at, with all that was rejected anywhere.
    pub fn detect(host_root: &Path) -> Result<Self, NvmlNotFound> {
        let mut rejected = Vec::new();
        for known in KNOWN_ROOTS {
            let root = Self {
                host: PathBuf::from(known),
                here: host_root.join(known.trim_start_matches('/')),
                host_root: host_root.to_path_buf(),
            };
            match root.find_nvml() {
                Ok(_) => return Ok(root),
                Err(error) => rejected.extend(error.rejected),
            }
        }
        Err(NvmlNotFound { root: PathBuf::from("/"), rejected })
    }
}
