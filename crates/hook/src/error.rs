//! Why a container must not start. The runtime shows the text in the pod's event.

use std::io;
use std::path::PathBuf;

/// The hook's failures.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// What the runtime sent is no OCI state, or the bundle's configuration is none.
    #[error("{what} is not what the OCI runtime specification says")]
    BadInput {
        /// Which input.
        what: &'static str,
        /// The reason.
        source: serde_json::Error,
    },
    /// The root file system is the host's own.
    #[error("the container's root {} is the host's root: refusing to change it", path.display())]
    HostRoot {
        /// The path.
        path: PathBuf,
    },
    /// A step failed.
    #[error("{what} {}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path (in the container, if absolute and not the root's own).
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}
