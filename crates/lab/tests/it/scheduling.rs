//! Pods from their manifest to Running, with all controllers at work.

use std::collections::BTreeSet;
use std::time::Duration;

use gpu_dra_lab::kinds::{DEVICE_CLASS, NODE as NODES, POD, RESOURCE_CLAIM, RESOURCE_SLICE};
use gpu_dra_lab::{DeleteOptions, Selector};
use serde_json::{Value, json};

use super::support::{DRIVER, FakeDriver, Home, claim, pod, slice};

const CLASSES: &str = include_str!("../../../../deploy/deviceclasses.yaml");

const EXAMPLES: [(&str, &str); 7] = [
    ("one-gpu", include_str!("../../../../examples/one-gpu.yaml")),
    ("by-memory", include_str!("../../../../examples/by-memory.yaml")),
    ("first-available", include_str!("../../../../examples/first-available.yaml")),
    ("two-containers", include_str!("../../../../examples/two-containers.yaml")),
    ("shared-claim", include_str!("../../../../examples/shared-claim.yaml")),
    ("extended-resource", include_str!("../../../../examples/extended-resource.yaml")),
    ("admin-access", include_str!("../../../../examples/admin-access.yaml")),
];

const GPUS: [&str; 8] = ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "gpu-6", "gpu-7"];

/// A lab with the standard classes and a node with that many GPUs.
async fn cluster(gpus: usize) -> Home {
    let home = Home::new().await;
    home.lab.apply_yaml(CLASSES).unwrap();
    home.create(&RESOURCE_SLICE, slice("gpus", &GPUS[..gpus]));
    home
}

fn devices(home: &Home, pod: &str) -> Vec<String> {
    let containers = home.lab.containers();
    let mine = containers.iter().filter(|container| container.pod == pod);
    mine.flat_map(|container| container.device_nodes.clone()).collect()
}

#[tokio::test]
async fn all_examples_run() {
    let home = cluster(8).await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    for (name, manifest) in EXAMPLES {
        home.lab.apply_yaml(manifest).unwrap_or_else(|err| panic!("{name}: {err:?}"));
    }
    let pods = home
        .until("all pods run", || {
            let (pods, _) = home.api().list(&POD, "", &Selector::default());
            pods.iter().all(|pod| pod["status"]["phase"] == "Running").then_some(pods)
        })
        .await;
    assert_eq!(pods.len(), 8);
    assert_eq!(devices(&home, "one-gpu").len(), 1);
    assert_eq!(devices(&home, "monitor").len(), 8);
    assert_eq!(devices(&home, "shared-gpu-a"), devices(&home, "shared-gpu-b"));
    // Each container has the GPU of its own request.
    let both = devices(&home, "two-containers");
    assert!(both.len() == 2 && both[0] != both[1], "{both:?}");
    for pod in pods {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
        home.api()
            .delete(&POD, &text("namespace"), &text("name"), &DeleteOptions::default())
            .unwrap();
    }
    home.until("nothing is left but the claim that someone wrote", || {
        let (claims, _) = home.api().list(&RESOURCE_CLAIM, "", &Selector::default());
        let (pods, _) = home.api().list(&POD, "", &Selector::default());
        let free = |claim: &Value| claim["status"] == json!({});
        (pods.is_empty() && claims.len() == 1 && free(&claims[0])).then_some(())
    })
    .await;
    // Two pods of one claim may have it prepared at the same time; it is unprepared once.
    let calls = driver.calls();
    let prepared: BTreeSet<&String> =
        calls.iter().filter(|call| call.starts_with("prepare")).collect();
    let unprepared = calls.iter().filter(|call| call.starts_with("unprepare")).count();
    assert_eq!((prepared.len(), unprepared), (7, 7));
}

#[tokio::test]
async fn a_pod_waits_with_a_reason_until_a_device_is_free() {
    let home = cluster(1).await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    for name in ["first", "second"] {
        home.create(&RESOURCE_CLAIM, claim(name));
        home.create(&POD, pod(name, name));
        home.until("it was looked at", || {
            let pod = home.get(&POD, name)?;
            pod["status"]["conditions"].as_array().map(|_| ())
        })
        .await;
    }
    home.until_phase("first", "Running").await;
    let why = home.until("the event", || home.events("FailedScheduling").pop()).await;
    assert!(
        why.starts_with("0/1 nodes are available: 1 cannot allocate all claims (request gpu: 1 device: claim default/first holds it"),
        "{why}"
    );
    // Told once, however often it was tried.
    let mut unrelated = slice("unrelated", &[]);
    unrelated["spec"]["pool"]["name"] = "unrelated".into();
    home.create(&RESOURCE_SLICE, unrelated);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(home.events("FailedScheduling").len(), 1);
    home.api().delete(&POD, "default", "first", &DeleteOptions::default()).unwrap();
    home.until_phase("second", "Running").await;
    assert_eq!(devices(&home, "second"), ["/dev/gpu-0"]);
}

