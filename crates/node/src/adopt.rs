//! Takes over from NVIDIA's driver (the incumbent) when the agent starts: its state file lies in
//! the plugin folder that is ours now. Before anybody is served, its claims get into the journal.
//!
//! It gathers what the decision needs and has it done; it decides nothing and touches no GPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_cdi::ShareId;
use gpu_dra_claims::incumbent::{
    AdoptedMig, Checkpoint, NeedsGpus, Node, Note, Origin, Unreadable, What, claim_of_spec,
    remains, take_over,
};
use gpu_dra_executor::{ExecuteError, Journal, JournalError};
use gpu_dra_host::{FileError, Files, Locks};
use gpu_dra_model::{BootId, ClaimUid, DeviceName, DriverName, Inventory, NodeName, PoolName};
use gpu_dra_nvml::Gpus;
use gpu_dra_sharing::{Folders as _, RealFolders};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;

use crate::events::{Announcer, Severity};
use crate::run::NodeError;

/// How long the API server is asked for what makes a take-over better and isn't needed.
const ASKING: Duration = Duration::from_secs(10);

/// Claims that are read at once.
const PAGE: u32 = 500;

/// How long an agent that does the same at the same time is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that may have been the incumbent's.
pub(crate) struct TakeOver {
    pub(crate) driver: DriverName,
    pub(crate) node: NodeName,
    pub(crate) pool: PoolName,
    pub(crate) boot_id: BootId,
    pub(crate) plugin_dir: PathBuf,
    pub(crate) cdi_root: PathBuf,
    pub(crate) mig: AdoptedMig,
    pub(crate) gpus: Arc<dyn Gpus>,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) announcer: Announcer,
    pub(crate) client: kube::Client,
}

/// The incumbent's state, however it was come by.
struct State {
    checkpoint: Checkpoint,
    /// Why the file is of no use, where it isn't.
    unreadable: Option<Unreadable>,
}

/// What the API server knows of it.
#[derive(Default)]
struct Known {
    claims: BTreeMap<ClaimUid, ResourceClaim>,
    origins: BTreeMap<DeviceName, Origin>,
}

