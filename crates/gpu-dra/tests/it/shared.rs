//! What users of shared GPUs reported of other drivers, one test a field report.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gpu_dra_model::ClaimRef;
use gpu_dra_sharing::DaemonState;
use serde_json::{Value, json};

use crate::mps::mps;
use crate::world::{PROGRAM, World, prepare, time_slicing, unprepare};

/// The host's and the container's path of each mount in the claim's CDI spec.
fn mounts(world: &World, claim: &ClaimRef) -> Vec<(String, String)> {
    let files = world.outside().files;
    let spec = files.iter().find(|(path, _)| {
        path.starts_with(&world.rig.cdi_root) && path.to_string_lossy().contains(claim.uid.as_str())
    });
    let spec: Value = serde_json::from_str(spec.unwrap().1).unwrap();
    let devices = spec["devices"].as_array().unwrap().iter();
    let edits = devices.chain([&spec]).map(|part| &part["containerEdits"]["mounts"]);
    let mounts = edits.filter_map(Value::as_array).flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    mounts.map(|mount| (text(&mount["hostPath"]), text(&mount["containerPath"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k05_a_daemon_and_a_spec_that_are_gone_are_back_after_the_next_prepare() {
    let world = World::new("1xh100").await;
    let host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    let claim = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let answer = prepare(&plugin, &claim).await.unwrap();
    let prepared = world.outside();
    host.client.stop(&host.client.list().unwrap()[0].id).unwrap();
    for entry in fs::read_dir(&world.rig.cdi_root).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(prepare(&plugin, &claim).await.unwrap(), answer, "the same ids");
    assert_eq!(world.outside(), prepared);
    let daemons = host.client.list().unwrap();
    assert!(matches!(daemons[..], [ref one] if matches!(one.state, DaemonState::Ready { .. })));
    unprepare(&plugin, &claim).await.unwrap();
    assert_eq!(world.outside(), empty);
}

/// Also that containers get no daemon of the host's where they asked for none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p07_a_daemon_that_the_host_runs_itself_is_not_the_claims() {
    let world = World::new("2xh100").await;
    let staged = &world.rig.staged;
    let mut listeners = Vec::new();
    for root in [&staged.driver_root, &staged.host_root] {
        let pipe = root.join("tmp/nvidia-mps");
        fs::create_dir_all(&pipe).unwrap();
        if !pipe.join("control").exists() {
            listeners.push(UnixListener::bind(pipe.join("control")).unwrap());
        }
    }
    let _host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    let shared = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let plain = world.claim("plain", &["gpu-1"], &[]).await;
    prepare(&plugin, &shared).await.unwrap();
    prepare(&plugin, &plain).await.unwrap();
    let of_mps = |claim: &ClaimRef| {
        let mut mounts = mounts(&world, claim);
        mounts.retain(|(host, container)| format!("{host} {container}").contains("nvidia-mps"));
        mounts
    };
    assert_eq!(of_mps(&plain), []);
    let own = of_mps(&shared);
    assert_eq!(own.len(), 1, "{own:?}");
    assert!(Path::new(&own[0].0).starts_with(world.rig.mps_run_dir()), "{own:?}");
    assert_eq!(own[0].1, "/tmp/nvidia-mps");
    unprepare(&plugin, &shared).await.unwrap();
    assert!(listeners[0].local_addr().unwrap().as_pathname().unwrap().exists());
}

/// Case `nvml/pascal-no-timeslice`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n18_a_gpu_without_time_slices_serves_all_who_ask_for_none() {
    let world = World::new("1xp4").await;
    let (_agent, plugin) = world.agent().await;
    let empty = world.outside();
    for (name, configs) in [("plain", vec![]), ("default", vec![time_slicing("Default")])] {
        let claim = world.claim(name, &["gpu-0"], &configs).await;
        prepare(&plugin, &claim).await.unwrap();
        unprepare(&plugin, &claim).await.unwrap();
    }
    let claim = world.claim("long", &["gpu-0"], &[time_slicing("Long")]).await;
    let error = prepare(&plugin, &claim).await.unwrap_err();
    assert!(error.contains("can't set a time slice") && error.contains("interval Default"));
    assert_eq!(world.outside(), empty);
    unprepare(&plugin, &claim).await.unwrap();
    // The agent died before it was told that the GPU can't: that is undone all the same.
    let boot = fs::read_to_string(world.rig.staged.proc_root.join("sys/kernel/random/boot_id"));
    let gpu = &world.rig.staged.state_dir.node().unwrap().gpus[0].uuid;
    let record = json!({
        "version": 1, "phase": "preparing", "bootId": boot.unwrap().trim(),
        "claim": {"uid": claim.uid, "namespace": claim.namespace, "name": claim.name},
        "devices": [{
            "requests": ["gpu"], "pool": gpu_dra::rig::NODE, "device": "gpu-0", "gpu": gpu,
            "cdiDevice": format!("k8s.gpu.nvidia.com/claim={}-gpu-0", claim.uid),
        }],
        "steps": [{"step": "timeSlice", "gpu": gpu, "interval": "Long"}],
    });
    let file = world.rig.journal().join(format!("{}.json", claim.uid));
    fs::write(file, record.to_string()).unwrap();
    unprepare(&plugin, &claim).await.unwrap();
    assert_eq!(world.outside(), empty);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n39_a_monitor_leaves_alone_what_the_owner_has_set() {
    let world = World::new("2xh100").await;
    let host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    let shared = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let slices = world.claim("slices", &["gpu-1"], &[time_slicing("Long")]).await;
    prepare(&plugin, &shared).await.unwrap();
    prepare(&plugin, &slices).await.unwrap();
    let (owners, daemons) = (world.outside(), host.client.list().unwrap());
    assert_eq!((&owners.compute_modes[..], &owners.time_slices[..]), (&[3, 0][..], &[0, 3][..]));
    let watched = |device: &str| {
        json!({
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": gpu_dra::rig::NODE,
            "device": device, "adminAccess": true,
        })
    };
    let results = [watched("gpu-0"), watched("gpu-1")];
    let config = json!([{"source": "FromClaim", "opaque": {
        "driver": "gpu.nvidia.com", "parameters": time_slicing("Short"),
    }}]);
    let allocation = json!({"devices": {"results": results, "config": config}});
    let watch = world.claim_with("watch", allocation).await;
    prepare(&plugin, &watch).await.unwrap();
    let seen = world.outside();
    assert_eq!(seen.compute_modes, owners.compute_modes);
    assert_eq!(seen.time_slices, owners.time_slices);
    assert!(mounts(&world, &watch).iter().all(|(_, at)| at != "/tmp/nvidia-mps"));
    unprepare(&plugin, &watch).await.unwrap();
    assert_eq!(world.outside(), owners);
    assert_eq!(host.client.list().unwrap(), daemons);
}

/// Every file below the folder, with its size and time.
fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, (u64, SystemTime)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            walk(&path, found);
        } else {
            found.insert(path, (metadata.len(), metadata.modified().unwrap()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n26_preparing_changes_no_files_but_the_drivers_own() {
    let world = World::new("2xh100").await;
    let _host = world.rig.start_mps_host(PROGRAM.as_ref()).await.unwrap();
    let (_agent, plugin) = world.agent().await;
    let rig = &world.rig;
    let own = [
        rig.plugin_dir(),
        rig.cdi_root.clone(),
        rig.mps_run_dir(),
        rig.dir().join("mps-state"),
        // What stands for the hardware.
        rig.staged.state_dir.path().to_owned(),
    ];
    let others = || {
        let mut found = BTreeMap::new();
        walk(rig.dir(), &mut found);
        found.retain(|path, _| {
            !own.iter().any(|own| path.starts_with(own))
                && path.extension().is_none_or(|end| end != "log")
        });
        found
    };
    let before = others();
    assert!(before.len() > 50, "the node's files are there: {}", before.len());
    let shared = world.claim("shared", &["gpu-0"], &[mps("GpuConfig", json!({}))]).await;
    let slices = world.claim("slices", &["gpu-1"], &[time_slicing("Long")]).await;
    for claim in [&shared, &slices] {
        prepare(&plugin, claim).await.unwrap();
    }
    assert_eq!(others(), before);
    for claim in [&shared, &slices] {
        unprepare(&plugin, claim).await.unwrap();
    }
    assert_eq!(others(), before);
}
