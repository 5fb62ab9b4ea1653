//! "Has anything changed?" in a handful of calls per GPU, so that looking every few seconds
//! isn't a full pass: device count, UUID, MIG mode and fabric, where MIG is on the instances,
//! and nothing else.

use gpu_dra_model::inventory::{Fabric, Mig, MigMode};
use gpu_dra_model::{GpuUuid, Inventory};

use crate::code::{CallError, Code, if_possible};
use crate::instances::Geometry;
use crate::session::Session;
use crate::{mig, probe, raw};

/// What changes when GPUs come, go, fall off the bus, change their MIG mode, are partitioned
/// otherwise or join the fabric: one entry for each NVML index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Vec<Slot>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Gpu {
        uuid: GpuUuid,
        mig: Option<(MigMode, MigMode)>,
        geometry: Geometry,
        fabric: Option<Fabric>,
    },
    Lost,
    Failed,
}

impl Fingerprint {
    /// The fingerprint of a node whose probe found this.
    #[must_use]
    pub fn of(inventory: &Inventory) -> Self {
        let gpus = inventory.gpus.iter().map(|gpu| {
            let (mig, geometry) = match &gpu.mig {
                Mig::Supported { current, pending, instances, .. } => {
                    (Some((*current, *pending)), Geometry::of(instances))
                }
                Mig::Unsupported => (None, Geometry::default()),
            };
            let (uuid, fabric) = (gpu.uuid.clone(), gpu.fabric.clone());
            (gpu.index, Slot::Gpu { uuid, mig, geometry, fabric })
        });
        let broken = inventory
            .broken
            .iter()
            .map(|gpu| (gpu.index, if gpu.lost { Slot::Lost } else { Slot::Failed }));
        let mut slots: Vec<(u32, Slot)> = gpus.chain(broken).collect();
        slots.sort_by_key(|(index, _)| *index);
        Self(slots.into_iter().map(|(_, slot)| slot).collect())
    }

    /// Whether a new probe may find something else than `inventory`: what can be seen
    /// cheaply is not as it says, or a GPU failed for a reason that may have passed.
    #[must_use]
    pub fn outdates(&self, inventory: &Inventory) -> bool {
        let known = Self::of(inventory);
        *self != known || known.0.contains(&Slot::Failed)
    }
}

pub(crate) fn fingerprint(session: &Session) -> Result<Fingerprint, CallError> {
    let slot = |index| match slot(session, index) {
        Ok(slot) => slot,
        Err(probe::Fault::Call(error)) if error.code == Code::GPU_IS_LOST => Slot::Lost,
        Err(_) => Slot::Failed,
    };
    Ok(Fingerprint((0..probe::count(session.nvml())?).map(slot).collect()))
}

fn slot(session: &Session, index: u32) -> Result<Slot, probe::Fault> {
    let nvml = session.nvml();
    let device = probe::handle(nvml, index)?;
    let uuid = probe::uuid(&device)?;
    let mig = mig::mode(&device)?;
    let geometry = match mig {
        Some((MigMode::Enabled, _)) => {
            Geometry::read(nvml, &device, &session.kinds(&uuid, &device)?)?
        }
        Some((MigMode::Disabled, _)) | None => Geometry::default(),
    };
    let fabric = if_possible(raw::fabric_info(nvml, &device))?;
    Ok(Slot::Gpu { uuid, mig, geometry, fabric: fabric.and_then(|info| probe::joined(&info)) })
}

#[cfg(test)]
mod tests {
    use gpu_dra_model::inventory::{BrokenGpu, Gpu};
    use gpu_dra_model::{Minor, PciBusId};

    use super::*;

    fn gpu(index: u32, uuid: char, bus: u32) -> Gpu {
        Gpu {
            uuid: GpuUuid::new(format!(
                "GPU-{}-0000-0000-0000-000000000000",
                uuid.to_string().repeat(8)
            ))
            .unwrap(),
            minor: Minor(index),
            index,
            pci_bus_id: PciBusId::new(format!("0000:{bus:02x}:00.0")).unwrap(),
            product_name: String::new(),
            brand: None,
            architecture: None,
            compute_capability: None,
            memory_bytes: None,
            memory_bus_width_bits: None,
            pcie_root: None,
            numa_node: None,
            addressing_mode: None,
            module_id: None,
            fabric: None,
            vgpu_guest: false,
            mig: Mig::Supported {
                current: MigMode::Disabled,
                pending: MigMode::Disabled,
                profiles: vec![],
                instances: vec![],
            },
        }
    }

    fn broken(index: u32, lost: bool) -> BrokenGpu {
        BrokenGpu { index, uuid: None, pci_bus_id: None, reason: String::new(), lost }
    }

    #[test]
    fn same_node_is_not_asked_again_whatever_the_order_of_its_addresses() {
        let known =
            Inventory { gpus: vec![gpu(1, 'a', 3), gpu(0, 'b', 9)], ..Inventory::default() };
        let seen = Inventory { gpus: vec![gpu(0, 'b', 9), gpu(1, 'a', 3)], ..Inventory::default() };
        assert!(!Fingerprint::of(&seen).outdates(&known));
    }

    #[test]
    fn each_change_is_noticed() {
        let known =
            Inventory { gpus: vec![gpu(0, 'a', 3), gpu(1, 'b', 9)], ..Inventory::default() };
        let mig_on = Mig::Supported {
            current: MigMode::Disabled,
            pending: MigMode::Enabled,
            profiles: vec![],
            instances: vec![],
        };
        let fabric = Some(Fabric { cluster_uuid: String::new(), clique_id: 1 });
        for (what, gpus, broken) in [
            ("removed", vec![gpu(0, 'a', 3)], vec![]),
            ("swapped", vec![gpu(0, 'a', 3), gpu(1, 'c', 9)], vec![]),
            ("added", vec![gpu(0, 'a', 3), gpu(1, 'b', 9), gpu(2, 'c', 10)], vec![]),
            ("lost", vec![gpu(0, 'a', 3)], vec![broken(1, true)]),
            ("mode pending", vec![gpu(0, 'a', 3), Gpu { mig: mig_on, ..gpu(1, 'b', 9) }], vec![]),
            ("joined", vec![gpu(0, 'a', 3), Gpu { fabric, ..gpu(1, 'b', 9) }], vec![]),
        ] {
            let now = Fingerprint::of(&Inventory { gpus, broken, ..Inventory::default() });
            assert!(now.outdates(&known), "{what}");
        }
    }

    #[test]
    fn failed_gpu_is_asked_again_but_a_lost_one_is_not() {
        for (lost, again) in [(false, true), (true, false)] {
            let known = Inventory {
                gpus: vec![gpu(0, 'a', 3)],
                broken: vec![broken(1, lost)],
                ..Inventory::default()
            };
            assert_eq!(Fingerprint::of(&known).outdates(&known), again);
        }
    }
}
