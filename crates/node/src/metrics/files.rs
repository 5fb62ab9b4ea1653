//! Files of the journal and CDI specs, each act timed for its phase.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_dra_host::{FileError, FileStamp, Files};

use super::calls::{Phase, in_phase};

/// [`Files`] that are timed: those in the folder of CDI specs as [`Phase::Cdi`], all others as
/// [`Phase::Journal`].
pub(crate) struct MeasuredFiles {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) cdi: PathBuf,
}

impl MeasuredFiles {
    fn at<T>(&self, path: &Path, act: impl FnOnce(&dyn Files) -> T) -> T {
        let phase = if path.starts_with(&self.cdi) { Phase::Cdi } else { Phase::Journal };
        in_phase(phase, || act(self.files.as_ref()))
    }
}

impl Files for MeasuredFiles {
    fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.at(path, |files| files.replace(path, bytes, mode))
    }

    fn replace_unsynced(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
        self.at(path, |files| files.replace_unsynced(path, bytes, mode))
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
        self.at(path, |files| files.read(path))
    }

    fn remove(&self, path: &Path) -> Result<bool, FileError> {
        self.at(path, |files| files.remove(path))
    }

    fn remove_unsynced(&self, path: &Path) -> Result<bool, FileError> {
        self.at(path, |files| files.remove_unsynced(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.at(from, |files| files.rename(from, to))
    }

    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileStamp)>, FileError> {
        self.at(dir, |files| files.list(dir))
    }

    fn leftovers(&self, dir: &Path) -> Result<Vec<(OsString, OsString)>, FileError> {
        self.at(dir, |files| files.leftovers(dir))
    }

    fn create_dir(&self, dir: &Path, mode: u32) -> Result<(), FileError> {
        self.at(dir, |files| files.create_dir(dir, mode))
    }
}
