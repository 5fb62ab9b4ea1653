//! What probing sees of partitions, whoever made them, and by which calls a change of them
//! is noticed.

use gpu_dra_model::inventory::{GpuInstance, Inventory, Mig, MigMode, Placement};
use gpu_dra_nvml::Gpus;
use gpu_dra_sim_data::state::GpuState;
use gpu_dra_sim_data::{NodeType, StateError};

use crate::node::{Node, first, uuids};

fn instances(inventory: &Inventory, nth: usize) -> &[GpuInstance] {
    match &inventory.gpus[nth].mig {
        Mig::Supported { instances, .. } => instances,
        Mig::Unsupported => panic!("{inventory:?}"),
    }
}

/// All profiles that the type's table has, with everything the table says.
#[test]
fn profiles_are_the_tables_by_the_drivers_names() {
    for (name, node_type) in NodeType::all() {
        let Some(table) = &node_type.mig else { continue };
        for mode in ["on", "off"] {
            let node = Node::stage(&format!("1x{name}:mig={mode}"));
            let found = node.profiles();
            assert_eq!(found.len(), table.profiles.len(), "{name}");
            for profile in found {
                let known = &table.profiles[&profile.id];
                assert_eq!(profile.name, known.name);
                assert_eq!(
                    (profile.slices, profile.max_instances, profile.memory_mib),
                    (known.slices, known.max, known.memory_mib),
                );
                assert_eq!(
                    [
                        profile.multiprocessors,
                        profile.copy_engines,
                        profile.decoders,
                        profile.encoders,
                        profile.jpeg_engines,
                        profile.ofa_engines,
                    ],
                    [
                        known.multiprocessors,
                        known.copy_engines,
                        known.decoders,
                        known.encoders,
                        known.jpeg_engines,
                        known.ofa_engines,
                    ],
                );
                let places: Vec<_> = profile.placements.iter().map(|p| (p.start, p.size)).collect();
                let known: Vec<_> = known.placements().map(|p| (p.start, p.size)).collect();
                assert_eq!(places, known, "{name} {}", profile.name);
            }
        }
    }
}

/// What an administrator does by hand, change after change: each is noticed, and the probe
/// after it shows what is there.
#[test]
fn foreign_instances_are_seen_and_every_change_of_them_noticed() {
    let node = Node::stage("2xa100-40:mig=on");
    let driver = node.driver();
    let table = NodeType::named("a100-40").unwrap().mig.as_ref().unwrap();
    let whole = |gpu: &mut GpuState, profile, start, size| {
        let at = gpu_dra_sim_data::mig_table::Placement { start, size };
        gpu.create_gpu_instance(table, profile, Some(at)).unwrap();
    };
    let part = |gpu: &mut GpuState| {
        gpu.create_compute_instance(table, 2, 0, None).unwrap();
    };
    type Change<'a> = (&'a str, Box<dyn Fn(&mut GpuState) + 'a>, usize, usize);
    let changes: [Change<'_>; 9] = [
        ("a GPU instance without a compute instance", Box::new(|gpu| whole(gpu, 9, 0, 4)), 1, 0),
        ("its compute instance", Box::new(|gpu| part(gpu)), 1, 1),
        ("a second one in it", Box::new(|gpu| part(gpu)), 1, 2),
        ("one less", Box::new(|gpu| gpu.destroy_compute_instance(2, 0).unwrap()), 1, 1),
        (
            "another profile at the same place under the same id",
            Box::new(|gpu| {
                gpu.destroy_compute_instance(2, 1).unwrap();
                gpu.destroy_gpu_instance(2).unwrap();
                whole(gpu, 5, 0, 4);
                part(gpu);
            }),
            1,
            1,
        ),
        ("a small one", Box::new(|gpu| whole(gpu, 19, 4, 1)), 2, 1),
        (
            "that one moved",
            Box::new(|gpu| {
                gpu.destroy_gpu_instance(11).unwrap();
                whole(gpu, 19, 5, 1);
            }),
            2,
            1,
        ),
        ("and gone", Box::new(|gpu| gpu.destroy_gpu_instance(12).unwrap()), 1, 1),
        ("all gone with a reset", Box::new(GpuState::reset), 0, 0),
    ];
    let mut known = driver.probe().unwrap();
    for (what, change, gpu_instances, compute_instances) in &changes {
        node.state()
            .update(|_, state| {
                change(&mut state.gpus[1]);
                Ok::<_, StateError>(())
            })
            .unwrap();
        assert!(driver.fingerprint().unwrap().outdates(&known), "{what}");
        known = driver.probe().unwrap();
        assert!(!driver.fingerprint().unwrap().outdates(&known), "{what}");
        assert_eq!(instances(&known, 0), []);
        let there = instances(&known, 1);
        assert_eq!(there.len(), *gpu_instances, "{what}");
        let computes = there.iter().flat_map(|instance| &instance.compute_instances);
        assert_eq!(computes.count(), *compute_instances, "{what}");
        assert_eq!(driver.gpu_instances(&known.gpus[1].uuid).unwrap(), there);
    }
}

