//! Staged nodes and what the tests ask of them.

use std::io::Write;
use std::path::Path;

use gpu_dra_driverroot::{DeviceNodes, DriverRoot, Hook, NodeFinder};
use gpu_dra_model::ids::PciBusId;
use gpu_dra_sim_data::{self as sim, Layout, Node, NodeSpec, StageOptions, StagedNode, elf};

pub(crate) const VERSION: &str = NodeSpec::DEFAULT_DRIVER;

/// A node with two GPUs, under a folder that stands for the host's `/`.
pub(crate) struct Staged {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) node: StagedNode,
}

impl Staged {
    pub(crate) fn new(layout: Layout, device_nodes: sim::DeviceNodes) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lib = dir.path().join("built-libnvidia-ml.so");
        std::fs::write(&lib, elf::shared_object("libnvidia-ml.so.1")).unwrap();
        let options = StageOptions {
            dir: &dir.path().join("host"),
            lib: &lib,
            programs: None,
            device_nodes,
            layout,
        };
        let node = sim::stage(&NodeSpec::parse("2xh100").unwrap(), &options).unwrap();
        Self { dir, node }
    }

    /// Without root: plain files stand for devices.
    pub(crate) fn plain(layout: Layout) -> Self {
        Self::new(layout, sim::DeviceNodes::PlainFiles)
    }

    /// The driver root, which the "host" knows by the path on a node of that layout.
    pub(crate) fn root(&self) -> DriverRoot {
        let host_root = self.node.host_root.clone();
        let below = self.node.driver_root.strip_prefix(&host_root).unwrap();
        DriverRoot {
            host: Path::new("/").join(below),
            here: self.node.driver_root.clone(),
            host_root,
        }
    }

    pub(crate) fn finder(&self, policy: DeviceNodes) -> NodeFinder {
        let mut finder = NodeFinder::new(self.root(), policy);
        finder.proc.clone_from(&self.node.proc_root);
        finder.sys.clone_from(&self.node.sysfs_root);
        finder
    }

    /// The PCI addresses of its GPUs.
    pub(crate) fn pci(&self) -> Vec<PciBusId> {
        let node = Node::build(&NodeSpec::parse("2xh100").unwrap());
        node.gpus.iter().map(|gpu| PciBusId::new(gpu.place.pci.to_string()).unwrap()).collect()
    }

    /// An executable file in the hook's place.
    pub(crate) fn hook(&self) -> Hook {
        let here = self.dir.path().join("gpu-dra-hook");
        std::fs::write(&here, "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&here, mode).unwrap();
        Hook::find(Path::new("/var/lib/kubelet/plugins/gpu.nvidia.com/gpu-dra-hook"), &here)
            .unwrap()
    }
}

/// Whether this process may make device nodes; says what was skipped where not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped(&format!("{test} needs root"));
    }
    root
}

/// Says what can't be tested here, past the test harness, which hides what a passing test
/// prints.
pub(crate) fn skipped(what: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {what}\n").as_bytes()).unwrap();
}
