//! `gpu-dra demo`: the driver at work on a laptop without GPU, cluster or root. A simulated
//! node (or, with --real, the machine's own driver), an embedded control plane, the node agent
//! as a process of its own, and the examples.

mod display;
mod examples;
mod progress;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gpu_dra_lab::Lab;

use super::place::Place;
use crate::rig::{Agent, Rig};
use display::Display;
use progress::Progress;

/// What to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The simulated node, such as 8xh100 or 4xa100-40+2xl4
    #[arg(long, default_value = "8xh100", conflicts_with = "real")]
    node: String,
    /// This machine's GPUs instead of simulated ones; needs the right to open /dev/nvidia*
    #[arg(long)]
    real: bool,
    #[command(flatten)]
    place: Place,
    /// Exit with a summary when all examples run, non-zero if anything failed
    #[arg(long)]
    once: bool,
    /// Manifests to apply instead of the built-in examples
    #[arg(long, value_name = "FILE")]
    apply: Vec<std::path::PathBuf>,
}

/// How long the examples get to run with --once.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(demo(args))
}

async fn demo(args: &Args) -> anyhow::Result<()> {
    let started = Instant::now();
    let display = Display::new(started);
    let program = std::env::current_exe()?;
    let parts = program.parent().context("this program lies in no folder")?;
    let (rig, lab) = Rig::start_with_lab(&args.node, parts).await?;
    display.title(&if args.real {
        "this machine's GPUs, an embedded control plane".to_owned()
    } else {
        format!("a simulated node {}, an embedded control plane", args.node)
    });
    display.kubeconfig(&rig.kubeconfig);

    let mut events = lab.subscribe();
    let mut agent = start_agent(args, &rig, &program)?;
    apply(args, &lab, &display)?;
    let mut progress = Progress::new(&lab);
    let limit = tokio::time::sleep(LIMIT);
    tokio::pin!(limit);
    let mut alive = tokio::time::interval(Duration::from_millis(200));
    while !progress.is_settled() {
        tokio::select! {
            event = events.recv() => if let Ok(event) = event {
                display.event(&event);
                progress.note(&event);
            },
            _ = alive.tick() => if agent.has_ended()? {
                bail!("the node agent ended:\n{}", agent.log_tail());
            },
            () = &mut limit => break,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
    display.devices(&lab);
    display.container(&lab, &rig.cdi_root);
    display.summary(&progress);
    if args.once {
        return finish(&rig, &lab, &mut agent, &progress, &display).await;
    }
    display.stay(&rig.kubeconfig, &agent.log);
    loop {
        tokio::select! {
            event = events.recv() => if let Ok(event) = event { display.event(&event) },
            _ = alive.tick() => if agent.has_ended()? {
                bail!("the node agent ended:\n{}", agent.log_tail());
            },
            _ = tokio::signal::ctrl_c() => {
                agent.stop()?;
                lab.shutdown().await;
                return Ok(());
            }
        }
    }
}

fn start_agent(args: &Args, rig: &Rig, program: &std::path::Path) -> anyhow::Result<Agent> {
    let mut command = rig.agent_command(program);
    if args.real {
        // The later of two flags counts.
        let place = &args.place;
        command.arg("--driver-root").arg(&place.driver_root);
        command.arg("--host-root-here").arg(&place.host_root_here);
        command.arg("--sysfs").arg(&place.sysfs).arg("--proc").arg(&place.proc);
        command.arg("--dev").arg(&place.dev).args(["--device-nodes", "must-exist"]);
    }
    rig.start_agent(command, "agent.log")
}

fn apply(args: &Args, lab: &Lab, display: &Display) -> anyhow::Result<()> {
    let mut manifests =
        vec![("deploy/deviceclasses.yaml".to_owned(), examples::CLASSES.to_owned())];
    if args.apply.is_empty() {
        manifests.extend(
            examples::ALL
                .iter()
                .map(|(name, text)| (format!("examples/{name}"), (*text).to_owned())),
        );
    }
    for path in &args.apply {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        manifests.push((path.display().to_string(), text));
    }
    for (name, text) in manifests {
        let applied = lab.apply_yaml(&text).with_context(|| format!("{name} is refused"))?;
        display.applied(&name, &applied);
    }
    Ok(())
}

/// Deletes all pods, and looks whether anything is left of them.
async fn finish(
    rig: &Rig,
    lab: &Lab,
    agent: &mut Agent,
    progress: &Progress,
    display: &Display,
) -> anyhow::Result<()> {
    progress::delete_pods(lab).await?;
    let left = || -> anyhow::Result<Vec<String>> {
        let mut left = Vec::new();
        for dir in [rig.journal(), rig.cdi_root.clone()] {
            for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
                left.push(entry?.path().display().to_string());
            }
        }
        Ok(left)
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !left()?.is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let left = left()?;
    display.cleaned(&left);
    agent.stop()?;
    let not_running = progress.not_running();
    if !not_running.is_empty() {
        bail!("not running: {}", not_running.join(", "));
    }
    if !left.is_empty() {
        bail!("left over: {}", left.join(", "));
    }
    Ok(())
}
