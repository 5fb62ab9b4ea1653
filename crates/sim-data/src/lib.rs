//! Simulated GPU nodes, without the library that serves them.
//!
//! ```text
//! --node 8xh100 ─▶ NodeSpec ─▶ Node ──stage──▶ driver root with libnvidia-ml.so.1, nvidia-smi
//!                                              /proc, /sys, /dev
//!                                              config/node.json     the hardware, fixed
//!                                              config/state.json    MIG, modes: outlives processes
//!                                              config/control.json  what goes wrong, yours to edit
//! ```
//!
//! The simulated library finds `config/` above its own file, or where the environment
//! variable `GPU_DRA_SIM_STATE` says. Several processes may use one node at a time.
//!
//! ```no_run
//! use gpu_dra_sim_data::{Artifacts, DeviceNodes, Layout, NodeSpec, StageOptions, stage};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let built = Artifacts::build_for_tests()?; // a binary: Artifacts::in_folder(its folder)
//! let options = StageOptions {
//!     dir: "/tmp/node-a".as_ref(),
//!     lib: &built.library,
//!     programs: Some(&built.programs),
//!     device_nodes: DeviceNodes::PlainFiles,
//!     layout: Layout::Host,
//! };
//! let node = stage(&NodeSpec::parse("8xh100")?, &options)?;
//! println!("load {}", node.library.display());
//! node.state_dir.control_with(|control| control.call_log = true)?;
//! # Ok(())
//! # }
//! ```
//!
//! # The control file
//!
//! Write `control.json` into the state directory while everything runs, by hand or through
//! [`StateDir::control_with`]; the library sees it at the next call. All keys may be left
//! out. GPUs are named by position (NVML's index when all are there), UUID or PCI address.
//!
//! ```json
//! {
//!   "init": 9,
//!   "noGpus": false,
//!   "callLog": true,
//!   "hideAbsentNodes": false
//! }
//! ```
//!
//! - `init`: what `nvmlInit` answers (`faults` don't reach it). 9 the driver isn't loaded, 18 library and driver
//!   differ, 4 no permission.
//! - `noGpus`: the driver runs and counts zero.
//! - `callLog`: every call becomes a line in `calls.log`; [`StateDir::calls`] counts them.
//!   The environment variable `GPU_DRA_SIM_CALL_LOG` does the same for one process.
//! - `hideAbsentNodes`: GPUs whose `/dev/nvidiaN` isn't there are not enumerated.
//!
//! ```json
//! {
//!   "events": [
//!     {"gpu": "0", "xid": 79},
//!     {"gpu": "3", "xid": 43, "gpuInstance": 7, "computeInstance": 0},
//!     {"gpu": "1", "type": 2, "data": 1}
//!   ],
//!   "gpus": {
//!     "0": {"lost": "error"},
//!     "1": {"lost": "dropped"},
//!     "2": {"ecc": {"volatileUncorrected": 3}, "remapped": {"pending": true}, "recoveryAction": 1},
//!     "3": {"fabricState": 2, "nvlinksDown": [0, 1], "memoryUsedMib": 1024},
//!     "4": {"migModeHeld": true, "instancesHeld": true},
//!     "*": {"resetRefused": true, "processes": [{"pid": 4711, "memoryMib": 500, "smPercent": 30}]}
//!   }
//! }
//! ```
//!
//! - `events`: appending one raises it, for event sets that were made before.
//! - `gpus`: the state of single GPUs; see [`control::GpuControl`] for all keys.
//!
//! ```json
//! {
//!   "faults": [
//!     {"function": "nvmlDeviceGetName", "gpu": "1", "error": 999, "times": 2},
//!     {"function": "nvmlDeviceCreateGpuInstance*", "delayMs": 500},
//!     {"function": "nvmlDeviceGetUUID", "garbage": 1}
//!   ]
//! }
//! ```
//!
//! - `faults`: the first entry that matches a call makes it fail, take longer, or both; with
//!   `garbage` it succeeds and answers nonsense, which the number chooses.
//!   `function` may end in `*`; `times` counts calls of each process.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod control;
mod identity;
pub mod mig_proc;
pub mod mig_rules;
pub mod mig_table;
pub mod node;
pub mod node_type;
pub mod spec;
mod stage;
pub mod state;
pub mod state_dir;
pub mod topology;
pub mod trailer;

pub use artifacts::Artifacts;
pub use identity::mig_uuid;
pub use node::Node;
pub use node_type::NodeType;
pub use spec::NodeSpec;
pub use stage::{
    DeviceNodes, Layout, StageError, StageOptions, StagedNode, elf, stage, stage_node,
};
pub use state_dir::{STATE_ENV, StateDir, StateError};
