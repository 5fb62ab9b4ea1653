//! Everything that can be set on a node agent, as plain values. Where they come from (flags,
//! environment) is the binary's business.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gpu_dra_driverroot::{DeviceNodes, DriverRoot};
use gpu_dra_host::Boundary;
use gpu_dra_model::{DriverName, NodeName};
use gpu_dra_slices::Policy;

/// The settings of one node agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Node it runs on; also the name of its pool.
    pub node: NodeName,
    /// The DRA driver's name.
    pub driver: DriverName,
    /// The UID of its pod: with it two agents can run side by side during an update.
    pub pod_uid: Option<String>,
    /// The kubelet's root folder, the same path on the host and here.
    pub kubelet_root: PathBuf,
    /// The folder of CDI specs that the container runtime reads, the same path on both sides.
    pub cdi_root: PathBuf,
    /// Where the driver is installed, seen by the host and by this process.
    pub root: DriverRoot,
    /// Where sysfs, procfs and device nodes are, as this process sees them.
    pub trees: gpu_dra_nvml::Trees,
    /// What counts as a device node; anything but real ones is for simulated nodes.
    pub device_nodes: DeviceNodes,
    /// Our container hook, which is copied into the plugin folder; None where it isn't built in.
    pub hook: Option<PathBuf>,
    /// The host's procfs as this process sees it, whose processes NVML names.
    pub host_proc: PathBuf,
    /// How long NVML may take for one thing before this process is called stuck.
    pub nvml_patience: Duration,
    /// Where to answer `/healthz`, `/readyz` and `/metrics`; None for nowhere.
    pub http: Option<SocketAddr>,
    /// How often the GPUs are looked at while nothing is wrong.
    pub rescan: Duration,
    /// How often the driver is looked for while it isn't there.
    pub retry: Duration,
    /// What of the GPUs is published, and how those that can be partitioned are used.
    pub policy: Policy,
    /// How often the GPUs are asked how they are.
    pub health: Duration,
    /// What is done about what is wrong with a GPU.
    pub health_policy: gpu_dra_health::Policy,
    /// The MPS host's socket.
    pub mps_socket: PathBuf,
    /// The folder of the MPS daemons, the same path on the host, here and for the MPS host.
    pub mps_run_dir: PathBuf,
    /// What becomes of MIG devices of claims that are taken over from NVIDIA's driver.
    pub adopted_mig: gpu_dra_claims::incumbent::AdoptedMig,
    /// The points between effects, for the crash tests.
    pub boundary: Boundary,
}

impl Settings {
    /// The folder that the kubelet reserves for this driver; survives restarts and reboots.
    #[must_use]
    pub fn plugin_dir(&self) -> PathBuf {
        self.kubelet_root.join("plugins").join(self.driver.as_str())
    }
}
