//! Small files that are replaced atomically and survive a power cut: the journal and the
//! CDI specs. The real side; the simulated one is in [`crate::sim`].
//!
//! A file is never changed in place, and a name never shows half a file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Boundary;

/// A file operation that failed, and what a person can do about it.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {}", path.display(), self.hint())]
pub struct FileError {
    /// What was tried: `write`, `read`, `remove`, …
    pub operation: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// For a failed `operation` on `path`.
    pub fn new(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_owned(), source }
    }

    fn hint(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "no space left; free disk space on the node"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the file system is read-only; mount the folder writable"
            }
            io::ErrorKind::PermissionDenied => "permission denied; the node agent runs as root",
            io::ErrorKind::NotFound => "no such file or folder; is the host path mounted?",
            _ => "the file system refused",
        }
    }
}

/// What tells that a file was replaced: its inode, size and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Inode number; a replaced file has another.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since the epoch.
    pub modified_ns: i128,
}

/// Files as the node agent uses them.
pub trait Files: Send + Sync {
    /// Replaces `path` with `bytes` under `mode`: after the return, and after any crash
    /// from then on, the name shows exactly these bytes; before, the old ones or none.
    ///
    /// # Errors
    /// The step that the kernel refused; the old file is then untouched.
    fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError>;

    /// As [`Files::replace`] as long as the machine runs, whatever dies on it. After a power
    /// cut the name may show the old bytes, none, or half of these: for what means nothing
    /// after a reboot.
    ///
    /// # Errors
    /// The step that the kernel refused; the old file is then untouched.
    fn replace_unsynced(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError>;

    /// The whole file, or None where there is none.
    ///
    /// # Errors
    /// When it is there but can't be read.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FileError>;

    /// Removes the file for good. True if it was there.
    ///
    /// # Errors
    /// When it is there but can't be removed.
    fn remove(&self, path: &Path) -> Result<bool, FileError>;

    /// As [`Files::remove`], but it may be back after a power cut.
    ///
    /// # Errors
    /// When it is there but can't be removed.
    fn remove_unsynced(&self, path: &Path) -> Result<bool, FileError>;

    /// Renames within one folder, for good.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError>;

    /// The files in a folder with their stamps, by name; none where there is no folder.
    ///
    /// # Errors
    /// When the folder is there but can't be read.
    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileStamp)>, FileError>;

    /// What a process left in a folder that died while it replaced a file: each leftover with
    /// the name of the file that it was to become. Only who has that file to himself may
    /// remove one.
    ///
    /// # Errors
    /// When the folder is there but can't be read.
    fn leftovers(&self, dir: &Path) -> Result<Vec<(OsString, OsString)>, FileError>;

    /// Creates a folder and its parents; `mode` is for the ones created.
    ///
    /// # Errors
    /// When the kernel refuses, or something else has that name.
    fn create_dir(&self, dir: &Path, mode: u32) -> Result<(), FileError>;
}

/// What a change must outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// A power cut.
    ForGood,
    /// The process.
    UntilReboot,
}

/// The node's own file system.
#[derive(Debug, Default)]
pub struct RealFiles {
    boundary: Boundary,
    serial: AtomicU64,
}

impl RealFiles {
    /// Passes every primitive step through `boundary`.
    #[must_use]
    pub fn new(boundary: Boundary) -> Self {
        Self { boundary, serial: AtomicU64::new(0) }
    }

    fn sync_folder(&self, path: &Path, kept: Kept) -> io::Result<()> {
        if kept == Kept::UntilReboot {
            return Ok(());
        }
        self.boundary.pass("sync folder");
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Temporary files begin with a dot and end in `.tmp`, so that no CDI runtime reads
    /// one and [`Files::list`] can leave them out.
    fn temporary(&self, path: &Path) -> PathBuf {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{serial}.tmp", std::process::id()));
        path.with_file_name(name)
    }

    /// Writes beside the name, then gives it the name.
    fn put(&self, path: &Path, bytes: &[u8], mode: u32, kept: Kept) -> Result<(), FileError> {
        let failed = |source| FileError::new("write", path, source);
        let temporary = self.temporary(path);
        let written = self.write_new(&temporary, bytes, mode, kept).and_then(|()| {
            self.boundary.pass("rename file");
            fs::rename(&temporary, path)
        });
        if let Err(error) = written {
            // What is left of a failed write is of no use to anyone, and may fill the disk.
            if let Err(second) = fs::remove_file(&temporary)
                && second.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %temporary.display(), %second, "temporary file stays");
            }
            return Err(failed(error));
        }
        self.sync_folder(path, kept).map_err(failed)
    }

    fn take(&self, path: &Path, kept: Kept) -> Result<bool, FileError> {
        let failed = |source| FileError::new("remove", path, source);
        self.boundary.pass("remove file");
        match fs::remove_file(path) {
            Ok(()) => self.sync_folder(path, kept).map(|()| true).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32, kept: Kept) -> io::Result<()> {
        self.boundary.pass("create file");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        self.boundary.pass("write file");
        file.write_all(bytes)?;
        // The umask must not decide who can read a CDI spec.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        if kept == Kept::UntilReboot {
            return Ok(());
        }
        self.boundary.pass("sync file");
        file.sync_all()
    }
}

