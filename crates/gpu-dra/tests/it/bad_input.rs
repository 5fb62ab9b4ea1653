//! What a kubelet, a user or a broken disk can hand the node agent: a clear error that names
//! object and remedy, no panic, other claims unaffected.

use gpu_dra_model::{ClaimRef, ClaimUid};
use serde_json::{Value, json};

use crate::world::{World, prepare, time_slicing, unprepare};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_claims_are_refused_one_by_one() {
    let world = World::new("4xh100").await;
    let (mut agent, plugin) = world.agent().await;
    let config = |parameters: Value| vec![parameters];
    let big = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "pad": "x".repeat(10_000),
    });
    let table = [
        ("no-device", vec!["gpu-99"], vec![], "gpu-99"),
        (
            "unknown-kind",
            vec!["gpu-0"],
            config(json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "Gpu"})),
            "GpuConfig",
        ),
        (
            "unknown-version",
            vec!["gpu-0"],
            config(json!({"apiVersion": "resource.nvidia.com/v9", "kind": "GpuConfig"})),
            "resource.nvidia.com/v1beta1",
        ),
        (
            "unknown-field",
            vec!["gpu-0"],
            config(
                json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharin": {}}),
            ),
            "sharing",
        ),
        (
            "wrong-type",
            vec!["gpu-0"],
            config(
                json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": 3}),
            ),
            "sharing",
        ),
        ("huge", vec!["gpu-0"], config(big), "pad"),
    ];
    for (name, devices, configs, says) in table {
        let claim = world.claim(name, &devices, &configs).await;
        let error = prepare(&plugin, &claim).await.unwrap_err();
        assert!(error.contains(says) && error.contains(name), "{name}: {error}");
        assert!(error.len() < 300, "{name}: {error}");
        unprepare(&plugin, &claim).await.unwrap();
    }

    let unallocated = world.claim_with("unallocated", Value::Null).await;
    let error = prepare(&plugin, &unallocated).await.unwrap_err();
    assert!(error.contains("not allocated"), "{error}");

    let none_of_ours = world.claim("none-of-ours", &[], &[]).await;
    assert_eq!(prepare(&plugin, &none_of_ours).await.unwrap(), []);

    let good = world.claim("good", &["gpu-1"], &[]).await;
    let other_uid = ClaimRef {
        uid: ClaimUid::new("0f6c1f3a-2b7e-4c55-9d1f-000000000001").unwrap(),
        ..good.clone()
    };
    let unknown = ClaimRef {
        uid: ClaimUid::new("0f6c1f3a-2b7e-4c55-9d1f-000000000002").unwrap(),
        name: "never-made".to_owned(),
        ..good.clone()
    };
    // All in one call: each is answered by itself.
    let answers =
        plugin.prepare(&[other_uid.clone(), unknown.clone(), good.clone()]).await.unwrap();
    assert!(answers[&other_uid.uid].as_ref().unwrap_err().contains("re-created"));
    assert!(answers[&unknown.uid].as_ref().unwrap_err().contains("doesn't exist"));
    assert_eq!(answers[&good.uid].as_ref().unwrap().len(), 1);
    // Unprepare of what was never prepared is success, and never needs the API server.
    world.delete_claim(&good).await;
    for claim in [&other_uid, &unknown, &unallocated, &good] {
        unprepare(&plugin, claim).await.unwrap();
    }
    assert!(world.outside().files.is_empty(), "{:?}", world.outside());
    assert!(!agent.has_ended().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn double_allocation_is_refused_with_the_holders_name() {
    let world = World::new("2xh100").await;
    let (_agent, plugin) = world.agent().await;
    let first = world.claim("first", &["gpu-0"], &[]).await;
    let second = world.claim("second", &["gpu-0"], &[]).await;
    prepare(&plugin, &first).await.unwrap();
    let error = prepare(&plugin, &second).await.unwrap_err();
    assert!(error.contains("default/first"), "{error}");
    unprepare(&plugin, &first).await.unwrap();
    let devices = prepare(&plugin, &second).await.unwrap();
    assert_eq!(
        devices[0].cdi_ids[0].to_string(),
        format!("k8s.gpu.nvidia.com/claim={}-gpu-0", second.uid)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_garbage_journal_file_is_moved_aside() {
    let world = World::new("2xh100").await;
    let (mut agent, plugin) = world.agent().await;
    let claim = world.claim("train", &["gpu-0"], &[]).await;
    let other = world.claim("other", &["gpu-1"], &[]).await;
    prepare(&plugin, &claim).await.unwrap();
    prepare(&plugin, &other).await.unwrap();
    let before = world.outside();
    agent.stop().unwrap();
    let file = world.rig.journal().join(format!("{}.json", claim.uid));
    std::fs::write(&file, b"\0\0garbage").unwrap();

    let (_agent, plugin) = world.agent().await;
    prepare(&plugin, &claim).await.unwrap();
    let mut after = world.outside();
    assert!(after.files.remove(&file.with_extension("json.bad")).is_some(), "{after:?}");
    assert_eq!(after, before, "the other claim is unaffected, this one is whole again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cdi_folder_that_is_none_is_named_and_nothing_stays() {
    let world = World::new("2xh100").await;
    let (mut agent, plugin) = world.agent().await;
    let claim = world.claim("train", &["gpu-0"], &[time_slicing("Long")]).await;
    std::fs::remove_dir(&world.rig.cdi_root).unwrap();
    std::fs::write(&world.rig.cdi_root, b"").unwrap();
    let error = prepare(&plugin, &claim).await.unwrap_err();
    assert!(error.contains(world.rig.cdi_root.to_str().unwrap()), "{error}");
    assert_eq!(world.outside().time_slices, [0, 0], "the step before it is undone");
    std::fs::remove_file(&world.rig.cdi_root).unwrap();
    std::fs::create_dir(&world.rig.cdi_root).unwrap();
    prepare(&plugin, &claim).await.unwrap();
    assert!(!agent.has_ended().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cdi_folder_may_be_written_in_any_way_and_be_missing_at_first() {
    for (name, is_link) in [("slashed/", false), ("not-there", false), ("link", true)] {
        let mut world = World::new("1xl4").await;
        let real = world.rig.cdi_root.clone();
        if is_link {
            let link = real.with_file_name(name);
            std::os::unix::fs::symlink(&real, &link).unwrap();
            world.rig.cdi_root = link;
        } else {
            world.rig.cdi_root = real.with_file_name(name);
        }
        let (_agent, plugin) = world.agent().await;
        let claim = world.claim("a", &["gpu-0"], &[]).await;
        prepare(&plugin, &claim).await.unwrap();
        let specs = || std::fs::read_dir(&world.rig.cdi_root).unwrap().count();
        assert_eq!(specs(), 1, "{name}");
        unprepare(&plugin, &claim).await.unwrap();
        assert_eq!(specs(), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nvml_failing_mid_call_is_an_error_for_that_claim_alone() {
    let world = World::new("2xh100").await;
    let (_agent, plugin) = world.agent().await;
    let claim = world.claim("train", &["gpu-0"], &[]).await;
    let other = world.claim("other", &["gpu-1"], &[]).await;
    let lose = |lost: Option<&str>| {
        let text = lost.map_or_else(|| json!({}), |lost| json!({"gpus": {"0": {"lost": lost}}}));
        let path = world.rig.staged.state_dir.path().join("control.json");
        std::fs::write(path, text.to_string()).unwrap();
    };
    lose(Some("error"));
    let error = prepare(&plugin, &claim).await.unwrap_err();
    assert!(error.contains("GPU-") || error.contains("gpu-0"), "{error}");
    prepare(&plugin, &other).await.unwrap();
    unprepare(&plugin, &other).await.unwrap();
    lose(None);
    let mut answer = prepare(&plugin, &claim).await;
    for _ in 0..100 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        answer = prepare(&plugin, &claim).await;
    }
    answer.unwrap();
}
