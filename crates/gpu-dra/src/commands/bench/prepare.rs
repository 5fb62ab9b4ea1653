//! `gpu-dra bench prepare`: our node agent on a simulated node, or any DRA drivers on a
//! cluster, turn by turn.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gpu_dra_model::DriverName;

use super::floor::Floor;
use super::measure::{self, Measured, Times};
use super::nvml_calls::NvmlCalls;
use super::report::{self, Figures, Resident};
use super::target::Target;
use crate::cluster;
use crate::commands::simulated::temporary_folder;
use crate::rig::{DRIVER, Rig};

/// After so long an agent without work has given back what it doesn't need.
const SETTLING: Duration = Duration::from_secs(4);

/// What to measure, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The simulated node
    #[arg(long, default_value = "8xh100")]
    node: String,
    /// How many claims one caller prepares
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    claims: u32,
    /// MIG devices of this profile, such as 1g.10gb, instead of whole GPUs
    #[arg(long)]
    profile: Option<String>,
    /// How to print the figures
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// A cluster, instead of the simulated node
    #[arg(long, requires = "socket")]
    kubeconfig: Option<PathBuf>,
    /// A driver on the cluster; may be given more than once, each with its --socket
    #[arg(long, requires = "kubeconfig")]
    driver: Vec<DriverName>,
    /// The driver's DRA socket on this machine
    #[arg(long, requires = "kubeconfig")]
    socket: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let (figures, floor) = match &args.kubeconfig {
        Some(kubeconfig) => on_cluster(&args, kubeconfig).await?,
        None => simulated(&args).await?,
    };
    match args.output {
        Format::Table => report::print(&figures, &floor),
        Format::Json => {
            anstream::println!(
                "{}",
                serde_json::to_string_pretty(&report::json(&figures, &floor))?
            );
        }
    }
    Ok(())
}

async fn simulated(args: &Args) -> anyhow::Result<(Vec<Figures>, Times)> {
    let program = std::env::current_exe()?;
    let parts = program.parent().context("this program lies in no folder")?;
    let rig = Rig::start(&args.node, parts).await?;
    let mut agent = rig.start_agent(rig.agent_command(&program), "agent.log")?;
    let client = rig.client().await?;
    let slices: kube::Api<k8s_openapi::api::resource::v1::ResourceSlice> =
        kube::Api::all(client.clone());
    agent
        .wait_until("its slices are visible", || async {
            let list = slices.list(&Default::default()).await;
            list.is_ok_and(|list| {
                let wanted = list.items.first().map(|slice| slice.spec.pool.resource_slice_count);
                i64::try_from(list.items.len()).ok() == wanted
            })
        })
        .await?;
    let visible = agent.started.elapsed();
    let plugin = rig.dial(&mut agent).await?;
    // A driver that was installed seconds ago is looked at again for each claim.
    tokio::time::sleep(SETTLING).await;
    let start = agent.resident_kib()?;
    let profile = args.profile.as_deref();
    let target = Target::find(client, DriverName::new(DRIVER)?, plugin.endpoint(), profile).await?;
    let floor = Floor::new(rig.dir(), target.claims.clone())?;
    let nvml = args.profile.as_deref().map(|profile| NvmlCalls::new(&args.node, profile));
    let nvml = nvml.transpose()?;
    let (measured, floor) = turns(&[target], &floor, nvml.as_ref(), args.claims).await?;
    let busy = agent.resident_kib()?;
    tokio::time::sleep(SETTLING).await;
    let resident = Resident { start, busy, end: agent.resident_kib()? };
    let measured = measured.into_iter().next().unwrap_or_default();
    let figures = Figures {
        driver: DRIVER.to_owned(),
        measured,
        resident: Some(resident),
        visible_ms: Some(visible.as_secs_f64() * 1000.0),
    };
    Ok((vec![figures], floor))
}

async fn on_cluster(args: &Args, kubeconfig: &Path) -> anyhow::Result<(Vec<Figures>, Times)> {
    ensure!(
        args.driver.len() == args.socket.len(),
        "give as many --driver as --socket, in the same order"
    );
    let client = cluster::client(Some(kubeconfig)).await?;
    let mut targets = Vec::new();
    for (driver, socket) in args.driver.iter().zip(&args.socket) {
        targets.push(
            Target::find(client.clone(), driver.clone(), socket, args.profile.as_deref()).await?,
        );
    }
    let first = targets.first().context("give at least one --driver")?;
    let dir = temporary_folder()?;
    let floor = Floor::new(dir.path(), first.claims.clone())?;
    let (measured, floor) = turns(&targets, &floor, None, args.claims).await?;
    let figures = targets.iter().zip(measured).map(|(target, measured)| Figures {
        driver: target.driver.to_string(),
        measured,
        resident: None,
        visible_ms: None,
    });
    Ok((figures.collect(), floor))
}

/// One claim of each driver and one floor, in turn; then the other runs in turn.
async fn turns(
    targets: &[Target],
    floor: &Floor,
    nvml: Option<&NvmlCalls>,
    claims: u32,
) -> anyhow::Result<(Vec<Measured>, Times)> {
    let mut measured: Vec<_> = targets.iter().map(|_| Measured::default()).collect();
    let mut floors = Times::default();
    let started = Instant::now();
    for at in 0..claims as usize {
        for (target, measured) in targets.iter().zip(&mut measured) {
            measure::one(target, at, measured).await?;
            if at % 4 == 0 {
                measure::four_callers(target, measured).await?;
            }
            if at % 20 == 0 {
                measure::eight_claims(target, measured).await?;
            }
        }
        if let Some(target) = targets.first() {
            measure::floor(target, floor, &mut floors).await?;
        }
        if let (Some(nvml), Some(measured)) = (nvml, measured.first_mut()) {
            nvml.once(&mut measured.nvml_make, &mut measured.nvml_remove)?;
        }
    }
    tracing::debug!(seconds = started.elapsed().as_secs_f64(), "measured");
    Ok((measured, floors))
}
