//! The directory where a simulated node keeps itself: `node.json`, `state.json`,
//! `control.json`, `calls.log`.
//!
//! Writers hold a lock on `state.lock` and replace files whole, so that readers need no
//! lock; a reader sees by [`Stamp`] whether a file is still the one that it knows.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::control::Control;
use crate::mig_proc;
use crate::node::Node;
use crate::state::HardwareState;

/// The environment variable that names a state directory.
pub const STATE_ENV: &str = "GPU_DRA_SIM_STATE";

const NODE: &str = "node.json";
const STATE: &str = "state.json";
const CONTROL: &str = "control.json";
const CALLS: &str = "calls.log";
const LOCK: &str = "state.lock";

/// A state directory that exists.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
    /// Read once: it never changes.
    node: Arc<OnceLock<Node>>,
}

/// Why a state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file can't be read or written.
    #[error("can't {what} {}: {source}", file.display())]
    Io {
        /// The deed.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file isn't what it should be.
    #[error("{} can't be understood: {source}", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// The node has no such GPU.
    #[error("the node has no GPU {position}")]
    NoSuchGpu {
        /// As asked.
        position: usize,
    },
}

/// Which version of a file it is; two equal ones are the same version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

impl StateDir {
    /// Makes the directory for a node that was never touched.
    ///
    /// # Errors
    /// Where it can't be written.
    pub fn create(path: &Path, node: &Node) -> Result<Self, StateError> {
        fs::create_dir_all(path).map_err(|source| io_error("create", path, source))?;
        let dir = Self::at(path);
        dir.replace(NODE, node)?;
        dir.replace(STATE, &HardwareState::fresh(node))?;
        dir.replace_lock()?;
        Ok(dir)
    }

    fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), node: Arc::default() }
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        path.join(NODE).is_file().then(|| Self::at(path))
    }

    /// The directory of the driver root that a file lies in: the nearest `config` above it.
    #[must_use]
    pub fn near(file: &Path) -> Option<Self> {
        let file = file.canonicalize().ok()?;
        file.ancestors().skip(1).take(8).find_map(|above| Self::open(&above.join("config")))
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The hardware.
    ///
    /// # Errors
    /// Where the file can't be read.
    pub fn node(&self) -> Result<Node, StateError> {
        self.fixed_node().cloned()
    }

    fn fixed_node(&self) -> Result<&Node, StateError> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let node = self.read(NODE)?;
        Ok(self.node.get_or_init(|| node))
    }

    /// The hardware's state.
    ///
    /// # Errors
    /// Where the file can't be read.
    pub fn state(&self) -> Result<HardwareState, StateError> {
        self.read(STATE)
    }

    /// Which version of the state it is; None where there is no file.
    #[must_use]
    pub fn state_stamp(&self) -> Option<Stamp> {
        stamp(&self.path.join(STATE))
    }

    /// What goes wrong; nothing where there is no file.
    ///
    /// # Errors
    /// Where the file can't be read.
    pub fn control(&self) -> Result<Control, StateError> {
        match self.read(CONTROL) {
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Control::default())
            }
            other => other,
        }
    }

    /// Which version of the control file it is; None where there is no file.
    #[must_use]
    pub fn control_stamp(&self) -> Option<Stamp> {
        stamp(&self.path.join(CONTROL))
    }

    /// Changes what goes wrong.
    ///
    /// # Errors
    /// Where the file can't be read or written.
    pub fn control_with(&self, change: impl FnOnce(&mut Control)) -> Result<(), StateError> {
        let _lock = self.lock()?;
        let mut control = self.control()?;
        change(&mut control);
        self.replace(CONTROL, &control)
    }

    /// Changes the hardware's state under the lock of all processes, and what `/proc` shows
    /// of it. Nothing is written if the change fails.
    ///
    /// # Errors
    /// Those of the change; a [`StateError`] where files can't be read or written.
    pub fn update<T, E: From<StateError>>(
        &self,
        change: impl FnOnce(&Node, &mut HardwareState) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.lock()?;
        let node = self.fixed_node()?;
        let before = self.state()?;
        let mut after = before.clone();
        let done = change(node, &mut after)?;
        if after != before {
            // First what can fail for want of a privilege: then nothing has happened.
            mig_proc::follow(&self.path, node, &before, &after)?;
            self.replace(STATE, &after)?;
        }
        Ok(done)
    }

    /// What a reboot of the machine does to the hardware.
    ///
    /// # Errors
    /// Where files can't be read or written.
    pub fn reboot(&self) -> Result<(), StateError> {
        self.update(|node, state| {
            state.reboot(node);
            Ok::<_, StateError>(())
        })?;
        mig_proc::new_boot_id(&self.path.join(&self.fixed_node()?.proc_root))
    }

    /// What a reset of one GPU does to it; `position` is that in [`Node::gpus`].
    ///
    /// # Errors
    /// Where files can't be read or written, or the node has no such GPU.
    pub fn reset_gpu(&self, position: usize) -> Result<(), StateError> {
        self.update(|_, state| {
            let gpu = state.gpus.get_mut(position);
            gpu.ok_or(StateError::NoSuchGpu { position })?.reset();
            Ok(())
        })
    }

    /// How often each function was called while the call log was on.
    ///
    /// # Errors
    /// Where the log can't be read.
    pub fn calls(&self) -> Result<BTreeMap<String, u64>, StateError> {
        let file = self.path.join(CALLS);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(source) if source.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(io_error("read", &file, source)),
        };
        let mut counts = BTreeMap::new();
        for function in text.lines().filter_map(|line| line.split(' ').nth(1)) {
            *counts.entry(function.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Starts the call log anew.
    ///
    /// # Errors
    /// Where the log can't be written.
    pub fn clear_calls(&self) -> Result<(), StateError> {
        let file = self.path.join(CALLS);
        fs::write(&file, "").map_err(|source| io_error("clear", &file, source))
    }

    /// Adds one call to the log: process, function, GPU.
    ///
    /// # Errors
    /// Where the log can't be written.
    pub fn log_call(&self, function: &str, gpu: Option<usize>) -> Result<(), StateError> {
        let file = self.path.join(CALLS);
        let gpu = gpu.map_or_else(|| "-".to_owned(), |gpu| gpu.to_string());
        let line = format!("{} {function} {gpu}\n", std::process::id());
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut log| log.write_all(line.as_bytes()))
            .map_err(|source| io_error("write", &file, source))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, StateError> {
        let file = self.path.join(name);
        let text = fs::read(&file).map_err(|source| io_error("read", &file, source))?;
        serde_json::from_slice(&text).map_err(|source| StateError::Format { file, source })
    }

    fn replace<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StateError> {
        let file = self.path.join(name);
        let text = serde_json::to_vec_pretty(value)
            .map_err(|source| StateError::Format { file: file.clone(), source })?;
        let new = self.path.join(format!(".{name}.{}", std::process::id()));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &file))
            .map_err(|source| io_error("replace", &file, source))
    }

    fn replace_lock(&self) -> Result<(), StateError> {
        let file = self.path.join(LOCK);
        fs::write(&file, "").map_err(|source| io_error("create", &file, source))
    }

    /// Held until dropped.
    fn lock(&self) -> Result<File, StateError> {
        let file = self.path.join(LOCK);
        let lock = OpenOptions::new().write(true).open(&file);
        lock.and_then(|lock| lock.lock().map(|()| lock))
            .map_err(|source| io_error("lock", &file, source))
    }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(file).ok()?;
    Some(Stamp {
        inode: metadata.ino(),
        seconds: metadata.mtime(),
        nanoseconds: metadata.mtime_nsec(),
        size: metadata.size(),
    })
}

