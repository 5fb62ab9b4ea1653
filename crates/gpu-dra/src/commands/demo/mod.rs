//! `gpu-dra demo`: the driver at work on a laptop without GPU, cluster or root. A simulated
//! node (or, with --real, the machine's own driver), an embedded control plane, the node agent
//! as a process of its own, and the examples.

mod display;
mod examples;
mod progress;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gpu_dra_lab::{Lab, Selector, kinds};

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

/// How often the agent is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// The MIG profile that the examples are written for.
const PROFILE: &str = "1g.10gb";

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

    let _mps_host = rig.start_mps_host(&program).await?;
    let mut agent = start_agent(args, &rig, &program)?;
    let stage = Stage { rig: &rig, lab: &lab, display: &display };
    let mut not_running = Vec::new();
    let acts = acts(args)?;
    for (number, act) in acts.iter().enumerate() {
        if number > 0 {
            if number == 2 && !stage.has_profile(PROFILE) {
                display.title(&format!(
                    "no GPU here has MIG profile {PROFILE}: {} left out",
                    act.title
                ));
                break;
            }
            stage.clear().await?;
        }
        display.title(&act.title);
        let Some(progress) = stage.play(act, &mut agent).await? else { return Ok(()) };
        if number == 0 {
            display.devices(&lab);
        }
        display.container(&lab, &rig.cdi_root);
        display.summary(&progress);
        not_running.extend(progress.not_running());
    }
    if args.once {
        stage.clear().await?;
        agent.stop()?;
        if !not_running.is_empty() {
            bail!("not running: {}", not_running.join(", "));
        }
        return Ok(());
    }
    display.stay(&rig.kubeconfig, &agent.log);
    let mut events = lab.subscribe();
    let mut alive = tokio::time::interval(LOOK);
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

/// Manifests that fit the node together.
struct Act {
    title: String,
    manifests: Vec<(String, String)>,
}

/// Whole GPUs, then the same GPUs in parts; or what the person gave.
fn acts(args: &Args) -> anyhow::Result<Vec<Act>> {
    let classes = ("deploy/deviceclasses.yaml".to_owned(), examples::CLASSES.to_owned());
    if !args.apply.is_empty() {
        let mut manifests = vec![classes];
        for path in &args.apply {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("can't read {}", path.display()))?;
            manifests.push((path.display().to_string(), text));
        }
        return Ok(vec![Act { title: "your manifests".to_owned(), manifests }]);
    }
    let mut acts = [
        ("pods with whole GPUs", vec![classes]),
        ("pods that share GPUs", Vec::new()),
        ("pods with parts of the same GPUs", Vec::new()),
    ];
    for (name, text) in examples::ALL {
        let act = match name.split_once('-').map_or(*name, |(first, _)| first) {
            "mig" => 2,
            "mps.yaml" | "shared" | "shares.yaml" => 1,
            _ => 0,
        };
        if let Some((_, manifests)) = acts.get_mut(act) {
            manifests.push((format!("examples/{name}"), (*text).to_owned()));
        }
    }
    let act = |(title, manifests): (&str, _)| Act { title: title.to_owned(), manifests };
    Ok(acts.map(act).into())
}

/// Where the acts are played.
struct Stage<'a> {
    rig: &'a Rig,
    lab: &'a Lab,
    display: &'a Display,
}

impl Stage<'_> {
    fn apply(&self, act: &Act) -> anyhow::Result<()> {
        for (name, text) in &act.manifests {
            let applied =
                self.lab.apply_yaml(text).with_context(|| format!("{name} is refused"))?;
            self.display.applied(name, &applied);
        }
        Ok(())
    }

    /// Until all pods run or the time is up; None where the person had enough.
    async fn play(&self, act: &Act, agent: &mut Agent) -> anyhow::Result<Option<Progress>> {
        // What happened before is about pods that are gone.
        let mut events = self.lab.subscribe();
        self.apply(act)?;
        let mut progress = Progress::new(self.lab);
        let limit = tokio::time::sleep(LIMIT);
        tokio::pin!(limit);
        let mut alive = tokio::time::interval(LOOK);
        while !progress.is_settled() {
            tokio::select! {
                event = events.recv() => if let Ok(event) = event {
                    self.display.event(&event);
                    progress.note(&event);
                },
                _ = alive.tick() => if agent.has_ended()? {
                    bail!("the node agent ended:\n{}", agent.log_tail());
                },
                () = &mut limit => break,
                _ = tokio::signal::ctrl_c() => return Ok(None),
            }
        }
        Ok(Some(progress))
    }

    /// Deletes all pods, and looks whether anything is left of them.
    async fn clear(&self) -> anyhow::Result<()> {
        progress::delete_pods(self.lab).await?;
        let left = || -> anyhow::Result<Vec<String>> {
            let mut left = Vec::new();
            for dir in [self.rig.journal(), self.rig.cdi_root.clone()] {
                for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
                    left.push(entry?.path().display().to_string());
                }
            }
            left.extend(progress::pods(self.lab));
            Ok(left)
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !left()?.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let left = left()?;
        self.display.cleaned(&left);
        if !left.is_empty() {
            bail!("left over: {}", left.join(", "));
        }
        Ok(())
    }

    /// Whether any GPU can be partitioned so.
    fn has_profile(&self, profile: &str) -> bool {
        let (slices, _) = self.lab.api().list(&kinds::RESOURCE_SLICE, "", &Selector::default());
        let mut devices =
            slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).flatten();
        devices.any(|device| device["attributes"]["profile"]["string"] == profile)
    }
}
