//! MIG devices made on demand by the running agent: at the allocated place, with their own
//! device nodes, together with what others do on the same GPU.

use gpu_dra_model::ClaimRef;
use serde_json::{Value, json};

use crate::world::{World, make_foreign, prepare, unprepare};

/// A partition of an H100 by name: 1g at 6, 2g at 4, 3g at 0, the whole GPU.
const SMALL: &str = "gpu-0-mig-1g10gb-19-6";
const MIDDLE: &str = "gpu-0-mig-2g20gb-14-4";
const LARGE: &str = "gpu-0-mig-3g40gb-9-0";

async fn claim(world: &World, name: &str, devices: &[&str]) -> ClaimRef {
    world.claim(name, devices, &[]).await
}

/// The containers' device nodes that the claim's CDI spec names, without those of every GPU.
fn nodes(world: &World, claim: &ClaimRef) -> Vec<String> {
    let files = world.outside().files;
    let spec = files.iter().find(|(path, _)| {
        path.starts_with(&world.rig.cdi_root) && path.to_string_lossy().contains(claim.uid.as_str())
    });
    let spec: Value = serde_json::from_str(spec.unwrap().1).unwrap();
    let edits = spec["devices"].as_array().unwrap().iter().map(|device| &device["containerEdits"]);
    // Without root, plain files stand for device nodes and are mounted in their place.
    let listed = |edits: &Value, field: &str, key: &str| -> Vec<String> {
        let entries = edits[field].as_array().into_iter().flatten();
        entries.map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
    };
    let mut nodes: Vec<_> = edits
        .flat_map(|edits| {
            let mut nodes = listed(edits, "deviceNodes", "path");
            nodes.extend(listed(edits, "mounts", "containerPath"));
            nodes
        })
        .filter(|path| path.starts_with("/dev/"))
        .collect();
    nodes.sort();
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_come_and_go_where_they_were_allocated() {
    let world = World::new("1xh100").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let small = claim(&world, "small", &[SMALL]).await;
    let both = claim(&world, "both", &[LARGE, MIDDLE]).await;

    prepare(&plugin, &small).await.unwrap();
    assert_eq!(world.outside().mig, [(true, vec![(19, 6, 1)])]);
    let answers = prepare(&plugin, &both).await.unwrap();
    assert_eq!(answers.len(), 2);
    assert_ne!(answers[0].cdi_ids, answers[1].cdi_ids);
    assert_eq!(world.outside().mig[0].1.len(), 3);
    // The GPU's own node, and one of each instance: numbers by the driver's formula.
    assert_eq!(
        nodes(&world, &small),
        ["/dev/nvidia-caps/nvidia-cap120", "/dev/nvidia-caps/nvidia-cap121", "/dev/nvidia0"]
    );
    assert_eq!(nodes(&world, &both).iter().filter(|node| node.contains("caps")).count(), 4);

    // A repeated call changes nothing.
    let before = world.outside();
    assert_eq!(prepare(&plugin, &both).await.unwrap(), answers);
    assert_eq!(world.outside(), before);

    let whole = claim(&world, "whole", &["gpu-0"]).await;
    let refused = prepare(&plugin, &whole).await.unwrap_err();
    assert!(refused.contains("still in use by claim default/"), "{refused}");
    unprepare(&plugin, &small).await.unwrap();
    assert!(world.outside().mig[0].0, "the other partitions need MIG mode");
    unprepare(&plugin, &both).await.unwrap();
    assert_eq!(world.outside(), empty);
    prepare(&plugin, &whole).await.unwrap();
    assert_eq!(world.outside().mig, [(false, vec![])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_driver_refuses_leaves_nothing_and_says_why() {
    let world = World::new("1xh100").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let control = world.rig.staged.state_dir.path().join("control.json");
    for (fault, says) in [
        (json!({"function": "nvmlDeviceSetMigMode", "error": 19, "times": 1}), "another client"),
        (
            json!({"function": "nvmlDeviceCreateGpuInstanceWithPlacement", "error": 23}),
            "1g.10gb|19",
        ),
        (
            json!({"function": "nvmlGpuInstanceCreateComputeInstance", "error": 23}),
            "nvmlGpuInstanceCreateComputeInstance",
        ),
    ] {
        let function = fault["function"].as_str().unwrap().to_owned();
        std::fs::write(&control, json!({"faults": [fault]}).to_string()).unwrap();
        let name = format!("claim-{}", function.to_lowercase());
        let late = claim(&world, &name, &[SMALL]).await;
        let error = prepare(&plugin, &late).await.unwrap_err();
        assert!(says.split('|').any(|word| error.contains(word)), "{function}: {error}");
        assert!(error.contains("MIG device not made"), "{function}: {error}");
        assert_eq!(world.outside(), empty, "{function} left something");
        std::fs::write(&control, "{}").unwrap();
        prepare(&plugin, &late).await.unwrap();
        unprepare(&plugin, &late).await.unwrap();
        assert_eq!(world.outside(), empty);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n08_a_gpu_instance_whose_second_half_failed_is_removed_later() {
    let world = World::new("1xh100").await;
    let (mut agent, plugin) = world.agent().await;
    let empty = world.outside();
    let control = world.rig.staged.state_dir.path().join("control.json");
    let faults = json!({"faults": [
        {"function": "nvmlGpuInstanceCreateComputeInstance", "error": 999},
        {"function": "nvmlGpuInstanceDestroy", "error": 19},
    ]});
    std::fs::write(&control, faults.to_string()).unwrap();
    let stuck = claim(&world, "stuck", &[SMALL]).await;
    let error = prepare(&plugin, &stuck).await.unwrap_err();
    assert!(error.contains("half made"), "{error}");
    assert_eq!(world.outside().mig, [(true, vec![(19, 6, 0)])], "journaled, so not forgotten");
    assert_eq!(world.outside().files.len(), 1);
    std::fs::write(&control, "{}").unwrap();

    // The pod is gone; or the agent starts again; either removes it.
    agent.stop().unwrap();
    let (_agent, plugin) = world.agent().await;
    assert_eq!(world.outside(), empty);
    unprepare(&plugin, &stuck).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_partition_that_a_process_holds_is_kept_until_it_ends() {
    let world = World::new("1xh100").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let held = claim(&world, "held", &[SMALL]).await;
    prepare(&plugin, &held).await.unwrap();
    let control = world.rig.staged.state_dir.path().join("control.json");
    let fault = json!({"gpus": {"0": {"instancesHeld": true}}});
    std::fs::write(&control, fault.to_string()).unwrap();
    let error = unprepare(&plugin, &held).await.unwrap_err();
    assert!(error.contains("MIG device not removed"), "{error}");
    let next = claim(&world, "next", &[SMALL]).await;
    let refused = prepare(&plugin, &next).await.unwrap_err();
    assert!(refused.contains("still in use by claim default/held"), "{refused}");
    std::fs::write(&control, "{}").unwrap();
    unprepare(&plugin, &held).await.unwrap();
    assert_eq!(world.outside(), empty);
    prepare(&plugin, &next).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n02_after_a_reboot_partitions_are_made_again() {
    let world = World::new("2xh100").await;
    let (mut agent, plugin) = world.agent().await;
    let pair = claim(&world, "pair", &[SMALL, "gpu-1-mig-7g80gb-0-0"]).await;
    let before = prepare(&plugin, &pair).await.unwrap();
    let running = world.outside().mig;
    agent.stop().unwrap();
    world.rig.staged.state_dir.reboot().unwrap();
    assert_eq!(world.outside().mig, [(false, vec![]), (false, vec![])]);
    let (_agent, plugin) = world.agent().await;
    assert_eq!(prepare(&plugin, &pair).await.unwrap(), before);
    assert_eq!(world.outside().mig, running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n15_instances_made_by_hand_are_published_used_and_left_alone() {
    let world = World::new("2xa100-80:mig=on").await;
    make_foreign(&world, 0, 9, (4, 4));
    let (mut agent, plugin) = world
        .agent_with(|command| {
            command.args(["--rescan-ms", "20"]);
        })
        .await;
    let fixed = claim(&world, "fixed", &["gpu-0-mig-3g40gb-9-4"]).await;
    prepare(&plugin, &fixed).await.unwrap();
    assert_eq!(nodes(&world, &fixed).len(), 3);
    unprepare(&plugin, &fixed).await.unwrap();
    assert_eq!(world.outside().mig[0], (true, vec![(9, 4, 1)]));
    // A change of geometry by hand is noticed.
    make_foreign(&world, 0, 19, (0, 1));
    let offered = |world: &World| {
        let slices = world.slices.clone();
        async move {
            let slices = slices.list(&Default::default()).await.unwrap();
            let devices =
                slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
            devices
                .map(|device| device.name)
                .filter(|name| name.starts_with("gpu-0"))
                .collect::<Vec<_>>()
        }
    };
    world.until(&mut agent, || async { offered(&world).await.len() == 2 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_in_a_foreign_instances_place_is_refused_before_anything_is_done() {
    let world = World::new("1xh100").await;
    let (_agent, plugin) = world
        .agent_with(|command| {
            // No look between the two: the claim was allocated before anybody knew.
            command.args(["--rescan-ms", "3600000"]);
        })
        .await;
    make_foreign(&world, 0, 14, (4, 2));
    let before = world.outside();
    let late = claim(&world, "late", &[MIDDLE]).await;
    let error = prepare(&plugin, &late).await.unwrap_err();
    assert!(
        error.contains("which no claim made") && error.contains("nvidia-smi mig -dgi"),
        "{error}"
    );
    let whole = claim(&world, "whole", &["gpu-0"]).await;
    let error = prepare(&plugin, &whole).await.unwrap_err();
    assert!(error.contains("which no claim made"), "{error}");
    assert_eq!(world.outside(), before);
    // Beside it there is room.
    let beside = claim(&world, "beside", &[SMALL]).await;
    prepare(&plugin, &beside).await.unwrap();
    unprepare(&plugin, &beside).await.unwrap();
    assert_eq!(world.outside(), before);
}

/// Case 40, and N12: four profiles of one parent are all made, or none stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_40_mig_four_slices_one_parent() {
    let world = World::new("1xa100-40:mig=on").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let four = [
        "gpu-0-mig-1g5gb-19-0",
        "gpu-0-mig-1g5gb-19-1",
        "gpu-0-mig-2g10gb-14-2",
        "gpu-0-mig-3g20gb-9-4",
    ];
    let control = world.rig.staged.state_dir.path().join("control.json");
    // The second request fails: nothing of the first stays.
    let fault = json!({"faults": [
        {"function": "nvmlDeviceCreateGpuInstanceWithPlacement", "delayMs": 0, "times": 1},
        {"function": "nvmlDeviceCreateGpuInstanceWithPlacement", "error": 999},
    ]});
    std::fs::write(&control, fault.to_string()).unwrap();
    let mix = claim(&world, "mix", &four).await;
    let error = prepare(&plugin, &mix).await.unwrap_err();
    assert!(error.contains("MIG device not made"), "{error}");
    assert_eq!(world.outside(), empty);
    std::fs::write(&control, "{}").unwrap();

    let answers = prepare(&plugin, &mix).await.unwrap();
    assert_eq!(world.outside().mig[0].1.len(), 4);
    // Each device has a CDI name of its own, and with it two capability nodes of its own.
    let ids: std::collections::BTreeSet<_> = answers.iter().map(|a| a.cdi_ids.clone()).collect();
    assert_eq!(ids.len(), 4);
    let capabilities: Vec<_> =
        nodes(&world, &mix).into_iter().filter(|node| node.contains("caps")).collect();
    assert_eq!(capabilities.len(), 8);
    unprepare(&plugin, &mix).await.unwrap();
    // On Ampere the mode needs a reset, so it stays as somebody set it.
    assert_eq!(world.outside(), empty);
}

/// Case 34: two MIG devices for one container, by an extended resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_34_extended_resource_mig() {
    let world = World::new("1xa100-40:mig=on").await;
    let (_agent, plugin) = world.agent().await;
    let legacy = claim(&world, "legacy", &["gpu-0-mig-1g5gb-19-6", "gpu-0-mig-1g5gb-19-4"]).await;
    assert_eq!(prepare(&plugin, &legacy).await.unwrap().len(), 2);
    let capabilities =
        nodes(&world, &legacy).into_iter().filter(|node| node.contains("caps")).count();
    assert_eq!(capabilities, 4);
}

/// Case 42: while the whole GPU is held, its MIG mode stays off and its parts are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_42_mig_versus_whole_gpu() {
    let world = World::new("1xh100").await;
    let (_agent, plugin) = world.agent().await;
    let whole = claim(&world, "first-whole", &["gpu-0"]).await;
    prepare(&plugin, &whole).await.unwrap();
    let held = world.outside();
    let slice = claim(&world, "second-slice", &[SMALL]).await;
    let refused = prepare(&plugin, &slice).await.unwrap_err();
    assert!(refused.contains("still in use by claim default/first-whole"), "{refused}");
    assert_eq!(world.outside(), held);
    assert_eq!(held.mig, [(false, vec![])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n09_a_start_changes_no_mig_mode_and_destroys_nothing() {
    let world = World::new("2xa100-80:mig=on+2xh100:mig=on").await;
    make_foreign(&world, 1, 9, (4, 4));
    make_foreign(&world, 3, 19, (2, 1));
    let before = world.outside().mig;
    for _ in 0..2 {
        let (mut agent, _plugin) = world.agent().await;
        world.until(&mut agent, || world.is_complete()).await;
        agent.stop().unwrap();
        assert_eq!(world.outside().mig, before);
    }
    assert_eq!(before[1], (true, vec![(9, 4, 1)]));
    assert_eq!(before[2], (true, vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_monitor_sees_a_partitioned_gpu_and_changes_nothing() {
    let world = World::new("1xh100").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let owner = claim(&world, "owner", &[SMALL]).await;
    prepare(&plugin, &owner).await.unwrap();
    let held = world.outside();
    let result = json!({
        "request": "gpu", "driver": "gpu.nvidia.com", "pool": gpu_dra::rig::NODE,
        "device": "gpu-0-monitor", "adminAccess": true,
    });
    let watcher = world.claim_with("watcher", json!({"devices": {"results": [result]}})).await;
    prepare(&plugin, &watcher).await.unwrap();
    assert_eq!(world.outside().mig, held.mig);
    assert!(nodes(&world, &watcher).contains(&"/dev/nvidia0".to_owned()));
    unprepare(&plugin, &owner).await.unwrap();
    unprepare(&plugin, &watcher).await.unwrap();
    assert_eq!(world.outside(), empty);
    let thief = claim(&world, "thief", &["gpu-0-monitor"]).await;
    let refused = prepare(&plugin, &thief).await.unwrap_err();
    assert!(refused.contains("is for monitoring"), "{refused}");
}
