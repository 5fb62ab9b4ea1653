//! After `gpu-dra cleanup` the node is as it was before the first start of the driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use gpu_dra_model::ClaimRef;
use serde_json::json;

use crate::mps::mps;
use crate::takeover::program;
use crate::world::{World, prepare, time_slicing};

/// Files and folders below the places where the driver puts things, and the GPUs' settings.
fn tree(world: &World) -> (BTreeMap<PathBuf, Vec<u8>>, String) {
    fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.insert(path.clone(), b"folder".to_vec());
                walk(&path, found);
            } else {
                found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
            }
        }
    }
    let mut found = BTreeMap::new();
    let rig = &world.rig;
    for dir in [&rig.kubelet_root, &rig.cdi_root, &rig.mps_run_dir(), &rig.dir().join("mps-state")]
    {
        if dir.exists() {
            found.insert(dir.clone(), b"folder".to_vec());
        }
        walk(dir, &mut found);
    }
    let outside = world.outside();
    let settings =
        (outside.time_slices, outside.mig, outside.compute_modes, rig.mps_socket().exists());
    (found, format!("{settings:?}"))
}

fn cleanup(world: &World, flags: &[&str], die_at: Option<u32>) -> Output {
    let mut command = program(world, "cleanup");
    command.arg("--mps-run-dir").arg(world.rig.mps_run_dir());
    command.arg("--mps-state-dir").arg(world.rig.dir().join("mps-state"));
    if let Some(n) = die_at {
        command.env("GPU_DRA_DIE_AT", n.to_string());
    }
    command.args(flags).output().unwrap()
}

fn succeeds(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn fails(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn node() -> World {
    let world = World::new("2xh100").await;
    // The kubelet has made it before any driver came.
    std::fs::create_dir_all(world.rig.kubelet_root.join("plugins")).unwrap();
    let others = world.rig.cdi_root.join("nvidia.yaml");
    std::fs::write(others, "of the toolkit").unwrap();
    world
}

/// A whole GPU with a time slice and a MIG device of another.
async fn train(world: &World) -> ClaimRef {
    let result = |request: &str, device: &str| json!({"request": request, "driver": "gpu.nvidia.com", "pool": gpu_dra::rig::NODE, "device": device});
    let allocation = json!({"devices": {
        "results": [result("gpu", "gpu-0"), result("mig", "gpu-1-mig-1g10gb-19-6")],
        "config": [{"source": "FromClaim", "requests": ["gpu"],
            "opaque": {"driver": "gpu.nvidia.com", "parameters": time_slicing("Long")}}],
    }});
    world.claim_with("train", allocation).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_an_uninstall() {
    let world = node().await;
    let before = tree(&world);
    assert!(succeeds(&cleanup(&world, &[], None)).contains("nothing of this driver is left"));
    assert_eq!(tree(&world), before, "a node on which it never was");

    let (mut agent, _plugin) = world.agent().await;
    let refused = fails(&cleanup(&world, &[], None));
    assert!(refused.contains("delete its DaemonSet first"), "{refused}");
    agent.stop().unwrap();
    std::fs::write(world.rig.plugin_dir().join("checkpoint.json.bak"), "of a take-over").unwrap();
    let installed = tree(&world);
    let said = succeeds(&cleanup(&world, &["--dry-run"], None));
    assert!(said.contains("would remove") && said.contains("names.json"), "{said}");
    assert_eq!(tree(&world), installed);
    succeeds(&cleanup(&world, &[], None));
    assert_eq!(tree(&world), before);
    succeeds(&cleanup(&world, &[], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_claims_are_listed_and_stay_unless_forced() {
    let world = node().await;
    let before = tree(&world);
    let claim = train(&world).await;
    let (mut agent, plugin) = world.agent().await;
    prepare(&plugin, &claim).await.unwrap();
    agent.stop().unwrap();
    let stray = world.rig.plugin_dir().join("notes.txt");
    std::fs::write(&stray, "somebody's").unwrap();
    let prepared = tree(&world);
    for flags in [&[][..], &["--dry-run"]] {
        let refused = fails(&cleanup(&world, flags, None));
        assert!(refused.contains("default/train (gpu-0, gpu-1-mig-1g10gb-19-6)"), "{refused}");
        assert!(refused.contains("drain"), "{refused}");
        assert_eq!(tree(&world), prepared);
    }
    let said = succeeds(&cleanup(&world, &["--force"], None));
    assert!(said.contains("stays: notes.txt"), "{said}");
    std::fs::remove_file(&stray).unwrap();
    succeeds(&cleanup(&world, &[], None));
    assert_eq!(tree(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mps_daemons_and_their_folders_go_too() {
    let world = node().await;
    let before = tree(&world);
    let mps_host = world.rig.start_mps_host(crate::world::PROGRAM.as_ref()).await.unwrap();
    let claim = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let (mut agent, plugin) = world.agent().await;
    prepare(&plugin, &claim).await.unwrap();
    agent.stop().unwrap();
    let refused = fails(&cleanup(&world, &["--force"], None));
    assert!(refused.contains("an MPS host serves"), "{refused}");
    // The host's pod is deleted, and its daemons die with it, or not.
    let mut process = std::mem::ManuallyDrop::new(mps_host);
    process.process.stop().unwrap();
    succeeds(&cleanup(&world, &["--force"], None));
    assert_eq!(tree(&world), before);
}

#[cfg(feature = "die-at")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_boundary_it_can_be_run_again() {
    let world = node().await;
    let before = tree(&world);
    let claim = train(&world).await;
    let mut points = 0;
    for n in 1..150 {
        let (mut agent, plugin) = world.agent().await;
        prepare(&plugin, &claim).await.unwrap();
        agent.stop().unwrap();
        let struck = !cleanup(&world, &["--force"], Some(n)).status.success();
        succeeds(&cleanup(&world, &["--force"], None));
        assert_eq!(tree(&world), before, "killed at boundary {n}");
        if !struck {
            break;
        }
        points += 1;
    }
    assert!(points >= 15, "{points} boundaries");
}
