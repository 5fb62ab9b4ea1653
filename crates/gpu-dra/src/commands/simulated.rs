//! A simulated node for commands that take `--node 8xh100`: staged in a temporary folder
//! that goes with it, served by the simulated NVML library beside this program.

use std::path::Path;

use anyhow::Context as _;
use gpu_dra_sim_data::{Artifacts, DeviceNodes, Layout, NodeSpec, StageOptions, StagedNode, stage};

use super::place::Place;

/// A staged node.
pub(crate) struct Simulated {
    /// Where everything is.
    pub(crate) staged: StagedNode,
    /// The folder; removed with this.
    _dir: tempfile::TempDir,
}

impl Simulated {
    /// Stages the node under a new temporary folder.
    pub(crate) fn stage(node: &str) -> anyhow::Result<Self> {
        let dir = temporary_folder()?;
        let program = std::env::current_exe().context("can't find this program")?;
        let parts = program.parent().unwrap_or(Path::new("/"));
        let staged = stage_at(node, &dir.path().join("node"), parts)?;
        Ok(Self { staged, _dir: dir })
    }

    /// The flags that make a command look at it.
    pub(crate) fn place(&self) -> Place {
        Place {
            driver_root: self.staged.driver_root.clone(),
            driver_root_here: None,
            host_root_here: self.staged.host_root.clone(),
            sysfs: self.staged.sysfs_root.clone(),
            proc: self.staged.proc_root.clone(),
            dev: self.staged.dev_root.join("dev"),
        }
    }
}

/// A folder of our own that goes with its value.
pub(crate) fn temporary_folder() -> anyhow::Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new().prefix("gpu-dra-").tempdir();
    dir.context("can't make a temporary folder")
}

/// Stages the node in `dir`, from the library and programs in the folder `parts`.
pub(crate) fn stage_at(node: &str, dir: &Path, parts: &Path) -> anyhow::Result<StagedNode> {
    let spec = NodeSpec::parse(node)?;
    let artifacts = Artifacts::in_folder(parts).with_context(|| {
        format!("no simulated NVML in {}; build it with `cargo xtask build`", parts.display())
    })?;
    let options = StageOptions {
        dir,
        lib: &artifacts.library,
        programs: Some(&artifacts.programs),
        device_nodes: DeviceNodes::PlainFiles,
        layout: Layout::Host,
    };
    Ok(stage(&spec, &options)?)
}
