//! What can be typed. Reading flags and environment ends here: the parts get plain values.

use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::bench::Bench;
use crate::commands::{
    cleanup, clear_taint, controller, demo, doctor, explain, inventory, lint, mps_host, node, pause,
};

/// Kubernetes DRA driver for NVIDIA GPUs.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The node agent: publishes this node's GPUs and prepares claims for the kubelet
    Node(Box<node::Args>),
    /// Runs MPS daemons for the node agent, apart from it
    MpsHost(mps_host::Args),
    /// Keeps DeviceClasses and checks configs when claims are created, for the whole cluster
    Controller(controller::Args),
    /// What GPUs are here, and what would be published of them; needs no cluster
    Inventory(inventory::Args),
    /// The driver at work on this machine, without GPU, cluster or root
    Demo(demo::Args),
    /// Why a pod or claim gets no device, node by node
    Explain(explain::Args),
    /// What is wrong with classes, claims and pods before they are applied
    Lint(lint::Args),
    /// Takes a GPU that was tainted for healthy again
    ClearTaint(clear_taint::Args),
    /// What a bug report about a node needs, and what is wrong with it
    Doctor(Box<doctor::Args>),
    /// Leaves nothing of the driver on a node, after it was uninstalled
    Cleanup(Box<cleanup::Args>),
    /// Does nothing until it is told to stop
    #[command(hide = true)]
    Pause,
    /// Measures this driver, or others on a cluster
    #[command(subcommand)]
    Bench(Bench),
}

/// The name by which kubectl finds the program: `kubectl gpu explain ...`.
const PLUGIN: &str = "kubectl-gpu";

impl Cli {
    /// From the command line. What is shown of it is what was typed: as a plugin of kubectl
    /// it is called `kubectl gpu`.
    pub(crate) fn of_command_line() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        let mut command = Self::command();
        if Path::new(&called).file_stem().is_some_and(|name| name == PLUGIN) {
            command = command.bin_name("kubectl gpu");
        }
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Node(args) => node::run(*args),
            Command::MpsHost(args) => mps_host::run(args),
            Command::Controller(args) => controller::run(args),
            Command::Inventory(args) => inventory::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Lint(args) => lint::run(&args),
            Command::ClearTaint(args) => clear_taint::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Cleanup(args) => cleanup::run(&args),
            Command::Pause => pause::run(),
            Command::Bench(bench) => bench.run(),
        }
    }
}
