//! Classes are applied, changed and deleted; other owners' are left alone; idle is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_dra_lab::WriteOptions;
use gpu_dra_lab::kinds::{DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE};
use serde_json::json;

use super::api::Fault;
use super::extra::GPU_CLASSES;
use super::world::{CLASSES, Cluster, Controller, api, is_lease, is_write, quiet, settings, until};

#[tokio::test]
async fn a_class_is_applied_changed_and_deleted() {
    let api = api();
    api.create(&DEVICE_CLASS, json!({"metadata": {"name": "theirs"}, "spec": {}}));
    api.declare("c", json!({"model": {"contains": ["H100"]}}));
    let controller = Controller::start(&api, settings("a"));
    let status = api.until_reason("c", "Applied", "Applied").await;
    assert_eq!(status["deviceClassName"], "c");
    let class = api.class("c").unwrap();
    assert_eq!(
        class["metadata"]["ownerReferences"][0]["uid"],
        api.gpu_class("c").unwrap()["metadata"]["uid"]
    );
    let uid = class["metadata"]["uid"].clone();

    api.declare(
        "c",
        json!({"model": {"contains": ["H200"]}, "extendedResourceName": "nvidia.com/big"}),
    );
    let class = until("it is changed", || {
        api.class("c").filter(|class| class["spec"]["extendedResourceName"] == "nvidia.com/big")
    })
    .await;
    assert!(class["spec"]["selectors"].to_string().contains("H200"));
    assert_eq!(class["metadata"]["uid"], uid, "changed, not made anew");
    until("the status is about the change", || {
        (api.gpu_class("c")?["status"]["observedGeneration"] == 2).then_some(())
    })
    .await;
    api.declare("c", json!({"model": {"contains": ["H200"]}}));
    until("a field that is declared no more goes", || {
        api.class("c").filter(|class| class["spec"].get("extendedResourceName").is_none())
    })
    .await;

    api.declare("c", json!({"profile": "1G.10GB"}));
    let status = api.until_reason("c", "Valid", "Invalid").await;
    assert_eq!(status["valid"], false);
    assert!(api.class("c").is_some(), "pods may rely on the last valid one");

    api.undeclare("c");
    until("it is gone", || api.class("c").is_none().then_some(())).await;
    assert!(api.class("theirs").is_some());
    controller.stop().await;
}

#[tokio::test]
async fn what_was_undeclared_while_nobody_ran_is_deleted_and_nothing_else() {
    let api = api();
    for name in ["a", "b", "orphaned"] {
        api.declare(name, json!({}));
    }
    let controller = Controller::start(&api, settings("one"));
    for name in ["a", "b", "orphaned"] {
        api.until_reason(name, "Applied", "Applied").await;
    }
    controller.stop().await;
    for name in ["a", "orphaned"] {
        api.undeclare(name);
    }
    // What kubectl delete --cascade=orphan does.
    let patch = (gpu_dra_lab::PatchType::Merge, json!({"metadata": {"ownerReferences": null}}));
    let main = gpu_dra_lab::Subresource::Main;
    let by = WriteOptions::by("gc");
    api.lab.patch(&DEVICE_CLASS, ("", "orphaned"), main, patch, &by).unwrap();
    let _controller = Controller::start(&api, settings("two"));
    until("a is gone", || api.class("a").is_none().then_some(())).await;
    quiet(&api).await;
    assert!(api.class("b").is_some() && api.class("orphaned").is_some());
}

