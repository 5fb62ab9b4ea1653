//! What is kept over a restart of the node agent, as JSON with a version. A restart by itself
//! makes nothing well; a reboot resets the GPUs. Reading and writing the file is for others.

use std::collections::BTreeMap;

use gpu_dra_model::{BootId, GpuUuid};
use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::tracker::{GpuState, Tracker};

/// The version that is written. Fields may be added without a new one: readers pass over
/// those that they don't know.
const VERSION: u32 = 1;

/// Why stored health can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It isn't what this program writes.
    #[error(
        "stored health can't be understood: remove it, and clear GPUs by hand if it comes again"
    )]
    Format(#[from] serde_json::Error),
    /// A newer program has written it.
    #[error("stored health has version {version}, this program knows {VERSION}: upgrade gpu-dra")]
    Newer {
        /// As found.
        version: u32,
    },
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    boot: &'a BootId,
    gpus: &'a BTreeMap<GpuUuid, GpuState>,
}

#[derive(Deserialize)]
struct Read {
    boot: BootId,
    gpus: BTreeMap<GpuUuid, GpuState>,
}

impl Tracker {
    /// What to keep. Equal health gives equal bytes.
    ///
    /// # Errors
    /// None that can happen: the type is always JSON.
    pub fn to_json(&self, boot: &BootId) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(&Written { version: VERSION, boot, gpus: &self.gpus })
    }

    /// From what was kept, under the policy of now; `boot` is the boot of now.
    ///
    /// # Errors
    /// [`StoredError`]; go on with [`Tracker::new`] and say so.
    pub fn from_json(policy: Policy, json: &[u8], boot: &BootId) -> Result<Self, StoredError> {
        let Head { version } = serde_json::from_slice(json)?;
        if version > VERSION {
            return Err(StoredError::Newer { version });
        }
        let read: Read = serde_json::from_slice(json)?;
        let mut tracker = Self::new(policy);
        tracker.gpus = read.gpus;
        if read.boot != *boot {
            tracker.rebooted();
        }
        Ok(tracker)
    }
}
