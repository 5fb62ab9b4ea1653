//! What the doctor knows of a node, as plain values. What couldn't be found out has the reason in
//! place of the value.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gpu_dra_claims::Record;
use gpu_dra_model::{BootId, ClaimUid, DriverName, Inventory};
use gpu_dra_node::runtime_config::RuntimeConfig;
use gpu_dra_sharing::Status;

/// Found out, or why not.
pub(super) type Found<T> = Result<T, String>;

/// All of it.
pub(super) struct Facts {
    pub(super) driver: DriverName,
    pub(super) kernel: Found<String>,
    pub(super) boot: Found<BootId>,
    pub(super) driver_root: PathBuf,
    pub(super) gpus: Found<Inventory>,
    pub(super) driver_files: Found<usize>,
    pub(super) cdi: Cdi,
    pub(super) plugin_dir: PathBuf,
    /// Records that can be read.
    pub(super) records: Vec<Record>,
    /// Files of the plugin folder and the journal, by their path below the plugin folder.
    pub(super) files: Vec<String>,
    pub(super) sockets: Vec<Socket>,
    pub(super) kubelet: Found<Vec<KubeletClaim>>,
    pub(super) mps: Found<Vec<Status>>,
    pub(super) ready: Found<Ready>,
    /// Configs of container runtimes that make NVIDIA's the default.
    pub(super) nvidia_by_default: Vec<PathBuf>,
    /// What the container runtime's files say of CDI, where they can be read.
    pub(super) runtime_config: Option<RuntimeConfig>,
    /// The devices that would be published now.
    pub(super) desired: Found<BTreeSet<String>>,
    pub(super) cluster: Found<Cluster>,
}

/// The folder of CDI specs.
pub(super) struct Cdi {
    pub(super) path: PathBuf,
    pub(super) writable: Found<()>,
    /// Names and sizes in bytes.
    pub(super) files: Vec<(String, u64)>,
}

/// A socket of the kubelet's plugins.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    pub(super) answers: bool,
    /// The other driver's, by its name.
    pub(super) others: bool,
}

/// What the kubelet remembers of a claim with our devices.
pub(super) struct KubeletClaim {
    pub(super) uid: Option<ClaimUid>,
    pub(super) name: String,
    pub(super) pods: usize,
    pub(super) devices: Vec<String>,
}

/// What the agent's probe says.
pub(super) struct Ready {
    pub(super) ready: bool,
    pub(super) text: String,
}

/// What the API server says.
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) node: Found<NodeInfo>,
    pub(super) slices: Found<Vec<SliceInfo>>,
    pub(super) events: Found<Vec<String>>,
}

/// What the Node says.
pub(super) struct NodeInfo {
    pub(super) kubelet: String,
    pub(super) runtime: String,
    pub(super) kernel: String,
    pub(super) os: String,
    /// What falls short, or stands in the way, each in a sentence.
    pub(super) troubles: Vec<String>,
}

/// One slice.
pub(super) struct SliceInfo {
    pub(super) name: String,
    pub(super) generation: i64,
    pub(super) of: i64,
    pub(super) devices: Vec<String>,
    pub(super) taints: Vec<String>,
}
