//! Thousands of claims come and go while the API server fails, NVML fails, the disk is full
//! and the node agent is killed. Then nothing may be left, and the node agent may not have
//! grown. `SOAK_CYCLES` sets how many claims; docs/operating.md has the long run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::future::join_all;
use gpu_dra::rig::{Agent, Rig};
use gpu_dra_kubelet::client::Plugin;
use gpu_dra_lab::{Fault as ApiFault, Trouble};
use gpu_dra_model::ClaimRef;
use gpu_dra_sim_data::control::{Control, Fault as NvmlFault};
use serde_json::{Value, json};

use crate::mps::mps;
use crate::world::{Outside, PROGRAM, World, prepare, time_slicing, unprepare};

/// GPUs; each has a claim in every round.
const LANES: usize = 4;
/// So many rounds pass between two faults.
const CALM: u64 = 10;
/// What a kubelet's patience is here: its calls come again after this time.
const AGAIN: Duration = Duration::from_millis(20);
const TRIES: usize = 1500;
/// Growth of a process that keeps nothing per claim: what its allocator does of itself.
const GROWTH_KIB: u64 = 2048;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_come_and_go_under_faults_and_nothing_stays() {
    let cycles = std::env::var("SOAK_CYCLES").map_or(800, |text| text.parse().unwrap());
    let rounds = cycles / LANES as u64;
    let world = World::new("4xh100").await;
    let disks = SmallDisks::mount(&world.rig);
    let mps_host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (mut agent, mut plugin) = start(&world, &disks).await;
    let empty = disks.outside(&world);

    // First with kills; then one process lives through the rest, to be weighed.
    let mut struck = [0_u32; 5];
    let mut weighed = None;
    for round in 0..rounds {
        if round == rounds / 2 + rounds / 10 {
            weighed = Some([weigh(&agent).await, weigh(&mps_host.process).await]);
        }
        let fault = Trial::of(round, round < rounds / 2);
        if let Some(fault) = fault {
            struck[fault as usize] += 1;
        }
        // Looked at in the wrong moment, a GPU stays away until it is looked at again.
        let before = round.checked_sub(1).and_then(|round| Trial::of(round, round < rounds / 2));
        let trouble = fault.is_some() || before == Some(Trial::NvmlFails);
        let lives = (0..LANES).map(|lane| live(&world, &plugin, round, lane, trouble));
        let trial = async {
            match fault {
                None => {}
                Some(Trial::Killed) => {
                    pause(round).await;
                    agent.kill().unwrap();
                    (agent, _) = start(&world, &disks).await;
                }
                Some(other) => {
                    pause(round).await;
                    other.begin(&world, &disks);
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    Trial::end(&world, &disks);
                }
            }
        };
        tokio::join!(join_all(lives), trial);
        if fault.is_some() {
            plugin = world.rig.dial(&mut agent).await.unwrap();
        }
    }
    let after = [weigh(&agent).await, weigh(&mps_host.process).await];
    assert_eq!(disks.outside(&world), empty, "something is left");
    let (before, kinds) = (weighed.unwrap(), ["API", "NVML", "disk", "slow", "kill"]);
    println!("{cycles} claims, faults {kinds:?} {struck:?}; KiB, files: {before:?} then {after:?}");
    for (process, before, after) in
        [("node", before[0], after[0]), ("mps-host", before[1], after[1])]
    {
        assert!(
            after.0 < before.0 + GROWTH_KIB,
            "{process} grew: {before:?} KiB, files; {after:?}"
        );
        assert!(after.1 <= before.1 + 2, "{process}'s files: {before:?} then {after:?}");
    }
    assert!(struck.iter().all(|times| *times > 0), "every fault is tried: {struck:?}");
}

/// One claim on the lane's GPU, from its allocation to its deletion.
async fn live(world: &World, plugin: &Plugin, round: u64, lane: usize, trouble: bool) {
    let gpu = format!("gpu-{lane}");
    let kind = (round + lane as u64) % 8;
    let (device, config) = match kind {
        0 => (gpu, vec![time_slicing("Long")]),
        1 => (gpu + "-mig-1g10gb-19-6", Vec::new()),
        2 if round.is_multiple_of(5) => (gpu, vec![mps("GpuConfig", json!({}))]),
        _ => (gpu, Vec::<Value>::new()),
    };
    let name = format!("soak-{round}-{lane}");
    let claim = world.claim(&name, &[&device], &config).await;
    until(trouble, "prepare", &claim, || prepare(plugin, &claim)).await;
    if kind == 3 {
        until(trouble, "prepare again", &claim, || prepare(plugin, &claim)).await;
    }
    until(trouble, "unprepare", &claim, || unprepare(plugin, &claim)).await;
    world.delete_claim(&claim).await;
}

/// As the kubelet, which calls again until it hears of success. Without trouble the first call
/// succeeds.
async fn until<T, F: Future<Output = Result<T, String>>>(
    trouble: bool,
    what: &str,
    claim: &ClaimRef,
    call: impl Fn() -> F,
) {
    let mut said = String::new();
    for _ in 0..TRIES {
        match call().await {
            Ok(_) => return,
            Err(error) => said = error,
        }
        assert!(trouble, "{what} of {claim} failed without a fault: {said}");
        tokio::time::sleep(AGAIN).await;
    }
    panic!("{what} of {claim} never succeeds: {said}");
}

