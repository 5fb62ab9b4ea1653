//! The life of MIG instances on a simulated node, and each way in which a step of it fails:
//! what is left behind then, and what the error says.

use std::slice::from_ref;
use std::sync::Barrier;
use std::thread;

use gpu_dra_model::inventory::{ComputeInstance, GpuInstance, MigMode, Placement};
use gpu_dra_model::{ComputeInstanceId, GpuInstanceId, GpuUuid};
use gpu_dra_nvml::{Code, GpuError, Gpus};
use gpu_dra_sim_data::control::{Fault, Process};
use gpu_dra_sim_data::{NodeType, mig_uuid};

use crate::node::{Node, first, uuids};

fn at(start: u32, size: u32) -> Placement {
    Placement { start, size }
}

#[test]
fn from_mode_to_instance_and_back() {
    let node = Node::stage("2xh100");
    let driver = node.driver();
    let [gpu, other] = &uuids(&driver.probe().unwrap())[..] else { panic!("two GPUs") };
    assert_eq!(driver.gpu_instances(gpu).unwrap(), []);
    driver.set_mig_mode(gpu, MigMode::Enabled).unwrap();
    assert_eq!(driver.mig_mode(gpu).unwrap(), Some((MigMode::Enabled, MigMode::Enabled)));
    assert_eq!(driver.mig_mode(other).unwrap(), Some((MigMode::Disabled, MigMode::Disabled)));

    let instance = driver.create_gpu_instance(gpu, 9, at(4, 4)).unwrap();
    assert_eq!(instance, GpuInstanceId(1));
    let bare =
        GpuInstance { id: instance, profile_id: 9, placement: at(4, 4), compute_instances: vec![] };
    assert_eq!(driver.gpu_instances(gpu).unwrap(), *from_ref(&bare), "and no compute instance yet");
    let compute = driver.create_compute_instance(gpu, instance).unwrap();
    let uuid = mig_uuid(gpu.as_str(), 1, 0).parse().unwrap();
    let whole = ComputeInstance { id: ComputeInstanceId(0), uuid, slices: 3, multiprocessors: 60 };
    assert_eq!(compute, whole);
    assert_eq!(
        driver.gpu_instances(gpu).unwrap(),
        [GpuInstance { compute_instances: vec![whole], ..bare }]
    );
    assert_eq!(driver.gpu_instances(other).unwrap(), []);

    for _ in 0..2 {
        driver.destroy_compute_instance(gpu, instance, compute.id).unwrap();
    }
    for _ in 0..2 {
        driver.destroy_gpu_instance(gpu, instance).unwrap();
    }
    assert_eq!(driver.gpu_instances(gpu).unwrap(), []);
    driver.set_mig_mode(gpu, MigMode::Disabled).unwrap();
    driver.destroy_gpu_instance(gpu, instance).unwrap();
    driver.destroy_compute_instance(gpu, instance, compute.id).unwrap();
}

