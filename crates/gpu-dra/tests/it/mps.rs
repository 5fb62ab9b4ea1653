//! MPS for claims: a daemon of the MPS host for whole GPUs and MIG devices, reached by the
//! claim's containers alone, and nothing left of it afterwards.

use gpu_dra_sharing::DaemonState;
use serde_json::{Value, json};

use crate::world::{PROGRAM, World, prepare, unprepare};

/// An opaque config that asks for MPS.
pub(crate) fn mps(kind: &str, config: Value) -> Value {
    json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind,
        "sharing": {"strategy": "MPS", "mpsConfig": config},
    })
}

/// Environment and mounts of the claim's only device.
fn of_device(world: &World, uid: &str) -> (Vec<String>, Vec<String>) {
    let files = world.outside().files;
    let (_, spec) = files
        .iter()
        .find(|(path, _)| {
            path.starts_with(&world.rig.cdi_root) && path.to_string_lossy().contains(uid)
        })
        .unwrap();
    let spec: Value = serde_json::from_str(spec).unwrap();
    let edits = &spec["devices"][0]["containerEdits"];
    let env = edits["env"].as_array().into_iter().flatten();
    let mounts = edits["mounts"].as_array().into_iter().flatten();
    (
        env.map(|e| e.as_str().unwrap().to_owned()).collect(),
        mounts.map(|m| m["containerPath"].as_str().unwrap().to_owned()).collect(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_gpu_and_a_partition_get_daemons_of_their_own() {
    let world = World::new("2xh100").await;
    let host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let limits =
        json!({"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"});
    let whole = world.claim("whole", &["gpu-0"], &[mps("GpuConfig", limits)]).await;
    let part =
        world.claim("part", &["gpu-1-mig-1g10gb-19-6"], &[mps("MigDeviceConfig", json!({}))]).await;
    prepare(&plugin, &whole).await.unwrap();
    assert_eq!(world.outside().compute_modes, [3, 0], "exclusive process");
    prepare(&plugin, &part).await.unwrap();
    // A MIG device has no compute mode.
    assert_eq!(world.outside().compute_modes, [3, 0]);
    let daemons = host.client.list().unwrap();
    assert!(daemons.iter().all(|d| matches!(d.state, DaemonState::Ready { .. })), "{daemons:?}");
    assert_eq!(daemons.len(), 2);

    let (env, mounts) = of_device(&world, whole.uid.as_str());
    assert!(env.contains(&"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps".to_owned()), "{env:?}");
    for mount in ["/tmp/nvidia-mps", "/dev/shm"] {
        assert!(mounts.contains(&mount.to_owned()), "{mounts:?}");
    }
    // Repeated, it is the same daemon.
    prepare(&plugin, &whole).await.unwrap();
    assert_eq!(host.client.list().unwrap(), daemons);

    unprepare(&plugin, &whole).await.unwrap();
    unprepare(&plugin, &part).await.unwrap();
    assert_eq!(world.outside(), empty);
    assert!(host.client.list().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_node_agent_touches_no_daemon() {
    let world = World::new("1xh100").await;
    let host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (mut agent, plugin) = world.agent().await;
    let claim = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    prepare(&plugin, &claim).await.unwrap();
    let before = host.client.list().unwrap();
    agent.stop().unwrap();
    let (_agent, plugin) = world.agent().await;
    prepare(&plugin, &claim).await.unwrap();
    assert_eq!(host.client.list().unwrap(), before, "the same process");
    unprepare(&plugin, &claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n22_a_daemon_that_does_not_start_is_an_error_with_its_words_and_leaves_nothing() {
    let world = World::new("1xh100").await;
    let _host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let faults = world.rig.staged.state_dir.path().join("mps-faults");
    std::fs::write(&faults, "start-fails chroot failed: no such file\n").unwrap();
    let claim = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let error = prepare(&plugin, &claim).await.unwrap_err();
    assert!(error.contains("chroot failed"), "{error}");
    assert_eq!(world.outside(), empty);
    std::fs::remove_file(&faults).unwrap();
    prepare(&plugin, &claim).await.unwrap();
    unprepare(&plugin, &claim).await.unwrap();
    assert_eq!(world.outside(), empty);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_mps_host_the_claim_says_so_and_others_are_unaffected() {
    let world = World::new("2xh100").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let shared = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let error = prepare(&plugin, &shared).await.unwrap_err();
    assert!(error.contains("the MPS host isn't running"), "{error}");
    assert_eq!(world.outside(), empty, "nobody has to be asked to undo what nobody did");
    unprepare(&plugin, &shared).await.unwrap();
    let plain = world.claim("plain", &["gpu-1"], &[]).await;
    prepare(&plugin, &plain).await.unwrap();
    unprepare(&plugin, &plain).await.unwrap();
    assert_eq!(world.outside(), empty);

    // Once it has a daemon, the claim is held until the host has ended it.
    let host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    prepare(&plugin, &shared).await.unwrap();
    host.client.list().unwrap();
    let mut process = host;
    process.process.stop().unwrap();
    let error = unprepare(&plugin, &shared).await.unwrap_err();
    assert!(error.contains("the MPS host isn't running"), "{error}");
    let _host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    unprepare(&plugin, &shared).await.unwrap();
    assert_eq!(world.outside(), empty);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compute_mode_that_was_set_before_is_put_back() {
    let world = World::new("1xh100").await;
    let _host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    world
        .rig
        .staged
        .state_dir
        .update(|_, state| {
            state.gpus[0].compute_mode = 2;
            Ok::<_, gpu_dra_sim_data::StateError>(())
        })
        .unwrap();
    let claim = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    prepare(&plugin, &claim).await.unwrap();
    assert_eq!(world.outside().compute_modes, [3]);
    unprepare(&plugin, &claim).await.unwrap();
    assert_eq!(world.outside().compute_modes, [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_67_share_of_memory() {
    let world = World::new("2xl4").await;
    let host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (mut agent, plugin) = world
        .agent_with(|command| {
            command.args(["--shares", "mps"]);
        })
        .await;
    world.until(&mut agent, || world.is_complete()).await;
    let slices = world.published().await;
    let l4 = slices[0].spec.devices.as_ref().unwrap()[0].clone();
    assert_eq!(l4.allow_multiple_allocations, Some(true));
    let memory = &l4.capacity.as_ref().unwrap()["memory"];
    let policy = memory.request_policy.as_ref().unwrap();
    assert_eq!(policy.default.as_ref(), Some(&memory.value), "who asks for nothing is alone");

    let empty = world.outside();
    let share = |n: u32, memory: &str, percent: &str| {
        json!({
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": gpu_dra::rig::NODE,
            "device": "gpu-0", "shareID": format!("{n:08x}-0000-4000-8000-000000000000"),
            "consumedCapacity": {"memory": memory, "computePercent": percent},
        })
    };
    let mut claims = Vec::new();
    for n in 0..5 {
        let allocation = json!({"devices": {"results": [share(n, "4Gi", "20")]}});
        let claim = world.claim_with(&format!("four-gi-{n}"), allocation).await;
        let answer = prepare(&plugin, &claim).await.unwrap();
        // The share is in the name, so that two shares never collide.
        assert!(answer[0].cdi_ids[0].as_str().contains(&format!("{n:08x}")), "{answer:?}");
        let (env, _) = of_device(&world, claim.uid.as_str());
        for line in
            ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20"]
        {
            assert!(env.contains(&line.to_owned()), "{env:?}");
        }
        claims.push(claim);
    }
    assert_eq!(host.client.list().unwrap().len(), 1, "one daemon serves all shares of a GPU");
    assert_eq!(world.outside().compute_modes, [3, 0]);
    // A scheduler that counted wrongly: the node is the last to say no.
    let allocation = json!({"devices": {"results": [share(9, "4Gi", "0")]}});
    let sixth = world.claim_with("four-gi-5", allocation).await;
    let error = prepare(&plugin, &sixth).await.unwrap_err();
    assert!(error.contains("beyond itself"), "{error}");
    for claim in &claims {
        assert_eq!(host.client.list().unwrap().len(), 1);
        unprepare(&plugin, claim).await.unwrap();
    }
    assert_eq!(world.outside(), empty);
}