#[test]
fn parts_of_a_gpu_instance_are_told_apart() {
    let node = Node::stage("1xh100:mig=on");
    let table = NodeType::named("h100").unwrap().mig.as_ref().unwrap();
    node.state()
        .update(|_, state| {
            let gpu = &mut state.gpus[0];
            let instance = gpu.create_gpu_instance(table, 0, None).unwrap();
            for profile in [3, 1, 0] {
                gpu.create_compute_instance(table, instance, profile, None).ok();
            }
            Ok::<_, StateError>(())
        })
        .unwrap();
    let inventory = node.session().probe().unwrap();
    let [whole] = instances(&inventory, 0) else { panic!("{inventory:?}") };
    assert_eq!((whole.id.0, whole.profile_id), (0, 0));
    assert_eq!(whole.placement, Placement { start: 0, size: 8 });
    let parts: Vec<_> = whole
        .compute_instances
        .iter()
        .map(|compute| (compute.id.0, compute.slices, compute.multiprocessors))
        .collect();
    assert_eq!(parts, [(0, 4, 64), (1, 2, 32), (2, 1, 16)]);
}

/// A GPU whose partitions can't be read is set aside, and the other shows its own.
#[test]
fn one_gpu_that_does_not_tell_its_instances() {
    let node = Node::stage("2xh100:mig=on");
    let driver = node.driver();
    for gpu in &uuids(&driver.probe().unwrap()) {
        let place = Placement { start: 4, size: 4 };
        let instance = driver.create_gpu_instance(gpu, 9, place).unwrap();
        driver.create_compute_instance(gpu, instance).unwrap();
    }
    let whole = driver.probe().unwrap();
    for function in [
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ] {
        node.fail(function, "1", 999);
        let inventory = driver.probe().unwrap();
        assert_eq!(inventory.gpus, whole.gpus[..1], "{function}");
        let [broken] = &*inventory.broken else { panic!("one broken: {inventory:?}") };
        assert!(broken.reason.starts_with(function), "{broken:?}");
        node.heal();
        assert!(driver.fingerprint().unwrap().outdates(&inventory), "worth another look");
        assert_eq!(driver.probe().unwrap(), whole);
    }
    // One that is destroyed between two calls is no fault of the GPU.
    node.fail("nvmlDeviceGetAttributes_v2", "1", 2);
    let inventory = driver.probe().unwrap();
    assert_eq!(inventory.broken, []);
    assert_eq!(instances(&inventory, 1)[0].compute_instances, []);
}

/// Nothing more for GPUs whose MIG mode is off, a call for each profile where nothing is, and
/// a known few for what is there.
#[test]
fn a_look_at_partitions_costs_few_calls() {
    let node = Node::stage("1xh100");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let look = || node.calls(|| drop(driver.fingerprint().unwrap()));
    let off = look();
    driver.set_mig_mode(&gpu, MigMode::Enabled).unwrap();
    driver.fingerprint().unwrap();
    assert_eq!(look(), off + 7, "profiles");
    for start in 0..7 {
        let place = Placement { start, size: 1 };
        let instance = driver.create_gpu_instance(&gpu, 19, place).unwrap();
        driver.create_compute_instance(&gpu, instance).unwrap();
    }
    assert_eq!(look(), off + 7 + 7 + 1 + 7 + 7, "profiles, instances, count, devices, UUIDs");
    let full = node.calls(|| drop(driver.probe().unwrap()));
    assert!(full > 2 * look(), "{full} for a full pass, {} to look", look());
}