/// Every profile of every GPU type at every place that NVML tells, with the compute instance
/// that has all of it.
#[test]
fn everything_that_can_be_published_can_be_created() {
    let mut tried = 0;
    for (name, node_type) in NodeType::all() {
        if node_type.mig.is_none() {
            continue;
        }
        let node = Node::stage(&format!("1x{name}:mig=on"));
        let driver = node.driver();
        let gpu = first(&driver.probe().unwrap());
        for profile in node.profiles() {
            for &placement in &profile.placements {
                let instance = driver.create_gpu_instance(&gpu, profile.id, placement).unwrap();
                let compute = driver.create_compute_instance(&gpu, instance).unwrap();
                let what = format!("{name} {} {placement:?}", profile.name);
                assert_eq!(compute.slices, profile.slices, "{what}");
                assert_eq!(compute.multiprocessors, profile.multiprocessors, "{what}");
                let made = driver.gpu_instances(&gpu).unwrap();
                assert_eq!(made.len(), 1, "{what}");
                assert_eq!((made[0].profile_id, made[0].placement), (profile.id, placement));
                driver.destroy_compute_instance(&gpu, instance, compute.id).unwrap();
                driver.destroy_gpu_instance(&gpu, instance).unwrap();
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

/// A board with a broken eighth numbers its instances past the hole.
#[test]
fn ids_are_the_drivers_not_computed() {
    let node = Node::stage_changed("h100-pcie:mig=on", |node| {
        let table = node.gpus[0].model.mig.as_mut().unwrap();
        table.profiles.get_mut(&19).unwrap().starts = vec![0, 1, 2, 4, 5, 6, 7];
    });
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let made: Vec<_> = [0, 1, 2, 4, 5, 6, 7]
        .map(|start| driver.create_gpu_instance(&gpu, 19, at(start, 1)).unwrap().0)
        .to_vec();
    assert_eq!(made, [7, 8, 9, 11, 12, 13, 14]);
    assert!(matches!(
        driver.create_gpu_instance(&gpu, 19, at(3, 1)),
        Err(GpuError::Call { source, .. }) if source.code == Code::INVALID_ARGUMENT
    ));
}

#[test]
fn a_taken_place_and_taken_engines_have_a_sentence() {
    let node = Node::stage("1xrtx-pro-6000:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    driver.create_gpu_instance(&gpu, 65, at(0, 3)).unwrap();
    for (profile, placement) in [(67, at(0, 3)), (67, at(0, 3)), (14, at(3, 3)), (32, at(0, 12))] {
        let error = driver.create_gpu_instance(&gpu, profile, placement).unwrap_err();
        assert!(
            matches!(
                &error,
                GpuError::PlacementTaken { uuid, profile_id, placement: there }
                    if *uuid == gpu && *profile_id == profile && *there == placement
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains("nvidia-smi mig -lgi"), "{error}");
    }
    driver.create_gpu_instance(&gpu, 67, at(3, 3)).unwrap();
    assert_eq!(driver.gpu_instances(&gpu).unwrap().len(), 2);
}

#[test]
fn of_two_who_want_one_place_one_gets_it() {
    let node = Node::stage("1xh100:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let start = Barrier::new(4);
    let made: Vec<_> = thread::scope(|scope| {
        let one = || {
            start.wait();
            driver.create_gpu_instance(&gpu, 19, at(2, 1))
        };
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "{made:?}");
    let taken = |made: &&Result<_, _>| matches!(made, Err(GpuError::PlacementTaken { .. }));
    assert_eq!(made.iter().filter(taken).count(), 3, "{made:?}");
}

/// What can fail after a creation takes the created thing back.
#[test]
fn no_half_made_instance_is_left_by_an_error() {
    let node = Node::stage("1xh100:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let refusal = |error: GpuError| match error {
        GpuError::Call { uuid, source } if uuid == gpu => source.to_string(),
        other => panic!("{other:?}"),
    };
    for function in ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceGetInfo"] {
        node.fail(function, "0", 999);
        let text = refusal(driver.create_gpu_instance(&gpu, 14, at(2, 2)).unwrap_err());
        assert_eq!(text, format!("{function}: unknown driver error (NVML 999)"));
        node.heal();
        assert_eq!(driver.gpu_instances(&gpu).unwrap(), [], "{function}");
    }
    let instance = driver.create_gpu_instance(&gpu, 14, at(2, 2)).unwrap();
    for function in [
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceGetInfo_v2",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetGpuInstanceId",
    ] {
        node.fail(function, "0", 999);
        let text = refusal(driver.create_compute_instance(&gpu, instance).unwrap_err());
        assert_eq!(text, format!("{function}: unknown driver error (NVML 999)"));
        node.heal();
        let made = driver.gpu_instances(&gpu).unwrap();
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].compute_instances, [], "{function}");
    }
    driver.create_compute_instance(&gpu, instance).unwrap();
}

#[test]
fn compute_instance_of_nothing_or_of_no_known_size() {
    let node = Node::stage("1xh100:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let create = |id| driver.create_compute_instance(&gpu, GpuInstanceId(id)).unwrap_err();
    assert!(matches!(create(3), GpuError::NoGpuInstance { instance: GpuInstanceId(3), .. }));
    let instance = driver.create_gpu_instance(&gpu, 14, at(0, 2)).unwrap();
    node.fail("nvmlGpuInstanceGetComputeInstanceProfileInfo", "0", 3);
    assert!(matches!(create(3), GpuError::NoComputeProfile { instance: GpuInstanceId(3), .. }));
    node.heal();
    driver.create_compute_instance(&gpu, instance).unwrap();
    let error = create(3);
    assert!(
        matches!(&error, GpuError::Call { source, .. } if source.code == Code::INSUFFICIENT_RESOURCES),
        "one has it all: {error:?}"
    );
}

/// Destruction is refused while processes run, while compute instances are left, and, as
/// DCGM's leaked handles do it, five times for no visible reason.
#[test]
fn an_instance_in_use_is_not_destroyed() {
    let node = Node::stage("1xh100:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let instance = driver.create_gpu_instance(&gpu, 19, at(6, 1)).unwrap();
    let compute = driver.create_compute_instance(&gpu, instance).unwrap();
    let in_use = |done: Result<(), GpuError>, of: Option<ComputeInstanceId>| match done {
        Err(GpuError::InstanceInUse { uuid, instance: on, compute }) => {
            assert_eq!((uuid, on, compute), (gpu.clone(), instance, of));
        }
        other => panic!("{other:?}"),
    };
    let destroy_compute = || driver.destroy_compute_instance(&gpu, instance, compute.id);
    in_use(driver.destroy_gpu_instance(&gpu, instance), None);
    node.gpu("0", |gpu| {
        gpu.processes.push(Process {
            pid: 4711,
            memory_mib: 100,
            gpu_instance: Some(13),
            compute_instance: Some(0),
            ..Process::default()
        });
    });
    in_use(destroy_compute(), Some(compute.id));
    node.gpu("0", |gpu| (gpu.processes, gpu.instances_held) = (vec![], true));
    in_use(destroy_compute(), Some(compute.id));
    node.control(|control| {
        control.gpus.clear();
        for function in ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"] {
            control.faults.push(Fault {
                function: function.to_owned(),
                error: Some(19),
                times: Some(5),
                ..Fault::default()
            });
        }
    });
    for _ in 0..5 {
        in_use(destroy_compute(), Some(compute.id));
    }
    destroy_compute().unwrap();
    for _ in 0..5 {
        in_use(driver.destroy_gpu_instance(&gpu, instance), None);
    }
    driver.destroy_gpu_instance(&gpu, instance).unwrap();
    assert_eq!(driver.gpu_instances(&gpu).unwrap(), []);
}

/// Only "there is none" is success; what can't be asked is an error.
#[test]
fn destruction_that_fails_is_not_taken_for_done() {
    let node = Node::stage("1xh100:mig=on");
    let driver = node.driver();
    let gpu = first(&driver.probe().unwrap());
    let instance = driver.create_gpu_instance(&gpu, 19, at(0, 1)).unwrap();
    let compute = driver.create_compute_instance(&gpu, instance).unwrap();
    for function in [
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetComputeInstanceById",
        "nvmlComputeInstanceDestroy",
    ] {
        for code in [4, 999] {
            node.fail(function, "0", code);
            let done = driver.destroy_compute_instance(&gpu, instance, compute.id);
            assert!(
                matches!(&done, Err(GpuError::Call { source, .. })
                    if source.call == function && source.code == Code(code)),
                "{done:?}"
            );
        }
    }
    for code in [2, 3] {
        node.fail("nvmlDeviceGetGpuInstanceById", "0", code);
        let done = driver.destroy_gpu_instance(&gpu, instance);
        assert!(matches!(done, Err(GpuError::Call { .. })), "MIG is on, so it is no answer");
    }
    node.heal();
    assert_eq!(driver.gpu_instances(&gpu).unwrap()[0].compute_instances, [compute]);
    let gone = GpuUuid::new("GPU-00000000-0000-0000-0000-000000000000").unwrap();
    assert!(matches!(driver.destroy_gpu_instance(&gone, instance), Err(GpuError::Gone { .. })));
}

/// Instances outlive sessions, and none outlives a reboot: what then is destroyed by a record
/// of before is found gone.
#[test]
fn a_reboot_leaves_none() {
    for (spec, mode) in
        [("1xh100:mig=on", MigMode::Disabled), ("1xa100-80:mig=on", MigMode::Enabled)]
    {
        let node = Node::stage(spec);
        let driver = node.driver();
        let gpu = first(&driver.probe().unwrap());
        let instance = driver.create_gpu_instance(&gpu, 9, at(0, 4)).unwrap();
        let compute = driver.create_compute_instance(&gpu, instance).unwrap();
        driver.close();
        assert_eq!(driver.gpu_instances(&gpu).unwrap()[0].compute_instances, *from_ref(&compute));
        driver.close();
        node.state().reboot().unwrap();
        assert_eq!(driver.gpu_instances(&gpu).unwrap(), [], "{spec}");
        assert_eq!(driver.mig_mode(&gpu).unwrap(), Some((mode, mode)), "{spec}");
        driver.destroy_compute_instance(&gpu, instance, compute.id).unwrap();
        driver.destroy_gpu_instance(&gpu, instance).unwrap();
    }
}
