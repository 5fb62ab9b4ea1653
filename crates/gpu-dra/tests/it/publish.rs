//! What the API server sees of a node agent: slices, and how often it is asked.

use std::time::Duration;

use kube::api::DeleteParams;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_quiet_minutes_cost_no_write_and_no_enumeration() {
    let world = World::new("8xh100").await;
    let call_log = |command: &mut std::process::Command| {
        // A look each 10 ms instead of each 10 s: 60 looks are ten minutes.
        command.args(["--rescan-ms", "10"]).env("GPU_DRA_SIM_CALL_LOG", "1");
    };
    let (mut agent, _plugin) = world.agent_with(call_log).await;
    world.until(&mut agent, || world.is_complete()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;

    let before = world.rig.api.requests().snapshot();
    world.rig.staged.state_dir.clear_calls().unwrap();
    let looks = || {
        let calls = world.rig.staged.state_dir.calls().unwrap();
        calls.get("nvmlDeviceGetCount_v2").copied().unwrap_or_default()
    };
    world.until(&mut agent, || async { looks() >= 120 }).await;
    let calls = world.rig.staged.state_dir.calls().unwrap();
    assert_eq!(calls.get("nvmlDeviceGetName"), None, "an enumeration: {calls:?}");
    assert_eq!(calls.get("nvmlDeviceGetMemoryInfo_v2"), None, "an enumeration: {calls:?}");
    let after = world.rig.api.requests().snapshot();
    assert_eq!(before, after, "requests in ten quiet minutes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_adopts_the_slices_without_a_write() {
    let world = World::new("8xh100").await;
    let (mut agent, _plugin) = world.agent().await;
    world.until(&mut agent, || world.is_complete()).await;
    agent.stop().unwrap();
    let published = world.published().await;
    let writes = world.rig.api.requests().writes();
    let (mut agent, _plugin) = world.agent().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.rig.api.requests().writes(), writes);
    assert_eq!(world.published().await, published);

    // Deleted by hand, they are back at once.
    world.slices.delete_collection(&DeleteParams::default(), &Default::default()).await.unwrap();
    world.until(&mut agent, || world.is_complete()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_goes_and_comes_keeps_its_place() {
    let world = World::new("4xh100").await;
    let (mut agent, _plugin) = world
        .agent_with(|command| {
            command.args(["--rescan-ms", "20"]);
        })
        .await;
    let names = || async {
        let slices = world.published().await;
        let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        let mut names: Vec<_> = devices.map(|device| device.name).collect();
        names.retain(|name| name.matches('-').count() == 1);
        names.sort();
        names
    };
    let all = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];
    world.until(&mut agent, || async { names().await == all }).await;
    let control = world.rig.staged.state_dir.path().join("control.json");
    std::fs::write(&control, r#"{"gpus": {"1": {"lost": "dropped"}}}"#).unwrap();
    let tainted = || async {
        let slices = world.published().await;
        let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        let lost = devices.filter(|device| {
            let mut taints = device.taints.iter().flatten();
            taints.any(|taint| taint.key == "gpu.nvidia.com/gpu-lost")
        });
        lost.map(|device| device.name)
            .filter(|name| name.matches('-').count() == 1)
            .collect::<Vec<_>>()
    };
    world.until(&mut agent, || async { tainted().await == vec!["gpu-1".to_owned()] }).await;
    assert_eq!(names().await, all);
    std::fs::write(&control, "{}").unwrap();
    world.until(&mut agent, || async { tainted().await == Vec::<String>::new() }).await;
    assert_eq!(names().await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_arrives_late_is_picked_up() {
    let world = World::new("2xl4").await;
    let library = &world.rig.staged.library;
    let hidden = library.with_extension("hidden");
    std::fs::rename(library, &hidden).unwrap();
    std::fs::create_dir(library).unwrap();
    let (mut agent, _plugin) = world
        .agent_with(|command| {
            command.args(["--retry-ms", "50"]);
        })
        .await;
    // A node without a driver says so by a pool that is complete and empty.
    world.until(&mut agent, || async { world.published().await.len() == 1 }).await;
    assert!(world.published().await[0].spec.devices.as_ref().is_none_or(Vec::is_empty));
    std::fs::remove_dir(library).unwrap();
    std::fs::rename(&hidden, library).unwrap();
    world
        .until(&mut agent, || async {
            let slices = world.published().await;
            slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).count() == 2
        })
        .await;
}
