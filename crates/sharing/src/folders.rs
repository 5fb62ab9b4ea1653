//! The daemons' folders and notes in them, behind a trait so that crash tests have a simulated side.
//!
//! Only ever touches what lies in the run folder.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gpu_dra_host::FileError;

/// Makes and removes folders and notes. None of it has to survive a power cut: the run folder
/// is a tmpfs.
pub trait Folders: Send + Sync {
    /// # Errors
    /// When nobody can tell.
    fn exists(&self, dir: &Path) -> Result<bool, FileError>;

    /// Makes the folder and its parents, and gives it exactly this mode.
    ///
    /// # Errors
    /// When the kernel refuses, or something else has that name.
    fn create(&self, dir: &Path, mode: u32) -> Result<(), FileError>;

    /// Removes the folder with all that is in it; there need be none.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove_tree(&self, dir: &Path) -> Result<(), FileError>;

    /// Writes a note into a folder.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn note(&self, file: &Path, text: &str) -> Result<(), FileError>;

    /// Reads a note, if there is one.
    ///
    /// # Errors
    /// When it is there but can't be read.
    fn noted(&self, file: &Path) -> Result<Option<String>, FileError>;

    /// The names of what is in a folder; none where there is no folder.
    ///
    /// # Errors
    /// When it is there but can't be read.
    fn names(&self, dir: &Path) -> Result<Vec<String>, FileError>;
}

/// The node's own.
#[derive(Debug, Default)]
pub struct RealFolders;

impl Folders for RealFolders {
    fn exists(&self, dir: &Path) -> Result<bool, FileError> {
        dir.try_exists().map_err(|source| FileError::new("look at", dir, source))
    }

    fn create(&self, dir: &Path, mode: u32) -> Result<(), FileError> {
        // The umask must not decide who gets at a daemon.
        fs::create_dir_all(dir)
            .and_then(|()| fs::set_permissions(dir, Permissions::from_mode(mode)))
            .map_err(|source| FileError::new("create folder", dir, source))
    }

    fn remove_tree(&self, dir: &Path) -> Result<(), FileError> {
        match fs::remove_dir_all(dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(FileError::new("remove folder", dir, source))
            }
            _ => Ok(()),
        }
    }

    fn note(&self, file: &Path, text: &str) -> Result<(), FileError> {
        fs::write(file, text).map_err(|source| FileError::new("write", file, source))
    }

    fn noted(&self, file: &Path) -> Result<Option<String>, FileError> {
        match fs::read_to_string(file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError::new("read", file, source)),
        }
    }

    fn names(&self, dir: &Path) -> Result<Vec<String>, FileError> {
        let entries = match fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(FileError::new("list", dir, source)),
        };
        let mut names: Vec<String> =
            entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
}
