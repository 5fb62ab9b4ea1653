//! Staged nodes to test on.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpu_dra_sim_data::{Artifacts, DeviceNodes, Layout, NodeSpec, StageOptions, StagedNode, stage};
use nvml_wrapper::Nvml;

/// A node in a folder of its own, gone when dropped.
pub(crate) struct Machine {
    pub(crate) node: StagedNode,
    // Dropped last.
    _dir: tempfile::TempDir,
}

pub(crate) fn artifacts() -> Artifacts {
    Artifacts::build_for_tests().unwrap()
}

impl Machine {
    pub(crate) fn new(spec: &str) -> Self {
        Self::with_layout(spec, Layout::Host)
    }

    pub(crate) fn with_layout(spec: &str, layout: Layout) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let built = artifacts();
        let options = StageOptions {
            dir: dir.path(),
            lib: &built.library,
            programs: Some(&built.programs),
            device_nodes: DeviceNodes::PlainFiles,
            layout,
        };
        let node = stage(&NodeSpec::parse(spec).unwrap(), &options).unwrap();
        Self { node, _dir: dir }
    }

    pub(crate) fn nvml(&self) -> Nvml {
        self.try_nvml().unwrap()
    }

    pub(crate) fn try_nvml(&self) -> Result<Nvml, nvml_wrapper::error::NvmlError> {
        Nvml::builder().lib_path(self.node.library.as_os_str()).init()
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let place = |below: &str| self.node.driver_root.join(below).join(name);
        [place("usr/bin"), place("bin")].into_iter().find(|file| file.is_file()).unwrap()
    }

    /// Runs `nvidia-smi` as another process.
    pub(crate) fn smi(&self, args: &[&str]) -> (i32, String) {
        finished(Command::new(self.program("nvidia-smi")).args(args).output().unwrap())
    }
}

pub(crate) fn finished(output: Output) -> (i32, String) {
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), text)
}

pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Tells that a test can't run here; past the capture of output, so that CI sees it.
pub(crate) fn skipped(missing: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {missing}\n").as_bytes()).unwrap();
}
