//! `gpu-dra cleanup`: after the driver has been uninstalled, nothing of it is left on the node.
//! What claims have changed on the GPUs is undone by the journal, then files go, by name: what
//! isn't known to be this driver's stays and is said.
//!
//! It may be killed at any point and run again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpu_dra_claims::{Phase, Record};
use gpu_dra_host::Boundary;
use gpu_dra_model::{BootId, DriverName};
use gpu_dra_node::offline::{Installed, Offline};

use super::log::LogArgs;
use super::node;
use super::place::Place;

mod leftovers;

use leftovers::{Leftovers, Places};

/// What to clean, and how thoroughly.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Undo claims too that are still prepared: their pods lose the GPUs
    #[arg(long)]
    force: bool,
    /// The DRA driver's name
    #[arg(long, env = "GPU_DRA_DRIVER_NAME", default_value = "gpu.nvidia.com")]
    driver_name: DriverName,
    /// The kubelet's --root-dir
    #[arg(long, env = "GPU_DRA_KUBELET_ROOT", default_value = "/var/lib/kubelet")]
    kubelet_root: PathBuf,
    /// The folder of CDI specs
    #[arg(long, env = "GPU_DRA_CDI_ROOT", default_value = "/var/run/cdi")]
    cdi_root: PathBuf,
    #[command(flatten)]
    place: Place,
    /// The MPS host's socket
    #[arg(long, env = "GPU_DRA_MPS_SOCKET", default_value = "/run/gpu-dra/mps-host.sock")]
    mps_socket: PathBuf,
    /// The folder of MPS daemons
    #[arg(long, env = "GPU_DRA_MPS_RUN_DIR", default_value = "/run/gpu-dra/mps")]
    mps_run_dir: PathBuf,
    /// The MPS host's journal
    #[arg(long, env = "GPU_DRA_MPS_STATE_DIR", default_value = "/var/lib/gpu-dra/mps")]
    mps_state_dir: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    args.log.start()?;
    let places = Places {
        driver: args.driver_name.clone(),
        plugin_dir: args.kubelet_root.join("plugins").join(args.driver_name.as_str()),
        registry: args.kubelet_root.join("plugins_registry"),
        cdi_root: args.cdi_root.clone(),
        mps_socket: args.mps_socket.clone(),
        mps_run_dir: args.mps_run_dir.clone(),
        mps_state_dir: args.mps_state_dir.clone(),
    };
    places.refuse_while_served()?;
    let held = places.records()?;
    refuse_in_use(&held, &boot(&args.place.proc)?, args.force)?;
    if args.dry_run {
        for record in &held {
            anstream::println!("would undo claim {} ({})", record.claim, devices(record));
        }
        return Leftovers::find(&places)?.print();
    }
    let boundary = node::boundary()?;
    if !held.is_empty() {
        undo(args, &boundary)?;
    }
    let daemons = places.end_daemons(args.place.root(), &boundary)?;
    for daemon in daemons {
        anstream::println!("ended MPS daemon {daemon}");
    }
    Leftovers::find(&places)?.remove(&boundary)
}

/// Who still has what; a claim of an earlier boot has nothing any more.
fn refuse_in_use(held: &[Record], boot: &BootId, force: bool) -> anyhow::Result<()> {
    if let Some(newer) = held.iter().find(|record| record.known_steps().is_none()) {
        bail!(
            "claim {} was prepared by a newer version, which alone knows how to undo it: run that version's cleanup",
            newer.claim
        );
    }
    let prepared = |record: &&Record| record.phase == Phase::Prepared && record.boot_id == *boot;
    let prepared: Vec<_> = held.iter().filter(prepared).collect();
    if prepared.is_empty() || force {
        return Ok(());
    }
    let mut list = String::new();
    for record in &prepared {
        list.push_str(&format!("\n  {} ({})", record.claim, devices(record)));
    }
    bail!(
        "{} claims are still prepared on this node; drain it of their pods while the driver runs (or give --force, and their pods lose the GPUs):{list}",
        prepared.len()
    )
}

fn devices(record: &Record) -> String {
    let names: Vec<_> = record.devices.iter().map(|device| device.device.as_str()).collect();
    names.join(", ")
}

fn undo(args: &Args, boundary: &Boundary) -> anyhow::Result<()> {
    let offline = Offline::open(Installed {
        driver: args.driver_name.clone(),
        plugin_dir: args.kubelet_root.join("plugins").join(args.driver_name.as_str()),
        cdi_root: args.cdi_root.clone(),
        root: args.place.root(),
        trees: args.place.trees(),
        mps_socket: args.mps_socket.clone(),
        mps_run_dir: args.mps_run_dir.clone(),
        mps_state_dir: args.mps_state_dir.clone(),
        boundary: boundary.clone(),
    })?;
    let failures = offline.undo_all()?;
    if failures.is_empty() {
        return Ok(());
    }
    bail!("not undone, so that nothing is removed yet; run it again: {}", failures.join("; "))
}

fn boot(proc: &Path) -> anyhow::Result<BootId> {
    let path = proc.join("sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("can't read {}; is /proc mounted there?", path.display()))?;
    Ok(BootId::new(text.trim())?)
}
