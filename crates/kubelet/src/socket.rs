//! A unix socket of ours from bind to unlink, and what is left of dead instances. The rule:
//! a socket on which somebody answers is never touched.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::Stream;
use tokio::net::{UnixListener, UnixStream};

/// How long a peer may take to accept before it counts as alive and busy.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// An instance that is just starting has bound but not yet listened: ask twice.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Pause after a failed accept (mostly: out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The directory of the kubelet is not there.
    #[error("{} does not exist: is the kubelet root right, and mounted at the same path here?", .0.display())]
    NoDirectory(PathBuf),
    /// The directory can't be used.
    #[error("cannot use directory {}: check owner and mount", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another live instance has the name.
    #[error("{} is served by another process: stop the other instance, or give each its pod UID", .0.display())]
    InUse(PathBuf),
    /// What is left of a former instance can't be removed.
    #[error("cannot remove the stale socket {}", path.display())]
    Remove {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No socket can be made here.
    #[error("cannot listen on {}", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A socket that we made; knows its inode, so that it never unlinks a successor's.
#[derive(Debug)]
pub(crate) struct OwnSocket {
    path: PathBuf,
    inode: (u64, u64),
}

impl OwnSocket {
    /// Binds `path` with mode 0600, over a dead socket if need be.
    pub(crate) async fn bind(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        if is_socket(path) {
            if answers(path).await {
                return Err(SocketError::InUse(path.into()));
            }
            remove(path)?;
        }
        let failed = |source| SocketError::Bind { path: path.into(), source };
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        let inode = inode(path).map_err(failed)?;
        Ok((Self { path: path.into(), inode }, listener))
    }

    /// Unlinks the socket if it's still the one that we made.
    pub(crate) fn unlink(&self) {
        let result = match inode(&self.path) {
            Ok(inode) if inode == self.inode => fs::remove_file(&self.path),
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(socket = %self.path.display(), %error, "cannot remove our socket");
            }
            _ => {}
        }
    }
}

/// Creates the driver's own directory, where `own` will be, with mode 0750.
pub(crate) fn create_directory(own: &Path) -> Result<(), SocketError> {
    let path = parent(own);
    let failed = |source| SocketError::Directory { path: path.into(), source };
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(failed)
}

/// Removes the sockets of dead instances from the directory of `own`: those with a name of
/// ours on which nobody answers. After a kill -9 the kubelet would dial them for ever.
/// `own` itself is left to [`OwnSocket::bind`].
pub(crate) async fn sweep(own: &Path, is_ours: impl Fn(&str) -> bool) -> Result<(), SocketError> {
    let directory = parent(own);
    let failed = |source| SocketError::Directory { path: directory.into(), source };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SocketError::NoDirectory(directory.into()));
        }
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let ours = entry.file_name().to_str().is_some_and(&is_ours);
        if !ours || path == own || !is_socket(&path) || answers(&path).await {
            continue;
        }
        tokio::time::sleep(ASK_AGAIN).await;
        if !answers(&path).await {
            remove(&path)?;
            tracing::info!(socket = %path.display(), "removed the socket of a dead instance");
        }
    }
    Ok(())
}

/// The connections to `listener`, without end. tonic would spin on a failing accept; here
/// it's logged and tried again after a pause.
pub(crate) fn connections(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    futures::stream::unfold(listener, |listener| async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((Ok(stream), listener)),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection, trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

async fn answers(path: &Path) -> bool {
    match tokio::time::timeout(ANSWER_WAIT, UnixStream::connect(path)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        }
        Err(_elapsed) => true,
    }
}

/// Socket paths are made by joining, so that they have a parent.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn remove(path: &Path) -> Result<(), SocketError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SocketError::Remove { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
