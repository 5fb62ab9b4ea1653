//! Claims that another driver prepared and this one took over. Their record says what they
//! have, but wasn't planned here: it is never compared with a plan, only with the allocation.

use gpu_dra_model::DeviceName;
use serde::{Deserialize, Serialize};

use crate::allocation::{AllocatedDevice, Allocation};
use crate::record::{HeldDevice, Record};

/// What a record has of the driver that prepared the claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Adopted {
    /// MPS daemons that the other driver runs for the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mps: Vec<AdoptedMps>,
}

/// One MPS daemon of the other driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedMps {
    /// Its id: the folder below `mps` in the plugin folder is called so.
    pub daemon: String,
    /// The devices that it serves.
    pub devices: Vec<DeviceName>,
}

impl Record {
    /// Whether the claim was taken over and still has what the allocation gives it, so that
    /// it is answered as it is: redoing it would take its devices from running pods.
    #[must_use]
    pub fn is_adopted_as(&self, allocation: &Allocation) -> bool {
        let held = |result: &AllocatedDevice| {
            self.devices.iter().any(|device| {
                device.device == result.device
                    && device.pool == result.pool
                    && device.share_id == result.share_id
                    && device.admin == result.admin
            })
        };
        self.adopted.is_some()
            && allocation.devices.iter().all(held)
            && self.devices.iter().all(|device| {
                allocation.devices.iter().any(|result| device.device == result.device)
            })
    }

    /// The other driver's MPS daemon that serves this device.
    #[must_use]
    pub fn adopted_mps(&self, of: &HeldDevice) -> Option<&str> {
        let mut daemons = self.adopted.iter().flat_map(|adopted| &adopted.mps);
        let daemon = daemons.find(|daemon| daemon.devices.contains(&of.device))?;
        Some(&daemon.daemon)
    }
}
