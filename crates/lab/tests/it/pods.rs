//! The life of pods with claims, through the kubelet and a driver's real sockets. What the scheduler does is done
//! by the tests where it isn't the point.

use std::time::Duration;

use gpu_dra_kubelet::HealthState;
use gpu_dra_lab::kinds::{POD, RESOURCE_CLAIM, RESOURCE_SLICE};
use gpu_dra_lab::{DeleteOptions, KubeletTiming, LabEvent};
use serde_json::json;

use super::support::{DRIVER, FakeDriver, Home, NODE, claim, pod, slice};

#[tokio::test]
async fn a_pod_runs_with_its_device_and_gives_it_back() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    let mut happenings = home.lab.subscribe();
    let server = driver.serve(&home).await;
    home.create_train();
    home.until_phase("train", "Running").await;

    let containers = home.lab.containers();
    let [container] = containers.as_slice() else { panic!("{containers:?}") };
    assert_eq!(container.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
    assert_eq!(container.device_nodes, ["/dev/gpu-0"]);
    assert_eq!(driver.calls(), ["prepare one"]);

    home.api().delete(&POD, "default", "train", &DeleteOptions::default()).unwrap();
    home.until_gone(&POD, "train").await;
    assert_eq!(driver.calls(), ["prepare one", "unprepare one"]);
    assert_eq!(home.lab.containers(), []);
    home.until("the claim is given back", || {
        home.get(&RESOURCE_CLAIM, "one").filter(|claim| claim["status"] == json!({}))
    })
    .await;

    let mut told = Vec::new();
    while let Ok(event) = happenings.try_recv() {
        told.push(match event {
            LabEvent::DriverRegistered { .. } => "registered",
            LabEvent::ClaimAllocated { .. } => "allocated",
            LabEvent::ClaimPrepared { .. } => "prepared",
            LabEvent::ContainerStarted(_) => "started",
            LabEvent::ClaimUnprepared { .. } => "unprepared",
            LabEvent::ClaimDeallocated { .. } => "deallocated",
            LabEvent::PodPhase { .. } => continue,
            other => panic!("{other:?}"),
        });
    }
    for word in ["registered", "allocated", "prepared", "started", "unprepared", "deallocated"] {
        assert_eq!(told.iter().filter(|told| **told == word).count(), 1, "{word} in {told:?}");
    }
    server.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_failed_prepare_is_told_and_tried_again() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    driver.failures.lock().unwrap().push("GPU is lost: reset it".to_owned());
    let _server = driver.serve(&home).await;
    home.create_train();
    home.until_phase("train", "Running").await;
    assert_eq!(driver.calls(), ["prepare one", "prepare one"]);
    assert!(
        home.events("FailedPrepareDynamicResources").contains(
            &"Failed to prepare dynamic resources: NodePrepareResources failed for ResourceClaim one: GPU is lost: reset it"
                .to_owned()
        ),
        "{:?}",
        home.events("FailedPrepareDynamicResources")
    );
}

#[tokio::test]
async fn a_pod_waits_for_a_driver_that_comes_later() {
    let home = Home::new().await;
    home.create_train();
    home.until("the event", || {
        let why =
            "Failed to prepare dynamic resources: DRA driver gpu.nvidia.com is not registered";
        home.events("FailedPrepareDynamicResources").contains(&why.to_owned()).then_some(())
    })
    .await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.until_phase("train", "Running").await;
}

#[tokio::test]
async fn a_pod_stays_until_its_claim_is_unprepared() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.create_train();
    home.until_phase("train", "Running").await;
    *driver.stuck.lock().unwrap() = true;
    home.api().delete(&POD, "default", "train", &DeleteOptions::default()).unwrap();
    home.until("two attempts", || (driver.calls().len() >= 3).then_some(())).await;
    assert!(home.get(&POD, "train").is_some());
    assert_eq!(
        home.events("FailedUnprepareDynamicResources").first().map(String::as_str),
        Some(
            "Failed to unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim one: device is busy"
        )
    );
    *driver.stuck.lock().unwrap() = false;
    home.until_gone(&POD, "train").await;
}

#[tokio::test]
async fn a_shared_claim_is_unprepared_with_its_last_pod() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.create(&RESOURCE_CLAIM, claim("one"));
    for name in ["a", "b"] {
        home.create(&POD, pod(name, "one"));
        home.place(name, "one", "gpu-0");
        home.until_phase(name, "Running").await;
    }
    assert_eq!(driver.calls(), ["prepare one"]);
    home.api().delete(&POD, "default", "a", &DeleteOptions::default()).unwrap();
    home.until_gone(&POD, "a").await;
    assert_eq!(driver.calls(), ["prepare one"]);
    home.api().delete(&POD, "default", "b", &DeleteOptions::default()).unwrap();
    home.until_gone(&POD, "b").await;
    assert_eq!(driver.calls(), ["prepare one", "unprepare one"]);
}

#[tokio::test]
async fn a_pod_deleted_by_force_is_unprepared_all_the_same() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.create_train();
    home.until_phase("train", "Running").await;
    home.api().delete(&POD, "default", "train", &DeleteOptions::now()).unwrap();
    home.until("unprepared", || driver.calls().contains(&"unprepare one".to_owned()).then_some(()))
        .await;
}

