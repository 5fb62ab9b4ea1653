//! A whole node on this machine, without root: a staged simulated node, an API server of the
//! embedded control plane over loopback HTTP, and node agents as child processes. Demo, bench
//! and the tests of the program stand on it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gpu_dra_kubelet::client::{DraApi, Plugin};
use gpu_dra_lab::{ApiServer, Lab, LabOptions, Listener};
use gpu_dra_model::{DriverName, NodeName};
use gpu_dra_sharing::MpsClient;
use gpu_dra_sim_data::StagedNode;

use crate::cluster;
use crate::commands::simulated;

/// The node's name.
pub const NODE: &str = "node-a";

/// The DRA driver's name.
pub const DRIVER: &str = "gpu.nvidia.com";

/// One simulated node and its API server.
pub struct Rig {
    /// The simulated hardware.
    pub staged: StagedNode,
    /// The API server.
    pub api: Arc<ApiServer>,
    /// For `kubectl` and the node agent.
    pub kubeconfig: PathBuf,
    /// The kubelet's root folder.
    pub kubelet_root: PathBuf,
    /// The folder of CDI specs.
    pub cdi_root: PathBuf,
    dir: tempfile::TempDir,
    /// Serves the API where no whole control plane does.
    _listener: Option<Listener>,
}

impl Rig {
    /// Stages `node` (such as `8xh100`) from the simulated library in `parts`, the folder of
    /// the built program, and starts an API server that has a Node for it, and nothing else.
    ///
    /// # Errors
    /// When a part isn't built or the machine refuses a file or a port.
    pub async fn start(node: &str, parts: &Path) -> anyhow::Result<Self> {
        let folders = Folders::stage(node, parts)?;
        let api = ApiServer::new()?;
        let listener =
            Listener::start(Arc::clone(&api), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.await.context("can't listen on loopback")?;
        let kubeconfig = folders.write_kubeconfig(&listener.kubeconfig_yaml())?;
        let rig = folders.rig(api, kubeconfig, Some(listener));
        rig.create_node().await?;
        Ok(rig)
    }

    /// Stages `node` as [`Rig::start`] does, and starts a whole control plane: claim
    /// controller, scheduler and a kubelet that finds node agents by their sockets.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub async fn start_with_lab(node: &str, parts: &Path) -> anyhow::Result<(Self, Lab)> {
        let folders = Folders::stage(node, parts)?;
        let mut options = LabOptions::new(NODE, folders.kubelet_root());
        options.cdi_dirs = vec![folders.cdi_root()];
        let lab = Lab::start(options).await?;
        let kubeconfig = folders.write_kubeconfig(&lab.kubeconfig_yaml())?;
        let rig = folders.rig(Arc::clone(lab.api()), kubeconfig, None);
        Ok((rig, lab))
    }

    /// The folder that holds everything; it goes with the rig.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The journal's folder.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.plugin_dir().join("claims")
    }

    /// The driver's folder under the kubelet's root.
    #[must_use]
    pub fn plugin_dir(&self) -> PathBuf {
        self.kubelet_root.join("plugins").join(DRIVER)
    }

    /// A client of the API server, over HTTP as the node agent's.
    ///
    /// # Errors
    /// When the kubeconfig can't be used.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        cluster::client(Some(&self.kubeconfig)).await
    }

    /// The command of a node agent for this node, not yet started.
    #[must_use]
    pub fn agent_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_remove("KUBECONFIG").env_remove("RUST_LOG").arg("node");
        let mut flag = |name: &str, value: &Path| {
            command.arg(name).arg(value);
        };
        flag("--node-name", Path::new(NODE));
        flag("--driver-name", Path::new(DRIVER));
        flag("--kubelet-root", &self.kubelet_root);
        flag("--cdi-root", &self.cdi_root);
        flag("--driver-root", &self.staged.driver_root);
        flag("--host-root-here", &self.staged.host_root);
        flag("--sysfs", &self.staged.sysfs_root);
        flag("--proc", &self.staged.proc_root);
        flag("--dev", &self.staged.dev_root.join("dev"));
        flag("--kubeconfig", &self.kubeconfig);
        flag("--mps-socket", &self.mps_socket());
        flag("--mps-run-dir", &self.mps_run_dir());
        flag("--host-proc", &self.host_proc());
        command.args(["--device-nodes", "allow-plain-files"]);
        command.stdin(Stdio::null());
        command
    }

    /// The MPS host's socket.
    #[must_use]
    pub fn mps_socket(&self) -> PathBuf {
        self.dir().join("mps-host.sock")
    }

    /// The folder of MPS daemons.
    #[must_use]
    pub fn mps_run_dir(&self) -> PathBuf {
        self.dir().join("mps")
    }

    /// The simulated host's processes: `PID/cgroup` of those that the simulated GPUs run.
    #[must_use]
    pub fn host_proc(&self) -> PathBuf {
        self.dir().join("host-proc")
    }

    /// The command of an MPS host for this node, not yet started.
    #[must_use]
    pub fn mps_host_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_remove("RUST_LOG").arg("mps-host").stdin(Stdio::null());
        command.arg("--socket").arg(self.mps_socket());
        command.arg("--run-dir").arg(self.mps_run_dir());
        command.arg("--state-dir").arg(self.dir().join("mps-state"));
        command.arg("--driver-root").arg(&self.staged.driver_root);
        command.arg("--host-root-here").arg(&self.staged.host_root);
        command
    }

    /// Starts an MPS host, and waits until it answers.
    ///
    /// # Errors
    /// When it can't be started, ends, or 20 s pass.
    pub async fn start_mps_host(&self, program: &Path) -> anyhow::Result<MpsHost> {
        let mut process = self.start_agent(self.mps_host_command(program), "mps-host.log")?;
        let client = MpsClient::new(self.mps_socket(), Duration::from_secs(10));
        process.wait_until("it answers", || async { client.list().is_ok() }).await?;
        Ok(MpsHost { process, client })
    }

    /// Starts a node agent whose log goes to `log` in the rig's folder.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start_agent(&self, mut command: Command, log: &str) -> anyhow::Result<Agent> {
        let log = self.dir().join(log);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("can't write {}", log.display()))?;
        let started = Instant::now();
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        let child =
            child.with_context(|| format!("can't start {}", command.get_program().display()))?;
        Ok(Agent { child, log, started })
    }

    /// Waits until the agent's service socket is there and dials it.
    ///
    /// # Errors
    /// When the agent ends, or 20 s pass.
    pub async fn dial(&self, agent: &mut Agent) -> anyhow::Result<Plugin> {
        let socket = self.plugin_dir().join("dra@plugin.sock");
        let driver = DriverName::new(DRIVER)?;
        agent
            .wait_until("its socket answers", || async {
                std::os::unix::net::UnixStream::connect(&socket).is_ok()
            })
            .await?;
        Ok(Plugin::dial(driver, &socket, DraApi::V1)?)
    }

    async fn create_node(&self) -> anyhow::Result<()> {
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> =
            kube::Api::all(self.client().await?);
        let node = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NodeName::new(NODE)?, "labels": {"kubernetes.io/hostname": NODE}},
        }))?;
        nodes.create(&kube::api::PostParams::default(), &node).await?;
        Ok(())
    }
}