#[tokio::test]
async fn a_class_that_comes_later_lets_the_pod_go() {
    let home = Home::new().await;
    home.create(&RESOURCE_SLICE, slice("gpus", &["gpu-0"]));
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    home.create(&RESOURCE_CLAIM, claim("one"));
    home.create(&POD, pod("train", "one"));
    let why = home.until("the event", || home.events("FailedScheduling").pop()).await;
    assert!(why.contains("device class gpu.nvidia.com does not exist"), "{why}");
    home.lab.apply_yaml(CLASSES).unwrap();
    home.until_phase("train", "Running").await;
}

#[tokio::test]
async fn a_failing_selector_is_named() {
    let home = cluster(1).await;
    let mut wanted = claim("one");
    wanted["spec"]["devices"]["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": "device.attributes['gpu.nvidia.com'].Uuid == 'x'"}}]);
    home.create(&RESOURCE_CLAIM, wanted);
    home.create(&POD, pod("train", "one"));
    let why = home.until("the event", || home.events("FailedScheduling").pop()).await;
    assert!(why.contains("claim default/one: selector #0: CEL runtime error"), "{why}");
    assert!(why.contains("no such key: Uuid"), "{why}");
}

#[tokio::test]
async fn pods_without_claims_need_a_node_only() {
    let home = Home::new().await;
    let mut idle = pod("idle", "none");
    idle["spec"] = json!({"containers": [{"name": "main", "image": "busybox"}], "nodeSelector": {"zone": "a"}});
    home.create(&POD, idle);
    let why = home.until("the event", || home.events("FailedScheduling").pop()).await;
    assert_eq!(
        why,
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    );
    let mut node = (*home.get(&NODES, super::support::NODE).unwrap()).clone();
    node["metadata"]["labels"]["zone"] = "a".into();
    let by = gpu_dra_lab::WriteOptions::by("test");
    let part = gpu_dra_lab::Subresource::Main;
    home.api().update(&NODES, ("", super::support::NODE), part, node, &by).unwrap();
    home.until_phase("idle", "Running").await;
    assert_eq!(home.lab.containers().len(), 1);
}

#[tokio::test]
async fn an_extended_resource_gets_a_claim_that_goes_with_the_pod() {
    let home = cluster(2).await;
    let driver = FakeDriver::new(&home);
    let _server = driver.serve(&home).await;
    let mut legacy = pod("legacy", "none");
    legacy["spec"] = json!({"containers": [
        {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
        {"name": "side", "image": "busybox"},
    ]});
    home.create(&POD, legacy);
    home.until_phase("legacy", "Running").await;
    let status = home.get(&POD, "legacy").unwrap()["status"]["extendedResourceClaimStatus"].clone();
    let name = status["resourceClaimName"].as_str().unwrap().to_owned();
    assert!(name.starts_with("legacy-extended-resources-"), "{name}");
    assert_eq!(
        status["requestMappings"],
        json!([{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}])
    );
    let containers = home.lab.containers();
    let of =
        |name: &str| containers.iter().find(|container| container.name == name).unwrap().clone();
    assert_eq!(of("main").device_nodes, ["/dev/gpu-0", "/dev/gpu-1"]);
    assert_eq!(of("side").device_nodes, Vec::<String>::new());
    home.api().delete(&POD, "default", "legacy", &DeleteOptions::default()).unwrap();
    home.until_gone(&RESOURCE_CLAIM, &name).await;
}

#[tokio::test]
async fn a_wrong_manifest_is_refused_with_its_place() {
    let home = Home::new().await;
    let broken = format!("{CLASSES}---\nkind: [\n");
    let err = home.lab.apply_yaml(&broken).unwrap_err().to_string();
    assert!(err.starts_with("document 5: the body is no YAML document"), "{err}");
    assert!(
        home.get(&DEVICE_CLASS, DRIVER).is_none(),
        "nothing of a file that can't be read is applied"
    );
    let err = home
        .lab
        .apply_yaml("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}")
        .unwrap_err();
    assert_eq!(err.to_string(), "document 1: no such kind here: apps/v1 Deployment");
    let wrong = CLASSES.replace("device.driver ==", "device.driver =");
    let err = home.lab.apply_yaml(&wrong).unwrap_err();
    assert_eq!(err.to_string(), "DeviceClass gpu.nvidia.com is refused");
}
