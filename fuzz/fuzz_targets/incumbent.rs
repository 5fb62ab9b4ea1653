//! What NVIDIA's driver has left on a node: its state file, or where that can't be read a CDI
//! spec, read and taken over into records of the journal.
#![no_main]

mod world;

use std::collections::BTreeMap;
use std::str;
use std::sync::LazyLock;

use gpu_dra_claims::Record;
use gpu_dra_claims::incumbent::{self, AdoptedMig, Checkpoint, Node, take_over};
use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, Mig, MigMode};
use gpu_dra_model::{
    BootId, CdiDeviceId, ComputeInstanceId, DriverName, GpuInstanceId, Inventory, MigUuid,
    Placement, PoolName,
};
use libfuzzer_sys::fuzz_target;

/// The longest key of the state that is told to the operator, in characters.
const LONGEST_KEY: usize = 80;

struct Taker {
    driver: DriverName,
    pool: PoolName,
    boot_id: BootId,
    inventory: Inventory,
}

/// The node of the seeds: one H100 in MIG mode, with a MIG device.
static TAKER: LazyLock<Taker> = LazyLock::new(|| {
    let golden = include_str!("../../crates/nvml/tests/golden/h100-80.json");
    let mut inventory: Inventory = serde_json::from_str(golden).expect("an inventory");
    for gpu in &mut inventory.gpus {
        if let Mig::Supported { current, instances, .. } = &mut gpu.mig {
            *current = MigMode::Enabled;
            instances.push(GpuInstance {
                id: GpuInstanceId(1),
                profile_id: 9,
                placement: Placement { start: 4, size: 4 },
                compute_instances: vec![ComputeInstance {
                    id: ComputeInstanceId(0),
                    uuid: MigUuid::new("MIG-22222222-0000-0000-0000-000000000000").expect("a UUID"),
                    slices: 3,
                    multiprocessors: 60,
                }],
            });
        }
    }
    Taker {
        driver: DriverName::new("gpu.nvidia.com").expect("a name"),
        pool: PoolName::new("node-h100").expect("a name"),
        boot_id: BootId::new("11111111-2222-3333-4444-555555555555").expect("a UUID"),
        inventory,
    }
});

fuzz_target!(|input: &[u8]| {
    if let Ok(checkpoint) = Checkpoint::read(input) {
        assert!(checkpoint.odd.iter().all(|key| key.chars().count() <= LONGEST_KEY));
        taken(&checkpoint);
    }
    if let Ok(spec) = str::from_utf8(input) {
        let uid = world::claim(2).uid;
        let daemon = format!("{uid}-abcde");
        taken(&incumbent::remains(&[(uid, spec.to_owned())], &[daemon]));
    }
});

/// Whatever it says, the records can be kept, and a second look says the same.
fn taken(checkpoint: &Checkpoint) {
    for (mig, inventory) in [
        (AdoptedMig::Auto, Some(&TAKER.inventory)),
        (AdoptedMig::Remove, Some(&TAKER.inventory)),
        (AdoptedMig::Keep, None),
    ] {
        let node = Node {
            driver: &TAKER.driver,
            pool: &TAKER.pool,
            boot_id: &TAKER.boot_id,
            inventory,
            claims: &BTreeMap::new(),
            origins: &BTreeMap::new(),
            mig,
            cdi_device: &|uid, device, _| {
                CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={uid}-{device}")).ok()
            },
        };
        let Ok(found) = take_over(checkpoint, &node) else { continue };
        assert_eq!(take_over(checkpoint, &node).as_ref(), Ok(&found));
        found.notes.iter().for_each(|note| assert!(!note.to_string().is_empty()));
        for record in &found.records {
            let encoded = record.encode().expect("a record has a JSON form");
            assert_eq!(&Record::decode(&encoded).expect("it can be read"), record);
        }
    }
}
