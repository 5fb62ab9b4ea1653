//! Where a daemon's folders lie. Both the MPS host and the node agent derive them from the
//! daemon's id, so that a CDI spec can be written again while the MPS host is away.

use std::path::{Path, PathBuf};

use crate::spec::DaemonId;

/// The longest path of a unix socket: `sun_path` has 108 bytes, the last one zero.
const LONGEST_SOCKET: usize = 107;

/// The socket that the control daemon makes in its pipe directory.
const SOCKET: &str = "control";

/// A folder that can't hold daemons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "MPS folder {}: want an absolute path of at most {longest} bytes, such as /run/gpu-dra/mps",
    path.display(), longest = RunDir::LONGEST
)]
pub struct RunDirError {
    /// The folder.
    pub path: PathBuf,
}

/// The folder of all daemons. It has the same path on the host and in the containers of the
/// MPS host and the node agent, and belongs on a tmpfs: after a boot nothing in it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Longest path in bytes that leaves room for every daemon's socket.
    pub const LONGEST: usize =
        LONGEST_SOCKET - "/".len() - DaemonId::LONGEST - "/pipe/control".len();

    /// # Errors
    /// A relative path, or one too long for the sockets in it.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, RunDirError> {
        let path = path.into();
        let utf8 = path.to_str().is_some();
        if utf8 && path.is_absolute() && path.as_os_str().len() <= Self::LONGEST {
            Ok(Self(path))
        } else {
            Err(RunDirError { path })
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folders of one daemon.
    #[must_use]
    pub fn places(&self, id: &DaemonId) -> Places {
        let base = self.0.join(id.as_str());
        Places {
            pipe: base.join("pipe"),
            log: base.join("log"),
            shm: base.join("shm"),
            libraries: base.join("lib"),
            starts: base.join("starts"),
            base,
        }
    }
}

/// The folders of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Holds all others. Only root can pass it, so nobody on the host gets at the rest; a
    /// claim's containers get what is theirs by bind mounts.
    pub base: PathBuf,
    /// `CUDA_MPS_PIPE_DIRECTORY` of the daemon: its sockets.
    pub pipe: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY` of the daemon.
    pub log: PathBuf,
    /// `/dev/shm` of the daemon and of its clients.
    pub shm: PathBuf,
    /// Links to the driver's libraries and to the control program.
    pub libraries: PathBuf,
    /// A note of how often the daemon was started.
    pub starts: PathBuf,
}

impl Places {
    /// The control daemon's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.pipe.join(SOCKET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_socket_path_fits() {
        let run = RunDir::new(format!("/{}", "r".repeat(RunDir::LONGEST - 1))).unwrap();
        let id = DaemonId::new("d".repeat(DaemonId::LONGEST)).unwrap();
        assert_eq!(run.places(&id).socket().as_os_str().len(), LONGEST_SOCKET);
        assert!(RunDir::new(format!("/{}", "r".repeat(RunDir::LONGEST))).is_err());
        assert!(RunDir::new("run").is_err());
    }
}
