//! The GPUs that were there since the node was booted. One that doesn't answer any more stays
//! in the pool as it was known last: a device that vanished could neither be tainted nor would
//! anybody be told why the pod on it fails.
//!
//! It doesn't find out whether a GPU is lost, broken or taken away; whoever publishes it has to
//! see to it that nobody gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpu_dra_host::{FileError, Files};
use gpu_dra_model::inventory::{BrokenGpu, Mig};
use gpu_dra_model::{BootId, Gpu, GpuUuid, Inventory, Partition};
use gpu_dra_slices::OwnInstance;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// What is known of this boot's GPUs.
#[derive(Debug, Default)]
pub(crate) struct KnownGpus {
    gpus: BTreeMap<GpuUuid, Gpu>,
    missing: BTreeSet<GpuUuid>,
}

/// What is kept over a restart: those that can't be probed again.
#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    boot: BootId,
    missing: Vec<Gpu>,
}

impl KnownGpus {
    /// Those that were missing before a restart, from a file beside that of the names. After a
    /// reboot what is there is all there is.
    ///
    /// # Errors
    /// When the file is there but can't be read.
    pub(crate) fn open(
        files: &dyn Files,
        names_file: &Path,
        boot: &BootId,
    ) -> Result<Self, FileError> {
        let Some(json) = files.read(&beside(names_file))? else { return Ok(Self::default()) };
        let stored: Stored = match serde_json::from_slice(&json) {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(%error, "file of missing GPUs is of no use, they are forgotten");
                return Ok(Self::default());
            }
        };
        if stored.boot != *boot {
            return Ok(Self::default());
        }
        let gpus: BTreeMap<_, _> =
            stored.missing.into_iter().map(|gpu| (gpu.uuid.clone(), gpu)).collect();
        Ok(Self { missing: gpus.keys().cloned().collect(), gpus })
    }

    /// Keeps what is missing over a restart.
    pub(crate) fn save(
        &self,
        files: &dyn Files,
        names_file: &Path,
        boot: &BootId,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let missing = self.missing.iter().filter_map(|uuid| self.gpus.get(uuid).cloned());
        let (boot, missing) = (boot.clone(), missing.collect());
        let json = serde_json::to_vec(&Stored { version: VERSION, boot, missing })?;
        Ok(files.replace(&beside(names_file), &json, 0o600)?)
    }

    /// The GPUs that don't answer now.
    pub(crate) fn missing(&self) -> &BTreeSet<GpuUuid> {
        &self.missing
    }

    /// The inventory with the missing GPUs as they were known last, but for the instances that
    /// claims had made. Says too whether others are missing than before.
    pub(crate) fn complete(
        &mut self,
        inventory: &Inventory,
        own: &BTreeSet<OwnInstance>,
    ) -> (Inventory, bool) {
        let replaced = |known: &Gpu| {
            let mut others = inventory.gpus.iter().filter(|gpu| gpu.uuid != known.uuid);
            others.any(|gpu| gpu.pci_bus_id == known.pci_bus_id)
        };
        self.gpus.retain(|_, known| !replaced(known));
        self.gpus.extend(inventory.gpus.iter().map(|gpu| (gpu.uuid.clone(), without(gpu, own))));
        let missing: Vec<&Gpu> =
            self.gpus.values().filter(|gpu| inventory.gpu(&gpu.uuid).is_none()).collect();
        let mut complete = inventory.clone();
        complete.broken.retain(|broken| !missing.iter().any(|gpu| is(broken, gpu)));
        complete.gpus.extend(missing.iter().map(|gpu| (*gpu).clone()));
        let missing: BTreeSet<_> = missing.iter().map(|gpu| gpu.uuid.clone()).collect();
        let changed = missing != self.missing;
        self.missing = missing;
        (complete, changed)
    }
}

fn beside(names_file: &Path) -> PathBuf {
    names_file.with_file_name("missing-gpus.json")
}

fn without(gpu: &Gpu, own: &BTreeSet<OwnInstance>) -> Gpu {
    let mut gpu = gpu.clone();
    if let Mig::Supported { instances, .. } = &mut gpu.mig {
        instances.retain(|instance| {
            let (profile_id, placement) = (instance.profile_id, instance.placement);
            let partition = Partition { profile_id, placement };
            !own.contains(&OwnInstance { gpu: gpu.uuid.clone(), partition })
        });
    }
    gpu
}

/// A GPU that is lost tells nothing of itself: then it is the one that had this place.
fn is(broken: &BrokenGpu, gpu: &Gpu) -> bool {
    match (&broken.uuid, &broken.pci_bus_id) {
        (Some(uuid), _) => *uuid == gpu.uuid,
        (None, Some(address)) => *address == gpu.pci_bus_id,
        (None, None) => broken.index == gpu.index,
    }
}
