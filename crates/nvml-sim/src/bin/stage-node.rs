//! Stages a simulated node from the command line, for tests that run the driver as an
//! installed program:
//!
//! ```text
//! stage-node 8xh100 FOLDER [gpu-operator]
//! ```
//!
//! FOLDER stands for the host's `/`. Device nodes are real ones, so this needs root. The
//! library and the programs are those beside this one. Only ever writes below FOLDER.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use gpu_dra_sim_data::{Artifacts, DeviceNodes, Layout, NodeSpec, StageOptions, stage};

const USAGE: &str = "usage: stage-node NODE FOLDER [host|gpu-operator|gke|bottlerocket]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("stage-node: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), String> {
    let (node, folder, layout) = match args {
        [node, folder] => (node, folder, Layout::Host),
        [node, folder, name] => (node, folder, layout(name).ok_or(USAGE)?),
        _ => return Err(USAGE.to_owned()),
    };
    let spec = NodeSpec::parse(node).map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let artifacts = Artifacts::in_folder(beside)
        .ok_or_else(|| format!("no simulated NVML in {}", beside.display()))?;
    let options = StageOptions {
        dir: Path::new(folder),
        lib: &artifacts.library,
        programs: Some(&artifacts.programs),
        device_nodes: DeviceNodes::Real,
        layout,
    };
    let staged = stage(&spec, &options).map_err(|error| error.to_string())?;
    println!("{}", staged.driver_root.display());
    Ok(())
}

fn layout(name: &str) -> Option<Layout> {
    Some(match name {
        "host" => Layout::Host,
        "gpu-operator" => Layout::GpuOperator,
        "gke" => Layout::Gke,
        "bottlerocket" => Layout::Bottlerocket,
        _ => return None,
    })
}
