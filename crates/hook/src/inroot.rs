//! Paths resolved inside a root folder, by the kernel: `openat2(2)` with
//! `RESOLVE_IN_ROOT` takes each link, absolute ones and `..` too, as a process would whose
//! root that folder is. So neither a hostile image nor a driver container's absolute links
//! lead to other files of the host. Needs Linux 5.6.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};

/// How often a path is tried again that is being renamed under us (EAGAIN).
const RACE_RETRIES: usize = 8;

/// An open root folder.
#[derive(Debug)]
pub struct InRoot {
    fd: OwnedFd,
}

/// Whether a path may lead into another file system than the root folder's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounts {
    /// Mounts below the root are followed.
    Cross,
    /// Only the root's own file system (`RESOLVE_NO_XDEV`, EXDEV otherwise): a folder of
    /// the host that is mounted into a container isn't the container's to change.
    Stay,
}

impl InRoot {
    /// Opens the root folder itself; links on the way to it are followed.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::openat(CWD, root, flags, Mode::empty())? })
    }

    fn openat2(&self, path: &Path, flags: OFlags, mounts: Mounts) -> io::Result<OwnedFd> {
        let mut resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        if mounts == Mounts::Stay {
            resolve |= ResolveFlags::NO_XDEV;
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let mut tries = 0;
        loop {
            let flags = flags | OFlags::CLOEXEC;
            match rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve) {
                Err(rustix::io::Errno::AGAIN) if tries < RACE_RETRIES => tries += 1,
                result => return Ok(result?),
            }
        }
    }

    /// What the path leads to, links followed.
    ///
    /// # Errors
    /// As `openat2(2)`; `NotFound` for a link that dangles.
    pub fn find(&self, path: &Path) -> io::Result<Found> {
        let file = File::from(self.openat2(path, OFlags::PATH, Mounts::Cross)?);
        let metadata = file.metadata()?;
        Ok(Found { file, metadata })
    }

    /// Whether the last part of the path is a link, dangling or not.
    #[must_use]
    pub fn is_link(&self, path: &Path) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        self.openat2(path, flags, Mounts::Cross)
            .and_then(|fd| File::from(fd).metadata())
            .is_ok_and(|metadata| metadata.is_symlink())
    }

    /// Whether something has the path's name in its folder, whatever it is and wherever it
    /// leads. What can't be told counts as there.
    #[must_use]
    pub fn has_entry(&self, path: &Path) -> bool {
        let found = self.openat2(path, OFlags::PATH | OFlags::NOFOLLOW, Mounts::Cross);
        !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Opens a file to read. Device nodes, pipes and sockets are refused unopened: opening
    /// one can have effects, or wait for ever.
    ///
    /// # Errors
    /// As `openat2(2)`; `InvalidInput` for what is no regular file.
    pub fn read(&self, path: &Path) -> io::Result<File> {
        self.find(path)?.must_be_file()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.openat2(path, flags, Mounts::Cross)?);
        // The path may lead elsewhere by now: what was opened decides.
        let metadata = file.metadata()?;
        Found { file, metadata }.must_be_file()
    }

    /// The entries of a folder, without `.` and `..`; names that aren't UTF-8 are left out,
    /// since neither a CDI file nor a loader's configuration can name them.
    ///
    /// # Errors
    /// As `openat2(2)` and `getdents(2)`.
    pub fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let fd = self.openat2(folder, OFlags::RDONLY | OFlags::DIRECTORY, Mounts::Cross)?;
        let mut names = Vec::new();
        for entry in Dir::new(fd)? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Opens a folder, to make or replace entries in it by their bare names.
    ///
    /// # Errors
    /// As `openat2(2)`; with [`Mounts::Stay`] `CrossesDevices` where a mount lies on the way.
    pub fn folder(&self, path: &Path, mounts: Mounts) -> io::Result<OwnedFd> {
        self.openat2(path, OFlags::RDONLY | OFlags::DIRECTORY, mounts)
    }

    /// The path, from this root, to which `found` really leads: no link left in it.
    ///
    /// # Errors
    /// As `readlink(2)` on `/proc/self/fd`; `InvalidData` if the file was moved out of the
    /// root meanwhile.
    pub fn real_path(&self, found: &Found) -> io::Result<PathBuf> {
        let root = fd_path(&self.fd)?;
        let path = fd_path(&found.file)?;
        path.strip_prefix(&root)
            .map(Path::to_path_buf)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "moved out of the root"))
    }
}

fn fd_path(fd: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Something that was found, held by an `O_PATH` descriptor or an open one.
#[derive(Debug)]
pub struct Found {
    file: File,
    /// Its type, numbers and times.
    pub metadata: Metadata,
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Found {
    fn must_be_file(self) -> io::Result<File> {
        if self.metadata.is_file() {
            Ok(self.file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, InRoot) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(dir.path().join("secret"), "host").unwrap();
        fs::write(root.join("etc/inside"), "inside").unwrap();
        let open = InRoot::open(&root).unwrap();
        (dir, open)
    }

    #[test]
    fn links_stay_inside() {
        let (dir, root) = tree();
        let base = dir.path().join("root");
        symlink("/etc/inside", base.join("absolute")).unwrap();
        symlink("../../../../etc/inside", base.join("etc/upwards")).unwrap();
        symlink("../secret", base.join("out")).unwrap();
        symlink(dir.path().join("secret"), base.join("out-absolute")).unwrap();
        for path in ["absolute", "etc/upwards", "/absolute"] {
            let found = root.find(Path::new(path)).unwrap();
            assert_eq!(root.real_path(&found).unwrap(), Path::new("etc/inside"), "{path}");
        }
        for path in ["out", "out-absolute", "../secret"] {
            let error = root.find(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{path}");
        }
    }

    #[test]
    fn a_dangling_link_is_an_entry() {
        let (dir, root) = tree();
        symlink("nowhere", dir.path().join("root/dangling")).unwrap();
        assert!(root.has_entry(Path::new("dangling")));
        assert!(root.find(Path::new("dangling")).is_err());
        assert!(root.has_entry(Path::new("etc/inside")));
        assert!(!root.has_entry(Path::new("etc/outside")));
        assert!(!root.has_entry(Path::new("nothing/inside")));
    }

    #[test]
    fn only_regular_files_are_read() {
        let (dir, root) = tree();
        rustix::fs::mknodat(
            CWD,
            dir.path().join("root/pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let error = root.read(Path::new("pipe")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(root.read(Path::new("etc")).is_err());
        assert!(root.read(Path::new("etc/inside")).is_ok());
    }

    #[test]
    fn names_are_the_folders_entries() {
        let (_dir, root) = tree();
        assert_eq!(root.names(Path::new("etc")).unwrap(), ["inside"]);
        assert_eq!(root.names(Path::new("/")).unwrap(), ["etc"]);
    }
}
