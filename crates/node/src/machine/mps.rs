//! MPS daemons for claims: asked of the MPS host, which runs them in a process of its own.
//!
//! It starts and ends no process itself, and remembers nothing: whether a daemon runs is
//! asked each time.

use std::time::Duration;

use gpu_dra_cdi::ContainerEdits;
use gpu_dra_claims::{HeldDevice, HeldPart, HeldShare, Record, share_daemon};
use gpu_dra_executor::EffectError;
use gpu_dra_host::Boundary;
use gpu_dra_model::config::{MemoryLimit, MpsConfig};
use gpu_dra_model::{DeviceName, GpuUuid, Quantity};
use gpu_dra_sharing::{
    ClientLimits, DaemonId, DaemonSpec, DaemonState, MpsClient, MpsError, Places, RunDir,
    VisibleDevice, client_edits,
};

use super::said;

/// How long a daemon may take to serve; the kubelet gives up after 45 s.
const LIMIT: Duration = Duration::from_secs(30);

/// The MPS host of this node.
#[derive(Debug, Clone)]
pub struct MpsHost {
    client: MpsClient,
    run: RunDir,
}

impl MpsHost {
    /// The host that listens on `socket` and keeps its daemons' folders in `run`.
    #[must_use]
    pub fn new(socket: &std::path::Path, run: RunDir) -> Self {
        Self { client: MpsClient::new(socket, LIMIT), run }
    }

    /// The client, for following what becomes of daemons.
    #[must_use]
    pub fn client(&self) -> &MpsClient {
        &self.client
    }

    /// Has the daemon serve these devices of the claim. `begun` knows the MIG devices that
    /// were made for it.
    pub(super) fn ensure(
        &self,
        boundary: &Boundary,
        daemon: &str,
        devices: &[DeviceName],
        config: &MpsConfig,
        begun: &Record,
    ) -> Result<(), EffectError> {
        let served = begun.devices.iter().filter(|device| devices.contains(&device.device));
        let served = served.map(|device| visible(begun, device)).collect::<Result<Vec<_>, _>>()?;
        let spec = DaemonSpec::from_config(config, served)
            .map_err(|error| EffectError::Mps(error.to_string()))?;
        self.start(boundary, daemon, &spec)
    }

    /// Has one daemon serve all shares of the GPU, of whatever users; each share's limits are
    /// its clients' own.
    pub(super) fn ensure_for_shares(
        &self,
        boundary: &Boundary,
        gpu: &GpuUuid,
    ) -> Result<(), EffectError> {
        let config = MpsConfig { multi_user: true, ..MpsConfig::default() };
        let spec = DaemonSpec::from_config(&config, [VisibleDevice::Gpu(gpu.clone())])
            .map_err(|error| EffectError::Mps(error.to_string()))?;
        self.start(boundary, &share_daemon(gpu), &spec)
    }

    fn start(
        &self,
        boundary: &Boundary,
        daemon: &str,
        spec: &DaemonSpec,
    ) -> Result<(), EffectError> {
        boundary.pass("start MPS daemon");
        self.client.ensure(&id(daemon)?, spec).map_err(|error| match error {
            MpsError::Away { .. } => EffectError::MpsAway(said(&error)),
            error => failed(error),
        })?;
        boundary.pass("MPS daemon serves");
        Ok(())
    }

    /// Has nothing left of the daemon.
    pub(super) fn stop(&self, boundary: &Boundary, daemon: &str) -> Result<(), EffectError> {
        boundary.pass("stop MPS daemon");
        self.client.stop(&id(daemon)?).map_err(failed)?;
        boundary.pass("MPS daemon is gone");
        Ok(())
    }

    /// Whether the host still has these daemons, in whatever state.
    pub(super) fn has(
        &self,
        mut daemons: impl Iterator<Item = String>,
    ) -> Result<bool, EffectError> {
        let Some(first) = daemons.next() else { return Ok(true) };
        let known = self.client.list().map_err(failed)?;
        let has = |daemon: String| {
            known
                .iter()
                .any(|status| status.id.as_str() == daemon && status.state != DaemonState::Unasked)
        };
        Ok(has(first) && daemons.all(has))
    }

    /// What a container gets beside the device to reach its daemon, within its share.
    pub(super) fn edits(
        &self,
        daemon: &str,
        share: Option<HeldShare>,
    ) -> Result<ContainerEdits, EffectError> {
        let limits = share.map_or_else(ClientLimits::default, |share| {
            let memory = Quantity::from_bytes_binary(share.memory_mib.saturating_mul(1 << 20));
            ClientLimits {
                active_thread_percentage: share.compute_percent,
                // The GPU is the daemon's only device.
                memory: MemoryLimit::new(&memory).map(|limit| (0, limit)).into_iter().collect(),
            }
        });
        Ok(client_edits(&self.run.places(&id(daemon)?), &limits))
    }
}

/// What a container gets to reach a daemon of NVIDIA's driver, whose folders are in `base`.
pub(super) fn adopted_edits(base: &std::path::Path) -> ContainerEdits {
    let places = Places {
        pipe: base.join("pipe"),
        log: base.join("log"),
        shm: base.join("shm"),
        // A daemon that isn't started here needs neither.
        libraries: base.to_owned(),
        starts: base.to_owned(),
        base: base.to_owned(),
    };
    client_edits(&places, &ClientLimits::default())
}

fn id(daemon: &str) -> Result<DaemonId, EffectError> {
    DaemonId::new(daemon).map_err(|error| EffectError::Mps(error.to_string()))
}

fn visible(record: &Record, device: &HeldDevice) -> Result<VisibleDevice, EffectError> {
    Ok(match &device.part {
        None => VisibleDevice::Gpu(device.gpu.clone()),
        Some(HeldPart::Static { device, .. }) => VisibleDevice::Mig(device.uuid.clone()),
        Some(HeldPart::Partition(partition)) => {
            let made = record.made(&device.gpu, *partition);
            let made = made.ok_or_else(|| EffectError::NothingToWatch {
                gpu: device.gpu.clone(),
                start: partition.placement.start,
            })?;
            VisibleDevice::Mig(made.uuid.clone())
        }
    })
}

fn failed(error: MpsError) -> EffectError {
    EffectError::Mps(said(&error))
}
