//! A daemon's own tmpfs: for `/dev/shm`, which the claim's containers get as theirs, and for
//! its logs, which clients can make grow without end. Behind a trait so that crash tests have
//! a simulated side.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gpu_dra_host::FileError;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Options of the tmpfs for `/dev/shm`; the kernel bounds it to half of the memory.
pub(crate) const SHM: &str = "mode=1777";

/// Options of the tmpfs for logs.
pub(crate) const LOGS: &str = "mode=0755,size=16m";

/// What a daemon's shm folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shm {
    /// A tmpfs of its own.
    Tmpfs,
    /// A plain folder, since this process may not mount.
    Folder,
}

/// Mounts and unmounts.
pub trait Mounts: Send + Sync {
    /// Has a tmpfs with these mount options on the folder, unless there is one or mounting
    /// isn't allowed.
    ///
    /// # Errors
    /// When the kernel refuses for any other reason than a missing privilege.
    fn tmpfs(&self, dir: &Path, options: &str) -> Result<Shm, FileError>;

    /// Has nothing mounted on the folder; there need be neither mount nor folder.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn unmount(&self, dir: &Path) -> Result<(), FileError>;
}

/// The kernel's. What it mounts must be seen by the host: the run folder is a host path with
/// `mountPropagation: Bidirectional`.
#[derive(Debug, Default)]
pub struct RealMounts;

impl Mounts for RealMounts {
    fn tmpfs(&self, dir: &Path, options: &str) -> Result<Shm, FileError> {
        let failed = |source| FileError::new("mount tmpfs on", dir, source);
        if is_mount(dir).map_err(failed)? {
            return Ok(Shm::Tmpfs);
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        match mount(Some("gpu-dra-mps"), dir, Some("tmpfs"), flags, Some(options)) {
            Ok(()) => Ok(Shm::Tmpfs),
            Err(Errno::EPERM) => {
                tracing::warn!(
                    folder = %dir.display(),
                    "no CAP_SYS_ADMIN: MPS daemons share this process's /dev/shm, and nothing bounds their logs"
                );
                Ok(Shm::Folder)
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    fn unmount(&self, dir: &Path) -> Result<(), FileError> {
        let failed = |source| FileError::new("unmount", dir, source);
        while is_mount(dir).map_err(failed)? {
            // Detached, not waited for: a container that is still stopping keeps it to itself.
            umount2(dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)
                .map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }
}

/// Whether something is mounted on the folder: it lies on another device than its parent.
fn is_mount(dir: &Path) -> io::Result<bool> {
    let device = |path: PathBuf| match std::fs::symlink_metadata(path) {
        Ok(data) => Ok(Some(data.dev())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let own = device(dir.to_owned())?;
    Ok(own.is_some() && own != device(dir.join(".."))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_once_and_gone_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let shm = dir.path().join("shm");
        assert!(RealMounts.tmpfs(&shm, SHM).is_err(), "no folder to mount on");
        RealMounts.unmount(&shm).unwrap();
        std::fs::create_dir(&shm).unwrap();
        if RealMounts.tmpfs(&shm, SHM).unwrap() == Shm::Folder {
            println!("SKIPPED: mounting a tmpfs needs CAP_SYS_ADMIN");
            return;
        }
        assert_eq!(RealMounts.tmpfs(&shm, SHM).unwrap(), Shm::Tmpfs);
        std::fs::write(shm.join("segment"), "x").unwrap();
        RealMounts.unmount(&shm).unwrap();
        assert!(!shm.join("segment").exists());
        RealMounts.unmount(&shm).unwrap();
    }
}