#[tokio::test]
async fn a_restarted_kubelet_wipes_slices_and_prepares_again() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.create_train();
    home.until_phase("train", "Running").await;
    home.create(&RESOURCE_SLICE, slice("ours", &["gpu-0"]));
    let mut elsewhere = slice("elsewhere", &["gpu-0"]);
    elsewhere["spec"]["nodeName"] = "node-b".into();
    home.create(&RESOURCE_SLICE, elsewhere);

    home.lab.restart_kubelet();
    home.until_gone(&RESOURCE_SLICE, "ours").await;
    assert!(home.get(&RESOURCE_SLICE, "elsewhere").is_some());
    home.until("prepared again", || {
        (driver.calls() == ["prepare one", "prepare one"]).then_some(())
    })
    .await;
    // Gone while the kubelet is away: unprepared once it is back.
    home.lab.stop_kubelet();
    home.api().delete(&POD, "default", "train", &DeleteOptions::now()).unwrap();
    home.lab.restart_kubelet();
    home.until("unprepared", || driver.calls().contains(&"unprepare one".to_owned()).then_some(()))
        .await;
}

#[tokio::test]
async fn slices_go_when_the_driver_stays_away() {
    let timing = KubeletTiming {
        plugin_scan: Duration::from_millis(5),
        slice_wipe: Duration::from_millis(300),
        health_retry: Duration::from_millis(20),
        ..KubeletTiming::default()
    };
    let home = Home::patient(timing).await;
    let driver = FakeDriver::new(&home);
    let server = driver.serve(&home).await;
    home.create(&RESOURCE_SLICE, slice("ours", &["gpu-0"]));
    // Back in time: they stay.
    server.stop(Duration::from_secs(1)).await;
    let server = driver.serve(&home).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(home.get(&RESOURCE_SLICE, "ours").is_some());
    // Killed: the socket files stay, the connection is gone.
    drop(server);
    home.until_gone(&RESOURCE_SLICE, "ours").await;
}

#[tokio::test]
async fn health_reaches_the_pods_status() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    driver.report("gpu-0", HealthState::Healthy, "");
    let _server = driver.serve(&home).await;
    let home = &home;
    home.create_train();
    let health = |want: &'static str| {
        home.until(want, move || {
            let pod = home.get(&POD, "train")?;
            let status = pod.pointer("/status/containerStatuses/0/allocatedResourcesStatus/0")?;
            let device = &status["resources"][0];
            (device["health"] == want).then(|| status.clone())
        })
    };
    let status = health("Healthy").await;
    assert_eq!(status["name"], "claim:gpu");
    assert!(
        status["resources"][0]["resourceID"]
            .as_str()
            .unwrap()
            .starts_with("k8s.gpu.nvidia.com/claim=")
    );
    driver.report("gpu-0", HealthState::Unhealthy, "Xid 79");
    let status = health("Unhealthy").await;
    assert_eq!(status["resources"][0]["message"], "Xid 79");
}

#[tokio::test]
async fn an_unresolvable_device_keeps_the_container_from_starting() {
    let home = Home::new().await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.create(&RESOURCE_CLAIM, claim("one"));
    home.create(&POD, pod("train", "one"));
    // Another file has a device of the name that the driver will use, so that neither counts.
    let uid =
        home.get(&RESOURCE_CLAIM, "one").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let other = home.dir.path().join("cdi/other.json");
    std::fs::write(&other, format!(
        r#"{{"cdiVersion": "0.5.0", "kind": "k8s.gpu.nvidia.com/claim", "devices": [{{"name": "claim-{uid}-gpu-0"}}]}}"#
    )).unwrap();
    home.place("train", "one", "gpu-0");
    home.until("CreateContainerError", || {
        let pod = home.get(&POD, "train")?;
        let waiting = pod.pointer("/status/containerStatuses/0/state/waiting")?.clone();
        (waiting["reason"] == "CreateContainerError").then_some(waiting)
    })
    .await;
    // The conflict over the name is settled, the next attempt works.
    std::fs::remove_file(&other).unwrap();
    home.until_phase("train", "Running").await;
}

#[tokio::test]
async fn claims_come_from_templates_and_go_with_their_pod() {
    let home = Home::new().await;
    let template = json!({"metadata": {"name": "tmpl"}, "spec": {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
    }});
    let mut wanting = pod("train", "");
    wanting["spec"]["resourceClaims"] =
        json!([{"name": "gpu", "resourceClaimTemplateName": "tmpl"}]);
    home.create(&POD, wanting);
    home.until("the event", || {
        let why = "PodResourceClaim gpu: resourceclaimtemplates.resource.k8s.io \"tmpl\" not found";
        home.events("FailedResourceClaimCreation").contains(&why.to_owned()).then_some(())
    })
    .await;
    home.create(&gpu_dra_lab::kinds::RESOURCE_CLAIM_TEMPLATE, template);
    let name = home
        .until("the claim's name in the pod's status", || {
            let pod = home.get(&POD, "train")?;
            let name = pod.pointer("/status/resourceClaimStatuses/0/resourceClaimName")?;
            Some(name.as_str()?.to_owned())
        })
        .await;
    assert!(name.starts_with("train-gpu-"), "{name}");
    let made = home.get(&RESOURCE_CLAIM, &name).unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"team": "a"}));
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"resource.kubernetes.io/pod-claim-name": "gpu"})
    );
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Pod");
    assert_eq!(made["spec"]["devices"]["requests"][0]["exactly"]["count"], 1);
    home.api().delete(&POD, "default", "train", &DeleteOptions::default()).unwrap();
    home.until_gone(&RESOURCE_CLAIM, &name).await;
}

#[tokio::test]
async fn the_node_is_there_at_once() {
    let start = std::time::Instant::now();
    let home = Home::new().await;
    let took = start.elapsed();
    let node = home.get(&gpu_dra_lab::kinds::NODE, NODE).unwrap();
    assert!(node["metadata"]["uid"].as_str().is_some());
    println!("started in {took:?}");
}
