//! A staged simulated driver root and an MPS host on it, with real processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpu_dra_driverroot::DriverRoot;
use gpu_dra_host::Boundary;
use gpu_dra_sharing::{
    DaemonId, DaemonSpec, DaemonState, MpsClient, Patience, Places, RunDir, Settings, Status, run,
};
use gpu_dra_sim_data::{Artifacts, DeviceNodes, Layout, NodeSpec, StageOptions, StagedNode, stage};
use rustix::process::{Pid, Signal, kill_process};

/// A machine below a folder of its own; what still runs on it ends with it.
pub(crate) struct Staged {
    dir: tempfile::TempDir,
    pub(crate) node: StagedNode,
}

impl Staged {
    /// In the GPU Operator's layout: the driver root is another system's root.
    pub(crate) fn new() -> Self {
        Self::with(Layout::GpuOperator)
    }

    pub(crate) fn with(layout: Layout) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let built = Artifacts::build_for_tests().unwrap();
        let options = StageOptions {
            dir: &dir.path().join("host"),
            lib: &built.library,
            programs: Some(&built.programs),
            device_nodes: DeviceNodes::PlainFiles,
            layout,
        };
        let node = stage(&NodeSpec::parse("8xh100").unwrap(), &options).unwrap();
        Self { dir, node }
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(self.dir.path(), &self.node.driver_root, Boundary::default())
    }

    pub(crate) fn places(&self, id: &DaemonId) -> Places {
        RunDir::new(self.dir.path().join("run")).unwrap().places(id)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn client(&self) -> MpsClient {
        MpsClient::new(self.dir.path().join("socket"), Duration::from_secs(30))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// What goes wrong with control daemons from now on.
    pub(crate) fn faults(&self, text: &str) {
        fs::write(self.node.state_dir.path().join("mps-faults"), text).unwrap();
    }

    /// What the daemon answers to somebody on the node.
    pub(crate) fn ask(&self, id: &DaemonId, command: &str) -> String {
        let program = self.node.driver_root.join("usr/bin/nvidia-cuda-mps-control");
        let pipe = self.places(id).pipe;
        let script = format!("echo {command} | {}", program.display());
        let output = Command::new("/bin/sh")
            .args(["-c", &script])
            .env("CUDA_MPS_PIPE_DIRECTORY", pipe)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The control daemons and servers that use a pipe directory of this machine.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let entry = format!("CUDA_MPS_PIPE_DIRECTORY={}", self.dir.path().join("run").display());
        let all = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut found: Vec<u32> = all
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).split('\0').any(|one| one.starts_with(&entry))
            })
            .collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let inside = points.filter(|point| Path::new(point).starts_with(self.dir.path()));
        inside.map(str::to_owned).collect()
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.processes(), [] as [u32; 0]);
        assert_eq!(self.mounts(), [] as [&str; 0]);
        let names = |dir: PathBuf| -> Vec<_> {
            let entries = fs::read_dir(dir).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(names(self.dir.path().join("run")), [] as [String; 0]);
        assert_eq!(names(self.state_dir()), ["lock"]);
    }

    pub(crate) fn host(&self) -> Host {
        self.host_with(self.settings())
    }

    pub(crate) fn host_with(&self, settings: Settings) -> Host {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            run(settings, move || stopped.recv().unwrap_or_default()).unwrap();
        });
        self.wait_for_host(|| !thread.is_finished());
        Host { stop, thread: Some(thread) }
    }

    /// A host in a process of its own, which can be killed; it dies by itself at boundary
    /// `die_at` if that isn't 0.
    pub(crate) fn host_process(&self, die_at: u64) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "restart::host_process", "--ignored"])
            .env("MPS_TEST_DIR", self.dir.path())
            .env("MPS_TEST_ROOT", &self.node.driver_root)
            .env("MPS_TEST_DIE_AT", die_at.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Waits until the host answers, or has ended.
    pub(crate) fn wait_for_host_or_end(&self, host: &mut Child) {
        self.wait_for_host(|| host.try_wait().unwrap().is_none());
    }

    pub(crate) fn wait_for_host(&self, mut alive: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while alive() && self.client().list().is_err() {
            assert!(Instant::now() < deadline, "the host doesn't answer");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        for pid in self.processes() {
            kill(pid);
        }
        for point in self.mounts() {
            nix::mount::umount2(point.as_str(), nix::mount::MntFlags::MNT_DETACH).ok();
        }
    }
}

pub(crate) fn settings(dir: &Path, driver_root: &Path, boundary: Boundary) -> Settings {
    Settings {
        run_dir: dir.join("run"),
        state_dir: dir.join("state"),
        socket: dir.join("socket"),
        root: DriverRoot::new("/run/nvidia/driver", driver_root),
        patience: Patience::default(),
        boundary,
    }
}

/// A host on threads of this process.
pub(crate) struct Host {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.send(()).ok();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may have ended.
    kill_process(pid, Signal::KILL).ok();
}

pub(crate) fn pid(status: &Status) -> u32 {
    match status.state {
        DaemonState::Ready { pid } => pid,
        ref other => panic!("not ready: {other:?} {:?}", status.reason),
    }
}

pub(crate) fn id(name: &str) -> DaemonId {
    DaemonId::new(name).unwrap()
}

/// A spec for the node's `n`-th GPU with these further fields.
pub(crate) fn spec(staged: &Staged, n: usize, more: serde_json::Value) -> DaemonSpec {
    let uuid = staged.node.state_dir.node().unwrap().gpus[n].uuid.clone();
    let mut spec = serde_json::json!({ "devices": [uuid] });
    let fields = more.as_object().unwrap().clone();
    let fields = fields.into_iter().map(|(key, value)| match (key.as_str(), value) {
        // A limit for the device, whatever its UUID.
        ("memory", limit) => {
            ("memoryLimits".to_owned(), serde_json::json!({ uuid.as_str(): limit }))
        }
        (_, value) => (key, value),
    });
    spec.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(spec).unwrap()
}

/// The daemon's status once `want` is true of it.
pub(crate) fn wait_until(
    client: &MpsClient,
    id: &DaemonId,
    limit: Duration,
    want: impl Fn(&Status) -> bool,
) -> Status {
    let deadline = Instant::now() + limit;
    loop {
        let all = client.list().unwrap();
        let status = all.into_iter().find(|status| status.id == *id);
        match status {
            Some(status) if want(&status) => return status,
            status => assert!(Instant::now() < deadline, "{status:?} after {limit:?}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn is_ready(status: &Status) -> bool {
    matches!(status.state, DaemonState::Ready { .. })
}
