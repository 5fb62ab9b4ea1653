//! Folders, links and files put into a container's root, never through an entry that is
//! already there: each is made under a name of our own and renamed over the old entry.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::inroot::{InRoot, Mounts};

/// What is made here and renamed at once; a leftover of a killed hook is replaced.
const TEMPORARY: &str = ".gpu-dra-hook.tmp";

/// Opens a folder of the container, making it and its parents where they aren't there.
pub(crate) fn folder(root: &InRoot, path: &Path, mounts: Mounts) -> io::Result<OwnedFd> {
    match root.folder(path, mounts) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    };
    let parent = folder(root, parent, mounts)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        // Made meanwhile, or a link to nothing, which fails now.
        Ok(()) | Err(Errno::EXIST) => root.folder(path, mounts),
        Err(error) => Err(error.into()),
    }
}

/// Puts a link in place of whatever has its name, except a folder.
///
/// A container's `/dev` is a mount of its own; any other mount on the way is the pod's, and
/// may be a folder of the host.
pub(crate) fn link(root: &InRoot, path: &Path, target: &str) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let mounts = if path.starts_with("/dev") { Mounts::Cross } else { Mounts::Stay };
    let parent = folder(root, parent, mounts)?;
    match rustix::fs::readlinkat(&parent, name, Vec::new()) {
        Ok(present) if present.as_bytes() == target.as_bytes() => return Ok(()),
        _ => {}
    }
    remove_temporary(&parent)?;
    rustix::fs::symlinkat(target, &parent, TEMPORARY)?;
    rename_or_remove(&parent, name.as_ref())
}

/// Puts a file in place of whatever has its name, except a folder.
pub(crate) fn file(parent: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    remove_temporary(parent)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = rustix::fs::openat(parent, TEMPORARY, flags, mode)?;
    let mut file = File::from(file);
    let written = file.write_all(content).and_then(|()| {
        // The umask is the runtime's.
        rustix::fs::fchmod(&file, mode).map_err(io::Error::from)
    });
    match written {
        Ok(()) => rename_or_remove(parent, Path::new(name)),
        Err(error) => {
            remove_temporary(parent)?;
            Err(error)
        }
    }
}

fn rename_or_remove(parent: &OwnedFd, name: &Path) -> io::Result<()> {
    match rustix::fs::renameat(parent, TEMPORARY, parent, name) {
        Ok(()) => Ok(()),
        Err(error) => {
            remove_temporary(parent)?;
            Err(error.into())
        }
    }
}

fn remove_temporary(parent: &OwnedFd) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, TEMPORARY, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the failure is one that the pod or its image asked for: a root file system that
/// can't be written, or a place that something else is mounted on.
pub(crate) fn is_the_pods_choice(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::ResourceBusy
    )
}