impl Files for RealFiles {
    fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.put(path, bytes, mode, Kept::ForGood)
    }

    fn replace_unsynced(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.put(path, bytes, mode, Kept::UntilReboot)
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::new("read", path, error)),
        }
    }

    fn remove(&self, path: &Path) -> Result<bool, FileError> {
        self.take(path, Kept::ForGood)
    }

    fn remove_unsynced(&self, path: &Path) -> Result<bool, FileError> {
        self.take(path, Kept::UntilReboot)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.boundary.pass("rename file");
        fs::rename(from, to)
            .and_then(|()| self.sync_folder(to, Kept::ForGood))
            .map_err(|source| FileError::new("rename", from, source))
    }

    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileStamp)>, FileError> {
        let mut files = Vec::new();
        for entry in entries(dir)? {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            match entry.metadata() {
                Ok(data) if data.is_file() => files.push((entry.file_name(), stamp(&data))),
                Ok(_) => {}
                // Removed between the two calls: then it isn't there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(FileError::new("list", dir, error)),
            }
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(files)
    }

    fn leftovers(&self, dir: &Path) -> Result<Vec<(OsString, OsString)>, FileError> {
        let mut found = Vec::new();
        for entry in entries(dir)? {
            let name = entry.file_name();
            if let Some(becomes) = name.to_str().and_then(becomes).map(OsString::from) {
                found.push((name, becomes));
            }
        }
        Ok(found)
    }

    fn create_dir(&self, dir: &Path, mode: u32) -> Result<(), FileError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(dir)
            .map_err(|source| FileError::new("create folder", dir, source))
    }
}

/// What is in a folder; nothing where there is no folder.
fn entries(dir: &Path) -> Result<Vec<fs::DirEntry>, FileError> {
    match fs::read_dir(dir).and_then(Iterator::collect) {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(FileError::new("list", dir, error)),
    }
}

/// The file that a temporary one was to become: `.NAME.PID-SERIAL.tmp` gives `NAME`.
fn becomes(name: &str) -> Option<&str> {
    let (becomes, serial) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    let (pid, serial) = serial.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits(pid) && digits(serial)).then_some(becomes)
}

fn stamp(data: &fs::Metadata) -> FileStamp {
    FileStamp {
        inode: data.ino(),
        size: data.size(),
        modified_ns: i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn replaced_files_show_whole_contents_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let files = RealFiles::default();
        let path = dir.path().join("a.json");
        assert_eq!(files.read(&path).unwrap(), None);
        files.replace(&path, b"one", 0o644).unwrap();
        let first = files.list(dir.path()).unwrap();
        files.replace(&path, b"two", 0o644).unwrap();
        assert_eq!(files.read(&path).unwrap().unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let second = files.list(dir.path()).unwrap();
        assert_eq!(second.len(), 1, "no temporary file is left");
        assert_ne!(first, second, "the stamp tells a replaced file");
        assert!(files.remove(&path).unwrap());
        assert!(!files.remove(&path).unwrap());
    }

    #[test]
    fn what_a_dead_process_left_is_found_and_told_from_other_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".a.json.12-3.tmp", ".a.json.tmp", "a.json.12-3.tmp", ".b.x-1.tmp", "a.json"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        let found = RealFiles::default().leftovers(dir.path()).unwrap();
        assert_eq!(found, [(".a.json.12-3.tmp".into(), "a.json".into())]);
    }

    #[test]
    fn an_unwritable_folder_is_named_with_a_remedy() {
        let files = RealFiles::default();
        let error = files.replace(Path::new("/proc/none/a.json"), b"x", 0o600).unwrap_err();
        assert!(error.to_string().contains("/proc/none/a.json"), "{error}");
        assert_eq!(files.list(Path::new("/nonexistent-folder")).unwrap(), []);
    }
}
