//! The node agent is killed with SIGKILL at every boundary between two effects, in prepare and
//! in unprepare; started again; asked again, as a kubelet would. The journal, the CDI folder
//! and the simulated GPUs must then be what they are without any crash.

use gpu_dra_model::ClaimRef;
use serde_json::json;

use crate::mps::mps;
use crate::world::{PROGRAM, World, make_foreign, prepare, time_slicing, unprepare};

/// A whole GPU with a time slice, and a MIG device with MPS that is made on another.
async fn train(world: &World) -> ClaimRef {
    let result = |request: &str, device: &str| json!({"request": request, "driver": "gpu.nvidia.com", "pool": gpu_dra::rig::NODE, "device": device});
    let allocation = json!({"devices": {
        "results": [result("gpu", "gpu-0"), result("mig", "gpu-1-mig-1g10gb-19-6")],
        "config": [{
            "source": "FromClaim", "requests": ["gpu"],
            "opaque": {"driver": "gpu.nvidia.com", "parameters": time_slicing("Long")},
        }, {
            "source": "FromClaim", "requests": ["mig"],
            "opaque": {"driver": "gpu.nvidia.com", "parameters": mps("MigDeviceConfig", json!({}))},
        }],
    }});
    world.claim_with("train", allocation).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_boundary_it_converges() {
    let world = World::new("2xh100").await;
    let claim = train(&world).await;
    let (prepared, unprepared) = converges(&world, &claim).await;
    // Two journal writes of five boundaries each, a CDI spec of three, MIG mode on, a GPU
    // instance, a compute instance, a time slice, an MPS daemon.
    assert!(prepared >= 22, "{prepared} boundaries in prepare");
    assert!(unprepared >= 17, "{unprepared} boundaries in unprepare");
    println!("killed at {prepared} boundaries of prepare, {unprepared} of unprepare");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_boundary_it_leaves_alone_what_others_have_on_the_gpu() {
    let world = World::new("2xh100").await;
    let neighbour = world.claim("neighbour", &["gpu-1-mig-3g40gb-9-0"], &[]).await;
    let (mut agent, plugin) = world.agent().await;
    prepare(&plugin, &neighbour).await.unwrap();
    agent.stop().unwrap();
    make_foreign(&world, 1, 14, (4, 2));
    let claim = train(&world).await;
    converges(&world, &claim).await;
    assert_eq!(world.outside().mig[1], (true, vec![(9, 0, 1), (14, 4, 1)]));
}

async fn converges(world: &World, claim: &ClaimRef) -> (u32, u32) {
    let _mps_host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    // Undisturbed, also for what a first start does once (hook, names).
    let (mut agent, plugin) = world.agent().await;
    let empty = world.outside();
    prepare(&plugin, claim).await.unwrap();
    let prepared = world.outside();
    assert_eq!(prepared.time_slices, [3, 0]);
    assert!(prepared.mig[1].0 && prepared.mig[1].1.contains(&(19, 6, 1)), "{:?}", prepared.mig);
    assert_eq!(prepared.daemons.len(), 1);
    assert_eq!(prepared.files.len(), empty.files.len() + 2, "journal and CDI spec");
    unprepare(&plugin, claim).await.unwrap();
    assert_eq!(world.outside(), empty);
    agent.stop().unwrap();

    let die_at = |n: u64| {
        move |command: &mut std::process::Command| {
            command.env("GPU_DRA_DIE_AT", n.to_string());
        }
    };
    let (mut prepare_points, mut unprepare_points) = (0, 0);
    for n in 1..100 {
        let (mut agent, plugin) = world.agent_with(die_at(n)).await;
        let struck = prepare(&plugin, claim).await.is_err();
        drop(plugin);
        if struck {
            prepare_points += 1;
            agent.wait_for_end();
        } else {
            agent.stop().unwrap();
        }

        let (mut agent, plugin) = world.agent().await;
        prepare(&plugin, claim).await.unwrap();
        assert_eq!(world.outside(), prepared, "killed at boundary {n} of prepare");
        agent.stop().unwrap();

        let (mut agent, plugin) = world.agent_with(die_at(n)).await;
        let struck_again = unprepare(&plugin, claim).await.is_err();
        drop(plugin);
        if struck_again {
            unprepare_points += 1;
            agent.wait_for_end();
        } else {
            agent.stop().unwrap();
        }

        let (mut agent, plugin) = world.agent().await;
        unprepare(&plugin, claim).await.unwrap();
        assert_eq!(world.outside(), empty, "killed at boundary {n} of unprepare");
        agent.stop().unwrap();
        if !struck && !struck_again {
            break;
        }
    }
    (prepare_points, unprepare_points)
}
