//! `gpu-dra node`: flags to settings, then the node agent until SIGTERM or SIGINT.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use gpu_dra_claims::incumbent::AdoptedMig;
use gpu_dra_driverroot::DeviceNodes;
use gpu_dra_host::Boundary;
use gpu_dra_model::{DriverName, NodeName};
use gpu_dra_node::Settings;

use super::health::HealthArgs;
use super::log::LogArgs;
use super::place::Place;
use super::policy::PolicyArgs;
use super::stop::told_to_stop;
use crate::cluster;

/// Threads that may block in files and hardware: as many claims as a node can start at once.
const BLOCKING_THREADS: usize = 64;
/// How long such a thread outlives its work: through a burst of pods, no longer. Each one
/// keeps memory.
const KEEP_BLOCKING_THREADS: Duration = Duration::from_secs(2);

/// How the node agent runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The Node it runs on
    #[arg(long, env = "NODE_NAME")]
    node_name: NodeName,
    /// The UID of its pod; lets two agents run side by side during a rolling update
    #[arg(long, env = "POD_UID")]
    pod_uid: Option<String>,
    /// The DRA driver's name
    #[arg(long, env = "GPU_DRA_DRIVER_NAME", default_value = "gpu.nvidia.com")]
    driver_name: DriverName,
    /// The kubelet's --root-dir; the same path on the host and in this container
    #[arg(long, env = "GPU_DRA_KUBELET_ROOT", default_value = "/var/lib/kubelet")]
    kubelet_root: PathBuf,
    /// The folder of CDI specs that the container runtime reads; the same path on both sides
    #[arg(long, env = "GPU_DRA_CDI_ROOT", default_value = "/var/run/cdi")]
    cdi_root: PathBuf,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    policy: PolicyArgs,
    /// The API server to use; in a pod its service account is used without this
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where to answer /healthz, /readyz and /metrics, such as 0.0.0.0:8080
    #[arg(long, env = "GPU_DRA_HTTP")]
    http: Option<SocketAddr>,
    /// The host's procfs, for whose processes use a GPU; the pod needs hostPID
    #[arg(long, env = "GPU_DRA_HOST_PROC", default_value = "/proc")]
    host_proc: PathBuf,
    /// Milliseconds after which a call of NVML's that hasn't come back fails /healthz and /readyz
    #[arg(long, env = "GPU_DRA_NVML_PATIENCE_MS", default_value = "120000", value_parser = clap::value_parser!(u64).range(1..))]
    nvml_patience_ms: u64,
    /// The container hook to install, where it isn't beside this program
    #[arg(long, env = "GPU_DRA_HOOK")]
    hook: Option<PathBuf>,
    /// The MPS host's socket
    #[arg(long, env = "GPU_DRA_MPS_SOCKET", default_value = "/run/gpu-dra/mps-host.sock")]
    mps_socket: PathBuf,
    /// The folder of MPS daemons; the same path on the host, here and for the MPS host
    #[arg(long, env = "GPU_DRA_MPS_RUN_DIR", default_value = "/run/gpu-dra/mps")]
    mps_run_dir: PathBuf,
    /// What to do about device nodes that aren't there
    #[arg(long, env = "GPU_DRA_DEVICE_NODES", value_enum, default_value = "create-missing")]
    device_nodes: Nodes,
    /// Whether MIG devices of claims taken over from NVIDIA's driver are removed when they end
    #[arg(long, env = "GPU_DRA_ADOPTED_MIG", value_enum, default_value = "auto")]
    adopted_mig: Adopted,
    /// Milliseconds between two looks at the GPUs
    #[arg(long, env = "GPU_DRA_RESCAN_MS", default_value = "10000", value_parser = clap::value_parser!(u64).range(1..))]
    rescan_ms: u64,
    /// Milliseconds between two looks for a driver that isn't there
    #[arg(long, env = "GPU_DRA_RETRY_MS", default_value = "5000", value_parser = clap::value_parser!(u64).range(1..))]
    retry_ms: u64,
    #[command(flatten)]
    health: HealthArgs,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Nodes {
    /// Fail the claim: something else makes them
    MustExist,
    /// Make them, as nvidia-modprobe would
    CreateMissing,
    /// Simulated nodes only: plain files stand for them
    AllowPlainFiles,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Adopted {
    /// Those that its slices, if they are still there, show to be its own
    Auto,
    /// All: its gate DynamicMIG was on
    Remove,
    /// None: an administrator made them
    Keep,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    gpu_dra_memory::be_frugal();
    args.log.start()?;
    let kubeconfig = args.kubeconfig.clone();
    let settings = settings(args)?;
    // One thread serves: calls mostly wait, and what blocks has threads of its own. Each thread
    // more costs memory on every node and a wake-up on every call.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(KEEP_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("can't start threads")?;
    runtime.block_on(async {
        let client = cluster::client(kubeconfig.as_deref()).await?;
        let stop = told_to_stop()?;
        Ok(gpu_dra_node::run(settings, client, stop).await?)
    })
}

fn settings(args: Args) -> anyhow::Result<Settings> {
    let hook = match args.hook {
        Some(hook) => Some(hook),
        None => std::env::current_exe()?.parent().map(|dir| dir.join("gpu-dra-hook")),
    };
    let (health, health_policy) = args.health.read()?;
    Ok(Settings {
        policy: args.policy.policy(Some(&args.node_name)),
        node: args.node_name,
        driver: args.driver_name,
        // Set and empty is how a manifest says that there is none.
        pod_uid: args.pod_uid.filter(|uid| !uid.is_empty()),
        kubelet_root: args.kubelet_root,
        cdi_root: args.cdi_root,
        root: args.place.root(),
        trees: args.place.trees(),
        device_nodes: match args.device_nodes {
            Nodes::MustExist => DeviceNodes::MustExist,
            Nodes::CreateMissing => DeviceNodes::CreateMissing,
            Nodes::AllowPlainFiles => DeviceNodes::AllowPlainFiles,
        },
        hook,
        http: args.http,
        host_proc: args.host_proc,
        nvml_patience: Duration::from_millis(args.nvml_patience_ms),
        rescan: Duration::from_millis(args.rescan_ms),
        retry: Duration::from_millis(args.retry_ms),
        health,
        health_policy,
        mps_socket: args.mps_socket,
        mps_run_dir: args.mps_run_dir,
        adopted_mig: match args.adopted_mig {
            Adopted::Auto => AdoptedMig::Auto,
            Adopted::Remove => AdoptedMig::Remove,
            Adopted::Keep => AdoptedMig::Keep,
        },
        boundary: boundary()?,
    })
}

#[cfg(not(feature = "die-at"))]
pub(crate) fn boundary() -> anyhow::Result<Boundary> {
    Ok(Boundary::default())
}

#[cfg(feature = "die-at")]
pub(crate) fn boundary() -> anyhow::Result<Boundary> {
    Ok(match std::env::var("GPU_DRA_DIE_AT") {
        Ok(n) => Boundary::die_at(n.parse().context("GPU_DRA_DIE_AT")?),
        Err(_) => Boundary::default(),
    })
}
