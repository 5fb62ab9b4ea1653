//! What the node agent must offer so that a kubelet can use it: [`ClaimService`], in the
//! words of the model and without a trace of gRPC.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gpu_dra_model::{CdiDeviceId, ClaimRef, ClaimUid, DeviceName, PoolName, RequestName};
use tokio::sync::watch;

/// After how long without news the kubelet takes a device's health for unknown.
pub const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// The node agent's side of a kubelet's calls. One implementation serves all versions of
/// the API.
///
/// A call runs to its end even when the kubelet has given up on it (it does so after
/// 45 s) and has perhaps called again: it is the implementation that makes repeated and
/// overlapping calls for the same claim wait for each other.
pub trait ClaimService: Send + Sync + 'static {
    /// Makes the devices of each claim usable. The claims are of one pod and never the
    /// same twice; each is answered by itself, in any order. A claim left out counts as
    /// failed.
    ///
    /// The text of an error reaches the pod's event.
    fn prepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> impl Future<Output = Vec<(ClaimUid, Result<Vec<PreparedDevice>, String>)>> + Send;

    /// Undoes what was done for each claim; a claim never seen is a success. As with
    /// [`prepare`](Self::prepare), each is answered by itself. An error keeps the pod in
    /// `Terminating`, and the kubelet calls again.
    fn unprepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> impl Future<Output = Vec<(ClaimUid, Result<(), String>)>> + Send;

    /// The health of all devices, always the full list. When the sender is dropped the
    /// kubelet's streams end and it takes the devices' health for unknown.
    fn health(&self) -> watch::Receiver<Arc<Vec<DeviceHealth>>>;
}

/// A device of a claim, ready for containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The requests that the device serves, as the allocation names them; the kubelet is
    /// told the base names. Empty means all requests of the claim.
    pub request_names: Vec<RequestName>,
    /// The device's pool, as in the allocation.
    pub pool: PoolName,
    /// The device, as in the allocation.
    pub device: DeviceName,
    /// What the container runtime injects, in this order. The first must belong to this
    /// device alone: the kubelet reports the device's health by it.
    pub cdi_ids: Vec<CdiDeviceId>,
    /// The allocation result's `shareID`, where the device is shared. Kubelets that speak
    /// only v1beta1 are not told.
    pub share_id: Option<String>,
}

/// The health of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The device's pool.
    pub pool: PoolName,
    /// The device.
    pub device: DeviceName,
    /// How it is.
    pub state: HealthState,
    /// When that was found out.
    pub last_updated: SystemTime,
    /// Why, for people: shown in the pod's status. The kubelet cuts it at 1,024 characters.
    pub message: String,
}

/// Whether a device works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    /// Can't be told.
    Unknown,
    /// It works.
    Healthy,
    /// It doesn't; see the message.
    Unhealthy,
}
