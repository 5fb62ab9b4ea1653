//! A simulated node: the built simulated NVML staged in a temporary folder.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use gpu_dra_model::inventory::{Mig, MigProfile};
use gpu_dra_model::{GpuUuid, Inventory};
use gpu_dra_nvml::{Driver, Session, Trees};
use gpu_dra_sim_data::control::{Control, Fault, GpuControl};
use gpu_dra_sim_data::{
    self as sim, DeviceNodes, Layout, NodeSpec, StageOptions, StagedNode, StateDir, stage_node,
};
use tempfile::TempDir;

/// A staged node and its trees.
pub(crate) struct Node {
    _dir: TempDir,
    pub(crate) staged: StagedNode,
    pub(crate) trees: Trees,
}

impl Node {
    /// Stages what `--node` would.
    pub(crate) fn stage(spec: &str) -> Self {
        Self::stage_changed(spec, |_| {})
    }

    /// Stages what `--node` would, with some of its hardware changed.
    pub(crate) fn stage_changed(spec: &str, change: impl FnOnce(&mut sim::Node)) -> Self {
        let dir = TempDir::new().unwrap();
        let options = StageOptions {
            dir: dir.path(),
            lib: library(),
            programs: None,
            device_nodes: DeviceNodes::PlainFiles,
            layout: Layout::Host,
        };
        let mut node = sim::Node::build(&NodeSpec::parse(spec).unwrap());
        change(&mut node);
        let staged = stage_node(node, &options).unwrap();
        let trees = Trees {
            sysfs: staged.sysfs_root.clone(),
            proc: staged.proc_root.clone(),
            dev: staged.dev_root.join("dev"),
        };
        Self { _dir: dir, staged, trees }
    }

    pub(crate) fn session(&self) -> Session {
        Session::open(&self.staged.library, &self.trees).unwrap()
    }

    pub(crate) fn driver(&self) -> Driver {
        let library = self.staged.library.clone();
        Driver::new(move || Ok(library.clone()), self.trees.clone())
    }

    pub(crate) fn state(&self) -> &StateDir {
        &self.staged.state_dir
    }

    pub(crate) fn control(&self, change: impl FnOnce(&mut Control)) {
        self.state().control_with(change).unwrap();
    }

    /// Changes what is wrong with the GPU at a position.
    pub(crate) fn gpu(&self, position: &str, change: impl FnOnce(&mut GpuControl)) {
        self.control(|control| change(control.gpus.entry(position.to_owned()).or_default()));
    }

    /// Makes a function fail on the GPU at a position, and no other function on any.
    pub(crate) fn fail(&self, function: &str, position: &str, error: u32) {
        self.control(|control| {
            control.faults = vec![Fault {
                function: function.to_owned(),
                gpu: Some(position.to_owned()),
                error: Some(error),
                ..Fault::default()
            }];
        });
    }

    /// Nothing is wrong any more.
    pub(crate) fn heal(&self) {
        self.control(|control| (control.faults, control.gpus) = Default::default());
    }

    /// The MIG profiles of the first GPU.
    pub(crate) fn profiles(&self) -> Vec<MigProfile> {
        match self.session().probe().unwrap().gpus.swap_remove(0).mig {
            Mig::Supported { profiles, .. } => profiles,
            Mig::Unsupported => vec![],
        }
    }

    /// How many NVML calls `act` makes.
    pub(crate) fn calls(&self, act: impl FnOnce()) -> u64 {
        self.control(|control| control.call_log = true);
        self.state().clear_calls().unwrap();
        act();
        let calls = self.state().calls().unwrap().values().sum();
        self.control(|control| control.call_log = false);
        calls
    }
}

/// UUIDs of the GPUs that answered, in order.
pub(crate) fn uuids(inventory: &Inventory) -> Vec<GpuUuid> {
    inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// The UUID of the first GPU.
pub(crate) fn first(inventory: &Inventory) -> GpuUuid {
    inventory.gpus[0].uuid.clone()
}

/// The simulated NVML, built by the cargo that runs this test.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "-p", "gpu-dra-nvml-sim"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo must be there to build the simulated NVML");
        assert!(built.success(), "the simulated NVML must build");
        // target/<profile>/deps/<this test>; plain `cargo build` fills target/debug.
        let test = env::current_exe().unwrap();
        let library = test.ancestors().nth(3).unwrap().join("debug/libnvml_sim.so");
        assert!(library.is_file(), "{} must be there", library.display());
        library
    })
}
