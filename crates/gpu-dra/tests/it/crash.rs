//! The node agent is killed with SIGKILL at every boundary between two effects, in prepare and
//! in unprepare; started again; asked again, as a kubelet would. The journal, the CDI folder
//! and the simulated GPUs must then be what they are without any crash.

use crate::world::{World, prepare, time_slicing, unprepare};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_boundary_it_converges() {
    let world = World::new("2xh100").await;
    let claim = world.claim("train", &["gpu-0", "gpu-1"], &[time_slicing("Long")]).await;

    // Undisturbed, also for what a first start does once (hook, names).
    let (mut agent, plugin) = world.agent().await;
    let empty = world.outside();
    prepare(&plugin, &claim).await.unwrap();
    let prepared = world.outside();
    assert_eq!(prepared.time_slices, [3, 3]);
    assert_eq!(prepared.files.len(), 2, "journal and CDI spec");
    unprepare(&plugin, &claim).await.unwrap();
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
        let struck = prepare(&plugin, &claim).await.is_err();
        drop(plugin);
        if struck {
            prepare_points += 1;
            agent.wait_for_end();
        } else {
            agent.stop().unwrap();
        }

        let (mut agent, plugin) = world.agent().await;
        prepare(&plugin, &claim).await.unwrap();
        assert_eq!(world.outside(), prepared, "killed at boundary {n} of prepare");
        agent.stop().unwrap();

        let (mut agent, plugin) = world.agent_with(die_at(n)).await;
        let struck_again = unprepare(&plugin, &claim).await.is_err();
        drop(plugin);
        if struck_again {
            unprepare_points += 1;
            agent.wait_for_end();
        } else {
            agent.stop().unwrap();
        }

        let (mut agent, plugin) = world.agent().await;
        unprepare(&plugin, &claim).await.unwrap();
        assert_eq!(world.outside(), empty, "killed at boundary {n} of unprepare");
        agent.stop().unwrap();
        if !struck && !struck_again {
            break;
        }
    }
    // Two journal writes and a CDI spec of five boundaries each, two time slices of two.
    assert!(prepare_points >= 19, "{prepare_points} boundaries in prepare");
    assert!(unprepare_points >= 10, "{unprepare_points} boundaries in unprepare");
    println!("killed at {prepare_points} boundaries of prepare, {unprepare_points} of unprepare");
}
