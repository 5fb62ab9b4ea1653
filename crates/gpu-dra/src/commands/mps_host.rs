//! `gpu-dra mps-host`: runs MPS control daemons for the node agent, in a process of its own
//! that driver upgrades leave alone.

use std::path::PathBuf;

use anyhow::Context as _;
use gpu_dra_sharing::{Patience, Settings};

use super::log::LogArgs;
use super::node;
use super::place::Place;
use super::stop::told_to_stop;

/// How the MPS host runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Where the node agent asks for daemons
    #[arg(long, env = "GPU_DRA_MPS_SOCKET", default_value = "/run/gpu-dra/mps-host.sock")]
    socket: PathBuf,
    /// The daemons' folders, on a tmpfs; the same path on the host and for the node agent
    #[arg(long, env = "GPU_DRA_MPS_RUN_DIR", default_value = "/run/gpu-dra/mps")]
    run_dir: PathBuf,
    /// What must outlive a restart of the node: which daemons there are
    #[arg(long, env = "GPU_DRA_MPS_STATE_DIR", default_value = "/var/lib/gpu-dra/mps")]
    state_dir: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    args.log.start()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start threads")?;
    let stop = {
        let _runtime = runtime.enter();
        told_to_stop()?
    };
    let settings = Settings {
        run_dir: args.run_dir,
        state_dir: args.state_dir,
        socket: args.socket,
        root: args.place.root(),
        patience: Patience::default(),
        boundary: node::boundary()?,
    };
    Ok(gpu_dra_sharing::run(settings, || runtime.block_on(stop))?)
}