#[tokio::test]
async fn a_foreign_class_is_left_alone_until_it_goes() {
    let api = api();
    let theirs = api.create(&DEVICE_CLASS, json!({"metadata": {"name": "c"}, "spec": {}}));
    api.declare("c", json!({}));
    let _controller = Controller::start(&api, settings("a"));
    let status = api.until_reason("c", "Applied", "Conflict").await;
    let message = status["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains("kept by helm"), "{message}");
    assert!(status.get("deviceClassName").is_none());
    quiet(&api).await;
    assert_eq!(api.class("c").unwrap(), theirs);
    assert_eq!(api.calls(|call| is_write(call) && call.path.starts_with(CLASSES)), []);
    api.remove(&DEVICE_CLASS, "c");
    api.until_reason("c", "Applied", "Applied").await;
    assert!(api.class("c").is_some());
}

/// A class that somebody else keeps is never written, but an Event says that it isn't guarded:
/// once, also when the next leader looks.
#[tokio::test]
async fn another_owners_class_without_driver_guard_gets_one_event() {
    let api = api();
    let spec = json!({"selectors": [{"cel": {"expression":
        "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"}}]});
    api.create(&DEVICE_CLASS, json!({"metadata": {"name": "hopper"}, "spec": spec}));
    let events = |api: &Arc<super::api::Api>| {
        api.calls(|call| call.verb == "create" && call.path.ends_with("/events"))
    };
    for leader in 1..=2 {
        let controller = Controller::start(&api, settings("a"));
        until("an event", || (events(&api).len() == leader).then_some(())).await;
        quiet(&api).await;
        controller.stop().await;
    }
    let every = gpu_dra_lab::Selector::default();
    let (list, _) = api.lab.list(&gpu_dra_lab::kinds::EVENT, "default", &every);
    let [event] = list.as_slice() else { panic!("{list:?}") };
    assert_eq!(event["involvedObject"]["name"], "hopper");
    assert_eq!((&event["reason"], &event["type"]), (&json!("Unguarded"), &json!("Warning")));
    let words = event["message"].as_str().unwrap();
    assert!(words.contains("put device.driver == 'gpu.nvidia.com' && before it"), "{words}");
    assert_eq!(api.calls(|call| is_write(call) && call.path.starts_with(CLASSES)), []);
}

/// Between our look and our write somebody creates a class of that name, of which no field
/// contradicts ours: server-side apply merges the two.
#[tokio::test]
async fn a_foreign_class_that_comes_at_the_last_moment_is_given_back() {
    let api = api();
    let lab = api.lab.clone();
    let mut first = true;
    api.on_call(move |call| {
        let is_apply = call.verb == "patch" && call.path.ends_with("/gpu.nvidia.com");
        if is_apply && std::mem::take(&mut first) {
            let theirs =
                json!({"metadata": {"name": "gpu.nvidia.com", "labels": {"a": "b"}}, "spec": {}});
            lab.create(&DEVICE_CLASS, "", theirs, &WriteOptions::by("helm")).unwrap();
        }
        None
    });
    let settings = gpu_dra_controller::Settings { standard_classes: true, ..settings("a") };
    let _controller = Controller::start(&api, settings);
    until("the others are made", || api.class("monitor.gpu.nvidia.com")).await;
    quiet(&api).await;
    let class = api.class("gpu.nvidia.com").unwrap();
    assert_eq!(class["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(class["spec"], json!({}));
    assert_eq!(class["metadata"]["managedFields"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_change_by_somebody_else_is_reported_not_fought() {
    let api = api();
    api.declare("c", json!({"model": {"contains": ["H100"]}}));
    let _controller = Controller::start(&api, settings("a"));
    api.until_reason("c", "Applied", "Applied").await;
    let expression = "device.driver == 'gpu.nvidia.com'";
    let patch = json!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
    let patch = (gpu_dra_lab::PatchType::Merge, patch);
    let main = gpu_dra_lab::Subresource::Main;
    let by = WriteOptions::by("kubectl-edit");
    api.lab.patch(&DEVICE_CLASS, ("", "c"), main, patch, &by).unwrap();
    let status = api.until_reason("c", "Applied", "Conflict").await;
    assert!(status["conditions"][1]["message"].as_str().unwrap().contains("kubectl-edit"));
    quiet(&api).await;
    let class = api.class("c").unwrap();
    assert_eq!(class["spec"]["selectors"][0]["cel"]["expression"], expression);
    let patches = api.calls(|call| call.verb == "patch" && call.path.starts_with(CLASSES));
    assert_eq!(patches.len(), 1, "the one that made it: {patches:?}");
}

#[tokio::test]
async fn standard_classes_are_made_and_others_of_their_names_left_alone() {
    let api = api();
    let theirs =
        api.create(&DEVICE_CLASS, json!({"metadata": {"name": "mig.nvidia.com"}, "spec": {}}));
    let settings = gpu_dra_controller::Settings { standard_classes: true, ..settings("a") };
    let _controller = Controller::start(&api, settings);
    for name in ["gpu.nvidia.com", "vfio.gpu.nvidia.com", "monitor.gpu.nvidia.com"] {
        until(name, || api.class(name)).await;
    }
    assert_eq!(
        api.class("gpu.nvidia.com").unwrap()["spec"]["extendedResourceName"],
        "nvidia.com/gpu"
    );
    quiet(&api).await;
    assert_eq!(api.class("mig.nvidia.com").unwrap(), theirs);
    api.remove(&DEVICE_CLASS, "gpu.nvidia.com");
    until("it is made again", || api.class("gpu.nvidia.com")).await;
    api.declare("mig.nvidia.com", json!({"type": "mig"}));
    api.until_reason("mig.nvidia.com", "Applied", "Conflict").await;
}

#[tokio::test]
async fn devices_nodes_and_what_is_free_are_told() {
    let api = api();
    api.declare("h100", json!({"model": {"names": ["NVIDIA H100 80GB HBM3"]}}));
    let _controller = Controller::start(&api, settings("a"));
    let none = api.until_reason("h100", "Matching", "NoDevices").await;
    assert_eq!(none["matchingDevices"], 0);
    let counts = |devices: u64, nodes: u64, free: u64| {
        let api = api.clone();
        async move {
            until(&format!("{devices} on {nodes}, {free} free"), || {
                let status = api.gpu_class("h100")?["status"].clone();
                let is = status["matchingDevices"] == devices
                    && status["matchingNodes"] == nodes
                    && status["freeDevices"] == free;
                is.then_some(())
            })
            .await;
        }
    };
    api.publish("n1", &["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"]);
    api.publish("n2", &["NVIDIA H100 80GB HBM3", "NVIDIA L4"]);
    counts(3, 2, 3).await;
    api.take("one", "n1", "gpu-0");
    counts(3, 2, 2).await;
    api.remove(&RESOURCE_CLAIM, "one");
    counts(3, 2, 3).await;
    api.remove(&RESOURCE_SLICE, "n2");
    counts(2, 1, 2).await;
}

#[tokio::test]
async fn counts_alone_are_not_told_with_every_pod() {
    let api = api();
    api.declare("c", json!({}));
    api.publish("n", &["NVIDIA L4"; 8]);
    let settings = gpu_dra_controller::Settings {
        count_pace: std::time::Duration::from_secs(2),
        ..settings("a")
    };
    let _controller = Controller::start(&api, settings);
    api.until_reason("c", "Matching", "DevicesFound").await;
    let told = || api.calls(|call| is_write(call) && call.path.starts_with(GPU_CLASSES)).len();
    let before = told();
    for index in 0..8 {
        api.take(&format!("claim-{index}"), "n", &format!("gpu-{index}"));
        tokio::time::sleep(std::time::Duration::from_millis(120)).await;
    }
    until("the last count is told", || {
        (api.gpu_class("c")?["status"]["freeDevices"] == 0).then_some(())
    })
    .await;
    assert!(told() - before <= 2, "{} writes for eight claims", told() - before);
}

#[tokio::test]
async fn the_fleet_gets_classes_on_request_and_loses_them_when_it_is_withdrawn() {
    let api = api();
    api.publish("n", &["NVIDIA L4"]);
    let with = gpu_dra_controller::Settings { fleet_classes: true, ..settings("a") };
    let controller = Controller::start(&api, with);
    until("its class", || api.class("nvidia-l4.gpu.nvidia.com")).await;
    api.remove(&RESOURCE_SLICE, "n");
    quiet(&api).await;
    assert!(api.class("nvidia-l4.gpu.nvidia.com").is_some(), "nodes come and go");
    controller.stop().await;
    let _controller = Controller::start(&api, settings("a"));
    until("it is gone", || api.class("nvidia-l4.gpu.nvidia.com").is_none().then_some(())).await;
}

/// A class that the API server refuses, though our own check let it through.
#[tokio::test]
async fn a_refused_class_is_told_and_not_tried_again() {
    let api = api();
    api.declare("c", json!({}));
    api.on_call(|call| {
        let is_patch = call.verb == "patch" && call.path.starts_with(CLASSES);
        is_patch.then_some(Fault::Refuse(422, "Invalid"))
    });
    let _controller = Controller::start(&api, settings("a"));
    let status = api.until_reason("c", "Applied", "Refused").await;
    assert!(status["conditions"][1]["message"].as_str().unwrap().contains("as ordered"));
    quiet(&api).await;
    let patches = api.calls(|call| call.verb == "patch" && call.path.starts_with(CLASSES));
    assert_eq!(patches.len(), 1);
}

/// What an admission policy, or a webhook that is down, does to one class is that class's.
#[tokio::test]
async fn what_is_denied_of_one_class_keeps_no_other_waiting_and_is_tried_again() {
    for (code, reason) in [(403, "Forbidden"), (500, "InternalError"), (422, "Invalid")] {
        let api = api();
        for name in ["a", "left-over"] {
            api.declare(name, json!({}));
        }
        let controller = Controller::start(&api, settings("a"));
        api.until_reason("left-over", "Applied", "Applied").await;
        controller.stop().await;
        api.undeclare("left-over");

        let denied = Arc::new(AtomicBool::new(true));
        let is_denied = Arc::clone(&denied);
        api.on_call(move |call| {
            let of = |verb, name| call.verb == verb && call.path == format!("{CLASSES}/{name}");
            let is_it = of("patch", "b") || of("delete", "left-over");
            (is_it && is_denied.load(Ordering::SeqCst)).then_some(Fault::Refuse(code, reason))
        });
        api.declare("b", json!({}));
        api.declare("c", json!({}));
        let _controller = Controller::start(&api, settings("a"));
        api.until_reason("c", "Applied", "Applied").await;
        if code == 403 {
            api.until_reason("b", "Applied", "Refused").await;
        }
        assert!(api.class("b").is_none());
        assert!(api.class("left-over").is_some());

        denied.store(false, Ordering::SeqCst);
        until("it is deleted", || api.class("left-over").is_none().then_some(())).await;
        if code != 422 {
            api.until_reason("b", "Applied", "Applied").await;
        }
    }
}

#[tokio::test]
async fn a_field_that_the_server_drops_is_told_and_not_tried_again() {
    let api = api();
    api.lab.faults().drop_field("DeviceClassSpec", "extendedResourceName");
    api.declare("c", json!({"extendedResourceName": "nvidia.com/big"}));
    let _controller = Controller::start(&api, settings("a"));
    api.until_reason("c", "Applied", "FieldDropped").await;
    quiet(&api).await;
    let patches = api.calls(|call| call.verb == "patch" && call.path.starts_with(CLASSES));
    assert_eq!(patches.len(), 1);
}

#[tokio::test]
async fn idle_it_asks_nothing_but_its_watches_and_the_lease() {
    let api = api();
    api.publish("n", &["NVIDIA L4"]);
    for index in 0..20 {
        api.declare(&format!("c{index}"), json!({"model": {"contains": ["L4"]}}));
    }
    let settings = gpu_dra_controller::Settings {
        standard_classes: true,
        fleet_classes: true,
        ..settings("a")
    };
    let _controller = Controller::start(&api, settings);
    for index in 0..20 {
        api.until_reason(&format!("c{index}"), "Applied", "Applied").await;
    }
    quiet(&api).await;
    let watches = api.calls(|call| call.verb == "watch");
    assert_eq!(watches.len(), 4, "{watches:?}");
    let before = api.count();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let since = api.calls(|_| true).split_off(before);
    let other: Vec<_> = since.iter().filter(|call| !is_lease(call)).collect();
    assert!(other.is_empty(), "{other:?}");
    assert!(since.iter().all(|call| call.verb == "update"), "{since:?}");
    assert!((20..=31).contains(&since.len()), "one renewal a period: {}", since.len());
}