/// The staged node and the folders around it, before there is an API server.
struct Folders {
    dir: tempfile::TempDir,
    staged: StagedNode,
}

impl Folders {
    fn stage(node: &str, parts: &Path) -> anyhow::Result<Self> {
        let dir = simulated::temporary_folder()?;
        let staged = simulated::stage_at(node, &dir.path().join("node"), parts)?;
        let folders = Self { dir, staged };
        for folder in [&folders.kubelet_root().join("plugins_registry"), &folders.cdi_root()] {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("can't make {}", folder.display()))?;
        }
        Ok(folders)
    }

    fn kubelet_root(&self) -> PathBuf {
        self.dir.path().join("kubelet")
    }

    fn cdi_root(&self) -> PathBuf {
        self.dir.path().join("cdi")
    }

    fn write_kubeconfig(&self, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join("kubeconfig");
        std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
        Ok(path)
    }

    fn rig(self, api: Arc<ApiServer>, kubeconfig: PathBuf, listener: Option<Listener>) -> Rig {
        Rig {
            kubelet_root: self.kubelet_root(),
            cdi_root: self.cdi_root(),
            staged: self.staged,
            api,
            kubeconfig,
            dir: self.dir,
            _listener: listener,
        }
    }
}

/// A running MPS host; its daemons end with it, though a real one leaves them running.
pub struct MpsHost {
    /// The process.
    pub process: Agent,
    /// Asks it.
    pub client: MpsClient,
}

impl Drop for MpsHost {
    fn drop(&mut self) {
        for status in self.client.list().unwrap_or_default() {
            if let Err(error) = self.client.stop(&status.id) {
                tracing::warn!(%error, "MPS daemon not ended");
            }
        }
    }
}

/// A running program of ours; killed when dropped.
pub struct Agent {
    child: Child,
    /// Its log.
    pub log: PathBuf,
    /// When it was started.
    pub started: Instant,
}

impl Agent {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// When the kernel can't say.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until it has ended by itself or been killed by another.
    pub fn wait_for_end(&mut self) {
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "node agent can't be waited for");
        }
    }

    /// Waits for a condition, looking every few milliseconds.
    ///
    /// # Errors
    /// When the agent ends, or 20 s pass; with the end of its log.
    pub async fn wait_until<F: Future<Output = bool>>(
        &mut self,
        what: &str,
        condition: impl Fn() -> F,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition().await {
            if self.has_ended()? {
                bail!("the node agent ended before {what}:\n{}", self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("the node agent took more than 20 s until {what}:\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Its resident memory, in KiB.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.context("no VmRSS")?.parse().context("VmRSS")
    }

    /// Kills it where it is.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Asks it to stop, and waits.
    ///
    /// # Errors
    /// When it doesn't within 30 s.
    pub fn stop(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("the node agent doesn't stop:\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        if matches!(self.child.try_wait(), Ok(None))
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop))
        {
            tracing::warn!(%error, "node agent not killed");
        }
    }
}