/// What goes wrong in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    ApiAway,
    NvmlFails,
    DiskFull,
    NvmlSlow,
    Killed,
}

impl Trial {
    fn of(round: u64, with_kills: bool) -> Option<Self> {
        let all = [Self::ApiAway, Self::NvmlFails, Self::DiskFull, Self::NvmlSlow, Self::Killed];
        let kinds = if with_kills { 5 } else { 4 };
        let at = usize::try_from(round / CALM % kinds).unwrap();
        (round % CALM == CALM - 1).then(|| all[at])
    }

    fn begin(self, world: &World, disks: &SmallDisks) {
        let nvml = |fault: NvmlFault| {
            let change = |control: &mut Control| control.faults.push(fault);
            world.rig.staged.state_dir.control_with(change).unwrap();
        };
        let on_a_gpu = NvmlFault {
            function: "nvmlDevice*".to_owned(),
            gpu: Some("1".to_owned()),
            ..NvmlFault::default()
        };
        match self {
            Self::ApiAway => {
                // What the node agent asks; claims are made and allocated by others.
                for (verb, resource) in [
                    (Some("get"), "resourceclaims"),
                    (None, "resourceslices"),
                    (None, "nodes"),
                    (None, "events"),
                ] {
                    let trouble = Trouble::InternalError;
                    let resource = Some(resource);
                    world.rig.api.faults().add(ApiFault { verb, resource, times: None, trouble });
                }
                world.rig.api.cut_watches();
            }
            Self::NvmlFails => nvml(NvmlFault { error: Some(999), ..on_a_gpu }),
            Self::NvmlSlow => nvml(NvmlFault { delay_ms: 20, ..on_a_gpu }),
            Self::DiskFull => disks.fill(),
            Self::Killed => {}
        }
    }

    fn end(world: &World, disks: &SmallDisks) {
        world.rig.api.faults().clear();
        world.rig.staged.state_dir.control_with(|control| control.faults.clear()).unwrap();
        disks.free();
    }
}

/// Into the middle of the calls, each time elsewhere.
async fn pause(round: u64) {
    tokio::time::sleep(Duration::from_micros(round * 7919 % 9000)).await;
}

async fn start(world: &World, disks: &SmallDisks) -> (Agent, Plugin) {
    let command = disks.within(&world.rig.agent_command(Path::new(PROGRAM)));
    let mut agent = world.rig.start_agent(command, "agent.log").unwrap();
    let plugin = world.rig.dial(&mut agent).await.unwrap();
    (agent, plugin)
}

/// Resident memory in KiB at rest, and open files.
async fn weigh(agent: &Agent) -> (u64, usize) {
    tokio::time::sleep(Duration::from_secs(4)).await;
    let files = std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count();
    (agent.resident_kib().unwrap(), files)
}

/// The journal's and the CDI specs' folders on small disks of their own, which only the node
/// agent sees, so that they can be full without anybody else's being.
struct SmallDisks {
    holder: Child,
    folders: [PathBuf; 2],
}

impl SmallDisks {
    fn mount(rig: &Rig) -> Self {
        let folders = [rig.journal(), rig.cdi_root.clone()];
        let mut script = String::from("set -e; ");
        for folder in &folders {
            std::fs::create_dir_all(folder).unwrap();
            let folder = folder.to_str().unwrap();
            script += &format!("mount -t tmpfs -o size=512k none '{folder}'; ");
        }
        script += "echo mounted; exec sleep infinity";
        let mut holder = Command::new("unshare");
        holder.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 7];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said)
            .expect("small disks need user and mount namespaces");
        Self { holder, folders }
    }

    /// The command, so that its process sees the small disks. Its process id is the command's.
    fn within(&self, command: &Command) -> Command {
        let mut within = Command::new("nsenter");
        within.arg(format!("--target={}", self.holder.id()));
        within.args(["--user", "--preserve-credentials", "--mount"]);
        within.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => within.env(name, value),
                None => within.env_remove(name),
            };
        }
        within.stdin(Stdio::null());
        within
    }

    fn fill(&self) {
        for folder in self.seen() {
            let filler = folder.join("filler");
            // It ends with an error: the disk is full.
            let full = std::fs::write(filler, vec![0; 1 << 20]).unwrap_err();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        }
    }

    fn free(&self) {
        for folder in self.seen() {
            match std::fs::remove_file(folder.join("filler")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            }
        }
    }

    /// The folders as the node agent sees them.
    fn seen(&self) -> impl Iterator<Item = PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        self.folders.iter().map(move |folder| root.join(folder.strip_prefix("/").unwrap()))
    }

    fn outside(&self, world: &World) -> Outside {
        let mut outside = world.outside();
        for folder in self.seen() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                outside.files.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
            }
        }
        outside
    }
}

impl Drop for SmallDisks {
    fn drop(&mut self) {
        self.holder.kill().and_then(|()| self.holder.wait()).unwrap();
    }
}
