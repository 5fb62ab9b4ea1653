//! Device names that stay with the card: first seen, a GPU is `gpu-<minor>`, then its
//! name is kept by UUID over reboots, permuted minors and the loss of a neighbour.
//!
//! A claim that is allocated names the device, so a name must never move to another
//! card. This module never renames and never frees a name while there is room.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::{DeviceName, GpuUuid, Inventory, Minor};
use serde::{Deserialize, Serialize};

/// How many names are remembered: cards that are gone keep theirs until more than this
/// many are known. Then those with the highest numbers are forgotten first.
const REMEMBERED: usize = 128;

/// Which name each GPU that was ever seen on this node has.
///
/// The node agent keeps it in a file, as JSON; fields that a later version adds are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Names {
    by_uuid: BTreeMap<GpuUuid, u32>,
}

/// The remembered names contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// Two GPUs have one name.
    #[error("device name {name} belongs to two GPUs; remove one of them from the names file")]
    Twice {
        /// The name.
        name: DeviceName,
    },
    /// The name is none of ours.
    #[error("device name {name} of {uuid} is not gpu-<number>; remove it from the names file")]
    NotOurs {
        /// The GPU.
        uuid: GpuUuid,
        /// The name.
        name: DeviceName,
    },
}

/// The form in the file: names in full, so that people can read it.
#[derive(Serialize, Deserialize)]
struct Stored {
    gpus: BTreeMap<GpuUuid, DeviceName>,
}

impl Names {
    /// Gives every GPU of the inventory that has no name yet its own. True if anything
    /// changed, and so must be saved before it is published.
    ///
    /// The result doesn't depend on the inventory's order: a newcomer whose minor number
    /// is free gets it; the others, in the order of their minors, get the next free number.
    pub fn assign(&mut self, inventory: &Inventory) -> bool {
        // By UUID: two cards that answer with one are one to everybody else too.
        let mut newcomers: BTreeMap<&GpuUuid, Minor> = BTreeMap::new();
        for gpu in inventory.gpus.iter().filter(|gpu| !self.by_uuid.contains_key(&gpu.uuid)) {
            let minor = newcomers.entry(&gpu.uuid).or_insert(gpu.minor);
            *minor = gpu.minor.min(*minor);
        }
        if newcomers.is_empty() {
            return false;
        }
        let mut newcomers: Vec<_> =
            newcomers.into_iter().map(|(uuid, minor)| (minor.0, uuid)).collect();
        newcomers.sort_unstable();
        let mut taken: BTreeSet<u32> = self.by_uuid.values().copied().collect();
        let (at_home, homeless): (Vec<_>, Vec<_>) =
            newcomers.into_iter().partition(|(minor, _)| taken.insert(*minor));
        self.by_uuid.extend(at_home.into_iter().map(|(minor, uuid)| (uuid.clone(), minor)));
        for (minor, uuid) in homeless {
            let free = (minor..=u32::MAX).chain(0..minor).find(|number| taken.insert(*number));
            self.by_uuid.extend(free.map(|number| (uuid.clone(), number)));
        }
        self.forget_beyond_bound(inventory);
        true
    }

    /// The name of this GPU, present or gone.
    #[must_use]
    pub fn name(&self, uuid: &GpuUuid) -> Option<DeviceName> {
        self.by_uuid.get(uuid).and_then(|number| device_name(*number))
    }

    /// The GPU that has this name, present or gone.
    #[must_use]
    pub fn uuid(&self, name: &DeviceName) -> Option<&GpuUuid> {
        let number = number_of(name)?;
        self.by_uuid.iter().find(|(_, n)| **n == number).map(|(uuid, _)| uuid)
    }

    /// All remembered GPUs with their names, by UUID.
    pub fn iter(&self) -> impl Iterator<Item = (&GpuUuid, DeviceName)> {
        self.by_uuid.iter().filter_map(|(uuid, n)| device_name(*n).map(|name| (uuid, name)))
    }

    fn forget_beyond_bound(&mut self, inventory: &Inventory) {
        let excess = self.by_uuid.len().saturating_sub(REMEMBERED);
        let mut gone: Vec<_> = self
            .by_uuid
            .iter()
            .filter(|(uuid, _)| !is_present(inventory, uuid))
            .map(|(uuid, number)| (*number, uuid.clone()))
            .collect();
        gone.sort_unstable();
        for (_, uuid) in gone.into_iter().rev().take(excess) {
            self.by_uuid.remove(&uuid);
        }
    }
}

impl TryFrom<Stored> for Names {
    type Error = NamesError;

    fn try_from(stored: Stored) -> Result<Self, NamesError> {
        let mut by_uuid = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for (uuid, name) in stored.gpus {
            let Some(number) = number_of(&name) else {
                return Err(NamesError::NotOurs { uuid, name });
            };
            if !taken.insert(number) {
                return Err(NamesError::Twice { name });
            }
            by_uuid.insert(uuid, number);
        }
        Ok(Self { by_uuid })
    }
}

impl From<Names> for Stored {
    fn from(names: Names) -> Self {
        Self { gpus: names.iter().map(|(uuid, name)| (uuid.clone(), name)).collect() }
    }
}

fn is_present(inventory: &Inventory, uuid: &GpuUuid) -> bool {
    inventory.gpu(uuid).is_some()
        || inventory.broken.iter().any(|gpu| gpu.uuid.as_ref() == Some(uuid))
}

fn device_name(number: u32) -> Option<DeviceName> {
    DeviceName::new(format!("gpu-{number}")).ok()
}

/// The number in `gpu-<number>`, written without leading zeros.
fn number_of(name: &DeviceName) -> Option<u32> {
    let number = name.as_str().strip_prefix("gpu-")?.parse().ok()?;
    (device_name(number).as_ref() == Some(name)).then_some(number)
}
