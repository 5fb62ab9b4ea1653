//! What can be typed. Reading flags and environment ends here: the parts get plain values.

use clap::{Parser, Subcommand};

use crate::commands::bench::Bench;
use crate::commands::{clear_taint, controller, demo, explain, inventory, lint, mps_host, node};

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
    /// Measures this driver, or others on a cluster
    #[command(subcommand)]
    Bench(Bench),
}

impl Cli {
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
            Command::Bench(bench) => bench.run(),
        }
    }
}
