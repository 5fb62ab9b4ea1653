//! The simulated side: files in memory that lose what was not synced, fail at a chosen
//! effect, and die there. One [`SimFiles`] outlives the "processes" that use it.
//!
//! Never used by a running node agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::files::{FileError, FileStamp, Files};

/// What happens at the chosen effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the effect; later calls fail until [`SimFiles::restart`].
    Die,
    /// The effect fails with this kind of error, once.
    Fail(io::ErrorKind),
    /// This effect and all after it fail until [`SimFiles::restart`]: a full disk.
    FailFrom(io::ErrorKind),
}

#[derive(Debug, Default)]
struct State {
    /// What a reader sees now.
    seen: BTreeMap<PathBuf, (Vec<u8>, u64)>,
    /// What is left after a crash: synced content under synced names.
    durable: BTreeMap<PathBuf, (Vec<u8>, u64)>,
    effects: u64,
    inode: u64,
    fault: Option<(u64, Fault)>,
    dead: bool,
}

/// Files in memory.
#[derive(Debug, Default)]
pub struct SimFiles(Mutex<State>);

impl SimFiles {
    /// Arms one fault at the `n`-th effect from now, counted from 1.
    pub fn arm(&self, n: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.effects + n, fault));
    }

    /// The power comes back: unsynced data is gone, faults are disarmed.
    pub fn restart(&self) {
        let mut state = self.state();
        state.seen = state.durable.clone();
        state.fault = None;
        state.dead = false;
    }

    /// Disarms a fault that didn't kill; nothing is lost.
    pub fn disarm(&self) {
        self.state().fault = None;
    }

    /// How many effects have happened since the beginning.
    #[must_use]
    pub fn effects(&self) -> u64 {
        self.state().effects
    }

    /// Has the armed [`Fault::Die`] struck?
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// All files with their contents, as a reader sees them.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.state().seen.iter().map(|(path, (bytes, _))| (path.clone(), bytes.clone())).collect()
    }

    /// Counts an effect of somebody else (a GPU's, say) among ours, so that it can fail or
    /// die in turn.
    ///
    /// # Errors
    /// The armed fault.
    pub fn effect(&self, what: &'static str) -> Result<(), FileError> {
        self.state().step(what, Path::new("effect"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn step(&mut self, operation: &'static str, path: &Path) -> Result<(), FileError> {
        let failed = |kind: io::ErrorKind| Err(FileError::new(operation, path, kind.into()));
        if self.dead {
            return failed(io::ErrorKind::Interrupted);
        }
        self.effects += 1;
        match self.fault {
            Some((at, Fault::Die)) if self.effects == at => {
                self.dead = true;
                failed(io::ErrorKind::Interrupted)
            }
            Some((at, Fault::Fail(kind))) if self.effects == at => failed(kind),
            Some((at, Fault::FailFrom(kind))) if self.effects >= at => failed(kind),
            _ => Ok(()),
        }
    }
}

impl State {
    /// Makes every name in the file's folder durable, also what an earlier call left undone.
    fn sync_folder(&mut self, path: &Path) -> Result<(), FileError> {
        self.step("sync folder", path)?;
        let inside = |other: &PathBuf| other.parent() == path.parent();
        self.durable.retain(|other, _| !inside(other));
        let seen = self.seen.iter().filter(|(other, _)| inside(other));
        self.durable.extend(seen.map(|(path, entry)| (path.clone(), entry.clone())));
        Ok(())
    }
}

impl Files for SimFiles {
    fn replace(&self, path: &Path, bytes: &[u8], _mode: u32) -> Result<(), FileError> {
        let mut state = self.state();
        state.step("write", path)?;
        state.step("sync file", path)?;
        state.step("rename", path)?;
        state.inode += 1;
        let entry = (bytes.to_vec(), state.inode);
        state.seen.insert(path.to_owned(), entry);
        state.sync_folder(path)
    }

    fn replace_unsynced(&self, path: &Path, bytes: &[u8], _mode: u32) -> Result<(), FileError> {
        let mut state = self.state();
        state.step("write", path)?;
        state.step("rename", path)?;
        state.inode += 1;
        let entry = (bytes.to_vec(), state.inode);
        state.seen.insert(path.to_owned(), entry);
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FileError> {
        Ok(self.state().seen.get(path).map(|(bytes, _)| bytes.clone()))
    }

    fn remove(&self, path: &Path) -> Result<bool, FileError> {
        let mut state = self.state();
        state.step("remove", path)?;
        let was_there = state.seen.remove(path).is_some();
        if was_there {
            state.sync_folder(path)?;
        }
        Ok(was_there)
    }

    fn remove_unsynced(&self, path: &Path) -> Result<bool, FileError> {
        let mut state = self.state();
        state.step("remove", path)?;
        Ok(state.seen.remove(path).is_some())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        let mut state = self.state();
        state.step("rename", from)?;
        let moved = state.seen.remove(from);
        let moved =
            moved.ok_or_else(|| FileError::new("rename", from, io::ErrorKind::NotFound.into()))?;
        state.seen.insert(to.to_owned(), moved);
        state.sync_folder(to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileStamp)>, FileError> {
        let state = self.state();
        let inside = state.seen.iter().filter(|(path, _)| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|(path, (bytes, inode))| {
                let size = u64::try_from(bytes.len()).ok()?;
                Some((
                    path.file_name()?.to_owned(),
                    FileStamp { inode: *inode, size, modified_ns: 0 },
                ))
            })
            .collect())
    }

    /// Never any: here a file is replaced in one step of memory.
    fn leftovers(&self, _dir: &Path) -> Result<Vec<(OsString, OsString)>, FileError> {
        Ok(Vec::new())
    }

    fn create_dir(&self, _dir: &Path, _mode: u32) -> Result<(), FileError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_synced_is_gone_after_a_crash() {
        let path = Path::new("/a/b");
        for effect in 1..=4 {
            let files = SimFiles::default();
            files.replace(path, b"old", 0).unwrap();
            files.arm(effect, Fault::Die);
            assert!(files.replace(path, b"new", 0).is_err());
            assert!(files.read(path).is_ok());
            files.restart();
            assert_eq!(files.read(path).unwrap().unwrap(), b"old", "died at effect {effect}");
        }
    }

    #[test]
    fn what_is_not_to_be_synced_is_seen_until_the_power_cut() {
        let files = SimFiles::default();
        let (old, new) = (Path::new("/a/old"), Path::new("/a/new"));
        files.replace(old, b"old", 0).unwrap();
        files.replace_unsynced(new, b"new", 0).unwrap();
        assert!(files.remove_unsynced(old).unwrap());
        assert_eq!(files.contents().into_keys().collect::<Vec<_>>(), [new]);
        files.restart();
        assert_eq!(files.contents().into_keys().collect::<Vec<_>>(), [old]);
    }
}