pub(crate) fn io_error(what: &'static str, file: &Path, source: io::Error) -> StateError {
    StateError::Io { what, file: file.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Event;
    use crate::spec::NodeSpec;

    fn dir(text: &str) -> (tempfile::TempDir, StateDir) {
        let temp = tempfile::tempdir().unwrap();
        let node = Node::build(&NodeSpec::parse(text).unwrap());
        let dir = StateDir::create(&temp.path().join("driver/config"), &node).unwrap();
        (temp, dir)
    }

    #[test]
    fn a_change_is_there_for_the_next_process() {
        let (_temp, dir) = dir("2xh100:mig=on");
        let before = dir.state_stamp();
        dir.update(|node, state| {
            let table = node.gpus[1].model.mig.clone().unwrap();
            state.gpus[1]
                .create_gpu_instance(&table, 19, None)
                .map_err(|_| StateError::NoSuchGpu { position: 1 })
        })
        .unwrap();
        assert_ne!(dir.state_stamp(), before);
        let again = StateDir::open(dir.path()).unwrap();
        assert_eq!(again.state().unwrap().gpus[1].instances.len(), 1);
        again.reboot().unwrap();
        assert!(dir.state().unwrap().gpus[1].instances.is_empty());
    }

    #[test]
    fn a_change_that_changes_nothing_writes_nothing() {
        let (_temp, dir) = dir("h100");
        let before = dir.state_stamp();
        dir.update(|_, _| Ok::<_, StateError>(())).unwrap();
        assert_eq!(dir.state_stamp(), before);
    }

    #[test]
    fn it_is_found_from_a_library_in_the_driver_root() {
        let (temp, dir) = dir("h100");
        let lib = temp.path().join("driver/usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libnvidia-ml.so.1"), "").unwrap();
        let found = StateDir::near(&lib.join("libnvidia-ml.so.1")).unwrap();
        assert_eq!(found.node().unwrap(), dir.node().unwrap());
        assert!(StateDir::near(temp.path()).is_none());
    }

    #[test]
    fn control_and_calls_add_up() {
        let (_temp, dir) = dir("h100");
        assert_eq!(dir.control_stamp(), None);
        dir.control_with(|control| control.events.push(Event::xid("0", 79))).unwrap();
        dir.control_with(|control| control.events.push(Event::xid("0", 31))).unwrap();
        assert_eq!(dir.control().unwrap().events.len(), 2);
        dir.log_call("nvmlInit_v2", None).unwrap();
        dir.log_call("nvmlDeviceGetName", Some(0)).unwrap();
        dir.log_call("nvmlDeviceGetName", Some(0)).unwrap();
        assert_eq!(dir.calls().unwrap()["nvmlDeviceGetName"], 2);
        dir.clear_calls().unwrap();
        assert!(dir.calls().unwrap().is_empty());
    }
}
