//! The program on a node that was NVIDIA's driver's: its state is made from what ours was,
//! in its format.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_dra::rig::{DRIVER, NODE};
use gpu_dra_model::{ClaimRef, ComputeMode};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::world::{PROGRAM, World, make_foreign, prepare, set_compute_mode, unprepare};

fn checkpoint(world: &World) -> PathBuf {
    world.rig.plugin_dir().join("checkpoint.json")
}

fn boot(world: &World) -> String {
    let path = world.rig.staged.proc_root.join("sys/kernel/random/boot_id");
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

fn ours(world: &World, claim: &ClaimRef) -> PathBuf {
    world.rig.cdi_root.join(format!("k8s.{DRIVER}-claim_{}.json", claim.uid))
}

fn theirs(world: &World, claim: &ClaimRef) -> PathBuf {
    ours(world, claim).with_extension("yaml")
}

/// What NVIDIA's driver would have left of a prepared claim in place of ours.
fn make_it_theirs(world: &World, claim: &ClaimRef) {
    let record = world.rig.journal().join(format!("{}.json", claim.uid));
    let held: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let device = &held["devices"][0];
    let (name, gpu) = (device["device"].as_str().unwrap(), &device["gpu"]);
    let state = json!({
        "checkpointState": "PrepareCompleted",
        "status": {"allocation": {"devices": {"results": [
            {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": name},
        ]}}},
        "preparedDevices": [{"devices": [{"gpu": {"info": {"uuid": gpu}, "device": {
            "Requests": ["gpu"], "PoolName": NODE, "DeviceName": name,
            "CDIDeviceIDs": [format!("k8s.{DRIVER}/claim={}-{name}", claim.uid)],
        }}, "mig": null}], "configState": {}}],
    });
    let uid = claim.uid.as_str();
    let file = json!({"checksum": 1, "v1": {}, "v2": {
        "checksum": 2, "preparedClaims": {uid: state}, "nodeBootID": boot(world),
    }});
    std::fs::write(checkpoint(world), file.to_string()).unwrap();
    std::fs::remove_file(record).unwrap();
    std::fs::remove_file(ours(world, claim)).unwrap();
    let spec = format!(
        "---\ncdiVersion: 0.5.0\nkind: k8s.{DRIVER}/claim\ndevices:\n    - name: {uid}-{name}\n      containerEdits:\n        env: [X=y]\n"
    );
    std::fs::write(theirs(world, claim), spec).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_taken_over_killed_at_every_boundary_and_unprepared_rightly() {
    let world = World::new("2xh100").await;
    let claim = world.claim("train", &["gpu-0"], &[]).await;
    let (mut agent, plugin) = world.agent().await;
    let empty = world.outside();
    let answer = prepare(&plugin, &claim).await.unwrap();
    let prepared = world.outside();
    agent.stop().unwrap();

    let mut points = 0;
    for n in 1..100 {
        make_it_theirs(&world, &claim);
        let mut command = world.rig.agent_command(Path::new(PROGRAM));
        command.env("GPU_DRA_DIE_AT", n.to_string());
        let mut dying = world.rig.start_agent(command, "agent.log").unwrap();
        let struck = world.rig.dial(&mut dying).await.is_err();
        let there =
            [ours(&world, &claim), theirs(&world, &claim)].iter().filter(|p| p.exists()).count();
        assert_eq!(there, 1, "specs of the running pod at boundary {n}");
        if !struck {
            dying.stop().unwrap();
        }
        drop(dying);
        points += u32::from(struck);

        let (mut agent, plugin) = world.agent().await;
        let files =
            |outside: &crate::world::Outside| outside.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(files(&world.outside()), files(&prepared), "killed at boundary {n}");
        assert!(!checkpoint(&world).exists());
        assert!(checkpoint(&world).with_extension("json.bak").exists());
        // The kubelet after its restart gets what the running pod has.
        assert_eq!(prepare(&plugin, &claim).await.unwrap(), answer);
        assert_eq!(
            world.outside().files[&ours(&world, &claim)],
            prepared.files[&ours(&world, &claim)]
        );
        let thief = world.claim(&format!("thief-{n}"), &["gpu-0"], &[]).await;
        if n == 1 {
            let refused = prepare(&plugin, &thief).await.unwrap_err();
            assert!(refused.contains("still in use by claim default/train"), "{refused}");
        }
        unprepare(&plugin, &claim).await.unwrap();
        assert_eq!(world.outside(), empty);
        prepare(&plugin, &claim).await.unwrap();
        agent.stop().unwrap();
        if !struck {
            break;
        }
    }
    if cfg!(feature = "die-at") {
        assert!(points >= 12, "{points} boundaries in the take-over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incumbent_prepare_started() {
    let world = World::new("2xh100").await;
    let uid = "0f6c1f3a-2b7e-4c55-9d1f-6a0d6b1e4c01";
    let started = |device: &str| {
        json!({"v2": {"nodeBootID": boot(&world), "preparedClaims": {uid: {
            "checkpointState": "PrepareStarted", "name": "begun", "namespace": "default",
            "status": {"allocation": {"devices": {"results": [
                {"request": "mig", "driver": DRIVER, "pool": NODE, "device": device},
                {"request": "nic", "driver": "dra.net", "pool": NODE, "device": "gpu-1-mig-1g10gb-19-0"},
            ]}}},
        }}}})
    };
    std::fs::create_dir_all(world.rig.plugin_dir()).unwrap();
    make_foreign(&world, 0, 19, (6, 1));
    make_foreign(&world, 1, 19, (0, 1));
    std::fs::write(checkpoint(&world), started("gpu-0-mig-1g10gb-19-6").to_string()).unwrap();
    let (mut agent, _plugin) = world.agent().await;
    let after = world.outside();
    assert_eq!(
        after.mig,
        [(false, vec![]), (true, vec![(19, 0, 1)])],
        "the other driver's result is ignored"
    );
    assert!(after.files.is_empty(), "the claim is absent: {:?}", after.files);
    agent.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_and_empty() {
    for (state, name) in
        [(&b"{\"v2\": {\"prep"[..], "truncated"), (b"", "empty"), (b"[]", "another driver's list")]
    {
        let world = World::new("2xh100").await;
        let held = world.claim("train", &["gpu-1"], &[]).await;
        let (mut agent, plugin) = world.agent().await;
        prepare(&plugin, &held).await.unwrap();
        agent.stop().unwrap();
        make_it_theirs(&world, &held);
        std::fs::write(checkpoint(&world), state).unwrap();

        let (mut agent, plugin) = world.agent().await;
        let bad = checkpoint(&world).with_extension("json.bad");
        assert_eq!(std::fs::read(&bad).unwrap(), state, "{name}");
        let events = kube::Api::<Event>::namespaced(world.rig.client().await.unwrap(), "default");
        let told = || async {
            let events = events.list(&ListParams::default()).await.unwrap();
            events.items.iter().any(|event| {
                event.reason.as_deref() == Some("CheckpointUnreadable")
                    && event
                        .message
                        .as_deref()
                        .is_some_and(|text| text.contains(bad.to_str().unwrap()))
            })
        };
        agent.wait_until("the Event names the file", told).await.unwrap();
        let thief = world.claim("thief", &["gpu-1"], &[]).await;
        let refused = prepare(&plugin, &thief).await.unwrap_err();
        assert!(refused.contains("still in use by claim default/train"), "{refused}");
        unprepare(&plugin, &held).await.unwrap();
        prepare(&plugin, &thief).await.unwrap();
        agent.stop().unwrap();
    }
}

/// Its MPS daemon runs as a Deployment of its own, which new containers of the claim still reach.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_mps_keeps_its_daemon_and_gives_back_the_compute_mode() {
    let world = World::new("1xh100").await;
    let held = world.claim("train", &["gpu-0"], &[]).await;
    let (mut agent, plugin) = world.agent().await;
    prepare(&plugin, &held).await.unwrap();
    agent.stop().unwrap();
    make_it_theirs(&world, &held);
    let mut state: Value =
        serde_json::from_slice(&std::fs::read(checkpoint(&world)).unwrap()).unwrap();
    let daemon = format!("{}-0a1b2", held.uid);
    state["v2"]["preparedClaims"][held.uid.as_str()]["preparedDevices"][0]["configState"] =
        json!({"mpsControlDaemonID": daemon});
    std::fs::write(checkpoint(&world), state.to_string()).unwrap();
    set_compute_mode(&world, 0, ComputeMode::ExclusiveProcess);
    assert_eq!(world.outside().compute_modes, [3]);

    let (mut agent, plugin) = world.agent().await;
    let spec = std::fs::read_to_string(ours(&world, &held)).unwrap();
    let pipe = world.rig.plugin_dir().join("mps").join(&daemon).join("pipe");
    assert!(spec.contains(pipe.to_str().unwrap()), "{spec}");
    assert_eq!(world.outside().compute_modes, [3]);
    unprepare(&plugin, &held).await.unwrap();
    assert_eq!(world.outside().compute_modes, [0]);
    let log = std::fs::read_to_string(&agent.log).unwrap();
    assert!(log.contains(&format!("mps-control-daemon-{daemon}")), "{log}");
    agent.stop().unwrap();
}

pub(crate) fn program(world: &World, command: &str) -> Command {
    let mut program = Command::new(PROGRAM);
    program.env_remove("KUBECONFIG").env_remove("RUST_LOG").arg(command);
    let mut flag = |name: &str, value: &Path| {
        program.arg(name).arg(value);
    };
    flag("--kubelet-root", &world.rig.kubelet_root);
    flag("--cdi-root", &world.rig.cdi_root);
    flag("--driver-root", &world.rig.staged.driver_root);
    flag("--host-root-here", &world.rig.staged.host_root);
    flag("--sysfs", &world.rig.staged.sysfs_root);
    flag("--proc", &world.rig.staged.proc_root);
    flag("--dev", &world.rig.staged.dev_root.join("dev"));
    flag("--mps-socket", &world.rig.mps_socket());
    program
}