impl TakeOver {
    /// Takes over what there is. Returns when nothing is left to take over; where that needs
    /// NVML, it is waited for with `pause` between two looks, and `waits` is told why: nobody knows
    /// what is held before.
    ///
    /// # Errors
    /// When a file can't be read or written.
    pub(crate) async fn run(self, pause: Duration, waits: impl Fn(&str)) -> Result<(), NodeError> {
        let path = self.plugin_dir.join("checkpoint.json");
        if self.files.read(&path)?.is_none() {
            return Ok(());
        }
        let this = Arc::new(self);
        let mut told = false;
        loop {
            let attempt = (Arc::clone(&this), path.clone());
            let Some(state) = blocking(move || attempt.0.read(&attempt.1)).await? else {
                return Ok(());
            };
            let known = this.ask(&state.checkpoint).await;
            let attempt = (Arc::clone(&this), path.clone());
            match blocking(move || attempt.0.take_over(&attempt.1, &state, &known)).await? {
                Ok(()) => return Ok(()),
                Err(needs_gpus) if !told => {
                    told = true;
                    let what = format!("{needs_gpus}; nothing is served until then");
                    waits(&what);
                    this.announcer.announce(Severity::Warning, "TakeOverWaits", what);
                }
                Err(NeedsGpus) => {}
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// The state; None where there is no file (any more).
    fn read(&self, path: &Path) -> Result<Option<State>, ExecuteError> {
        let Some(bytes) = self.files.read(path).map_err(JournalError::from)? else {
            return Ok(None);
        };
        Ok(Some(match Checkpoint::read(&bytes) {
            Ok(checkpoint) => State { checkpoint, unreadable: None },
            Err(error) => {
                let checkpoint = self.remains().map_err(JournalError::from)?;
                State { checkpoint, unreadable: Some(error) }
            }
        }))
    }

    fn remains(&self) -> Result<Checkpoint, FileError> {
        let mut specs = Vec::new();
        for (name, _) in self.files.list(&self.cdi_root)? {
            let uid = name.to_str().and_then(|name| claim_of_spec(&self.driver, name));
            let Some(uid) = uid else { continue };
            if let Some(bytes) = self.files.read(&self.cdi_root.join(&name))? {
                specs.push((uid, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        Ok(remains(&specs, &RealFolders.names(&self.plugin_dir.join("mps"))?))
    }

    fn take_over(
        &self,
        path: &Path,
        state: &State,
        known: &Known,
    ) -> Result<Result<(), NeedsGpus>, ExecuteError> {
        let _sole = self.locks.lock("take-over", PATIENCE)?;
        if self.files.read(path).map_err(JournalError::from)?.is_none() {
            // Another process of ours has done it meanwhile.
            return Ok(Ok(()));
        }
        let inventory = self.inventory(&state.checkpoint);
        let cdi_device = |uid: &ClaimUid, device: &DeviceName, share: Option<&str>| {
            let share = match share {
                Some(share) => Some(ShareId::new(share)?),
                None => None,
            };
            gpu_dra_cdi::device_id(&self.driver, uid, device, share.as_ref()).ok()
        };
        let taken = take_over(
            &state.checkpoint,
            &Node {
                driver: &self.driver,
                pool: &self.pool,
                boot_id: &self.boot_id,
                inventory: inventory.as_ref(),
                claims: &known.claims,
                origins: &known.origins,
                mig: self.mig,
                cdi_device: &cdi_device,
            },
        );
        let Ok(taken) = taken else { return Ok(Err(NeedsGpus)) };
        let suffix = if state.unreadable.is_some() { "json.bad" } else { "json.bak" };
        let aside = path.with_extension(suffix);
        let (journal, files) = (&self.journal, self.files.as_ref());
        gpu_dra_executor::adopt(journal, files, &taken.records, path, &aside)?;
        self.tell(path, &aside, state.unreadable.as_ref(), &taken.notes);
        Ok(Ok(()))
    }

    /// The GPUs, where they are needed and NVML answers.
    fn inventory(&self, checkpoint: &Checkpoint) -> Option<Inventory> {
        if checkpoint.entries.is_empty() {
            return None;
        }
        match self.gpus.probe() {
            Ok(inventory) => Some(inventory),
            Err(error) => {
                tracing::warn!(%error, "NVML doesn't answer during the take-over");
                None
            }
        }
    }

    fn tell(&self, path: &Path, aside: &Path, unreadable: Option<&Unreadable>, notes: &[Note]) {
        if let Some(reason) = unreadable {
            let message = format!(
                "{}, the state of NVIDIA's DRA driver, can't be read ({reason}): it is kept as {}, and what its CDI specs name is held",
                path.display(),
                aside.display()
            );
            self.announcer.announce(Severity::Warning, "CheckpointUnreadable", message);
        }
        for note in notes {
            let severity = if note.is_warning() { Severity::Warning } else { Severity::Normal };
            match note.claim() {
                Some(claim) => {
                    self.announcer.announce_to(claim, severity, "TakenOver", note.to_string());
                }
                None => self.announcer.announce(severity, "TakenOver", note.to_string()),
            }
        }
    }

    /// What the API server says of the claims, as far as it says anything in time.
    async fn ask(&self, checkpoint: &Checkpoint) -> Known {
        let mut known = Known::default();
        if checkpoint.entries.is_empty() {
            return known;
        }
        match tokio::time::timeout(ASKING, self.claims(checkpoint, &mut known.claims)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "claims not listed: their names stay unknown"),
            Err(_) => tracing::warn!("claims not listed in time: their names stay unknown"),
        }
        if has_mig(checkpoint) {
            match tokio::time::timeout(ASKING, self.slices()).await {
                Ok(Ok(slices)) => known.origins = origins(&slices),
                Ok(Err(error)) => tracing::warn!(%error, "slices of NVIDIA's driver not read"),
                Err(_) => tracing::warn!("slices of NVIDIA's driver not read in time"),
            }
        }
        known
    }

    async fn claims(
        &self,
        checkpoint: &Checkpoint,
        found: &mut BTreeMap<ClaimUid, ResourceClaim>,
    ) -> kube::Result<()> {
        let api = kube::Api::<ResourceClaim>::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = api.list(&page).await?;
            for claim in list.items {
                let mut entries = checkpoint.entries.iter();
                let uid = claim.metadata.uid.as_deref();
                if let Some(entry) = entries.find(|entry| Some(entry.uid.as_str()) == uid) {
                    found.insert(entry.uid.clone(), claim);
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if found.len() < checkpoint.entries.len() => {
                    page = ListParams::default().limit(PAGE).continue_token(&token);
                }
                _ => return Ok(()),
            }
        }
    }

    async fn slices(&self) -> kube::Result<Vec<ResourceSlice>> {
        let api = kube::Api::<ResourceSlice>::all(self.client.clone());
        let fields = format!("spec.driver={},spec.nodeName={}", self.driver, self.node);
        Ok(api.list(&ListParams::default().fields(&fields)).await?.items)
    }
}

fn has_mig(checkpoint: &Checkpoint) -> bool {
    checkpoint.entries.iter().any(|entry| {
        let mut devices = entry.groups.iter().flat_map(|group| &group.devices);
        let mig = devices.any(|device| !matches!(device.what, What::Gpu(_) | What::Passthrough));
        mig || entry.groups.is_empty()
    })
}

/// Who made the MIG devices that are still published: static ones have a UUID.
fn origins(slices: &[ResourceSlice]) -> BTreeMap<DeviceName, Origin> {
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let origin = |device: &k8s_openapi::api::resource::v1::Device| {
        let text = |key: &str| device.attributes.as_ref()?.get(key)?.string.clone();
        let origin = if text("uuid").is_some() { Origin::Found } else { Origin::Made };
        let name = DeviceName::new(&device.name).ok()?;
        (text("type")? == "mig").then_some((name, origin))
    };
    devices.filter_map(origin).collect()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ExecuteError> + Send + 'static,
) -> Result<T, NodeError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| NodeError::Ended("the take-over from NVIDIA's driver"))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_mig_devices_tell_who_made_them() {
        let slice = serde_json::json!({"spec": {"driver": "gpu.nvidia.com", "pool": {
            "name": "node-a", "generation": 1, "resourceSliceCount": 1}, "devices": [
            {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-1"}}},
            {"name": "gpu-1-mig-1g10gb-19-0", "attributes": {"type": {"string": "mig"}}},
            {"name": "gpu-2-mig-1g10gb-19-0", "attributes": {"type": {"string": "mig"}, "uuid": {"string": "MIG-1"}}},
            {"name": "odd"},
        ]}});
        let found = origins(&[serde_json::from_value(slice).unwrap()]);
        let found: Vec<_> = found.iter().map(|(name, origin)| (name.as_str(), *origin)).collect();
        assert_eq!(
            found,
            [("gpu-1-mig-1g10gb-19-0", Origin::Made), ("gpu-2-mig-1g10gb-19-0", Origin::Found)]
        );
    }
}
