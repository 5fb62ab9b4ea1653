//! A whole fake machine below one directory: driver root, `/proc`, `/sys`, `/dev`.
//!
//! `dir` stands for `/` of the host. Everything is made from the node's data; nothing looks
//! at the real machine.

pub(crate) mod dev;
mod driver_root;
pub mod elf;
mod layout;
mod procfs;
mod sysfs;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub use dev::DeviceNodes;
pub use layout::Layout;

use crate::node::Node;
use crate::spec::NodeSpec;
use crate::state_dir::{StateDir, StateError};

/// How to stage a node.
#[derive(Debug, Clone)]
pub struct StageOptions<'a> {
    /// Stands for `/` of the host; made if it isn't there.
    pub dir: &'a Path,
    /// The built `libnvml_sim.so`.
    pub lib: &'a Path,
    /// Where built stand-ins for the driver's programs lie (`nvidia-smi`, …). A program that
    /// isn't there becomes a script that says so and fails.
    pub programs: Option<&'a Path>,
    /// What stands in `/dev`.
    pub device_nodes: DeviceNodes,
    /// How the driver is installed.
    pub layout: Layout,
}

/// A machine that was staged.
#[derive(Debug, Clone)]
pub struct StagedNode {
    /// Stands for `/` of the host.
    pub host_root: PathBuf,
    /// Where the driver is installed; has `config/`, by which the library finds its state.
    pub driver_root: PathBuf,
    /// Stands for `/sys`.
    pub sysfs_root: PathBuf,
    /// Stands for `/proc`.
    pub proc_root: PathBuf,
    /// Has `dev/`: the driver root where that has one, else the host's root.
    pub dev_root: PathBuf,
    /// The state directory.
    pub state_dir: StateDir,
    /// `libnvidia-ml.so.1` in the driver root.
    pub library: PathBuf,
}

/// Why a node can't be staged.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A file or folder can't be made.
    #[error("can't make {}: {source}", path.display())]
    Make {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A device node can't be made.
    #[error("can't make device node {}: {source}; that needs root, or plain files", path.display())]
    Mknod {
        /// The node.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The built library or a program can't be copied.
    #[error("can't copy {}: {source}; build it with cargo build -p gpu-dra-nvml-sim", path.display())]
    Copy {
        /// What was to be copied.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The state directory can't be made.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Stages the node that a `--node` describes.
///
/// # Errors
/// [`StageError`], naming the file.
pub fn stage(spec: &NodeSpec, options: &StageOptions<'_>) -> Result<StagedNode, StageError> {
    stage_node(Node::build(spec), options)
}

/// Stages a node that was made or changed by hand.
///
/// # Errors
/// [`StageError`], naming the file.
pub fn stage_node(mut node: Node, options: &StageOptions<'_>) -> Result<StagedNode, StageError> {
    let paths = options.layout.paths();
    let tree = Tree { root: options.dir };
    let driver_root = tree.at(paths.driver_root);
    let dev_root = if paths.dev_in_driver_root { driver_root.clone() } else { tree.at("") };
    let up = "../".repeat(1 + paths.driver_root.split('/').filter(|part| !part.is_empty()).count());
    node.proc_root = format!("{up}proc");
    node.dev_root = if paths.dev_in_driver_root { "../dev".to_owned() } else { format!("{up}dev") };
    node.device_nodes = options.device_nodes;

    let library = driver_root::write(&Tree { root: &driver_root }, &paths, &node, options)?;
    sysfs::write(&tree, &node)?;
    procfs::write(&tree, &node)?;
    dev::write(&Tree { root: &dev_root }, &node)?;
    let state_dir = StateDir::create(&driver_root.join("config"), &node)?;
    Ok(StagedNode {
        host_root: options.dir.to_owned(),
        driver_root,
        sysfs_root: tree.at("sys"),
        proc_root: tree.at("proc"),
        dev_root,
        state_dir,
        library,
    })
}

/// Files below a root, named as on a machine.
pub(crate) struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn folder(&self, path: &str) -> Result<PathBuf, StageError> {
        let path = self.at(path);
        fs::create_dir_all(&path).map_err(make(&path))?;
        Ok(path)
    }

    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> Result<(), StageError> {
        let path = self.parented(path)?;
        fs::write(&path, content).map_err(make(&path))
    }

    /// A link, replacing one that is there.
    pub(crate) fn link(&self, path: &str, target: &str) -> Result<(), StageError> {
        let path = self.parented(path)?;
        if path.is_symlink() {
            fs::remove_file(&path).map_err(make(&path))?;
        }
        symlink(target, &path).map_err(make(&path))
    }

    /// The path with its folder made.
    pub(crate) fn parented(&self, path: &str) -> Result<PathBuf, StageError> {
        let path = self.at(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(make(folder))?;
        }
        Ok(path)
    }
}

pub(crate) fn make(path: &Path) -> impl Fn(io::Error) -> StageError + '_ {
    move |source| StageError::Make { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
