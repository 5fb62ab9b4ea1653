//! One leads: the lease is lost in the middle of a write, given up, or out of reach; the API
//! server comes back with another world.

use std::sync::Arc;
use std::time::Duration;

use gpu_dra_lab::WriteOptions;
use gpu_dra_lab::kinds::{DEVICE_CLASS, RESOURCE_SLICE, by_path};
use serde_json::json;
use tokio::sync::Notify;

use super::api::{Api, Fault};
use super::world::{CLASSES, Cluster, Controller, api, is_write, quiet, settings, until};

fn holder(api: &Arc<Api>) -> Option<String> {
    let kind = by_path("coordination.k8s.io", "v1", "leases").unwrap();
    let lease = api.lab.get(kind, "gpu-dra", "gpu-dra-controller").ok()?;
    Some(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}

/// Writes another holder into the lease, as one does that thinks it has run out.
fn steal(api: &Arc<Api>, by: &str) {
    let kind = by_path("coordination.k8s.io", "v1", "leases").unwrap();
    let patch = (gpu_dra_lab::PatchType::Merge, json!({"spec": {"holderIdentity": by}}));
    let main = gpu_dra_lab::Subresource::Main;
    let at = ("gpu-dra", "gpu-dra-controller");
    api.lab.patch(kind, at, main, patch, &WriteOptions::by(by)).unwrap();
}

#[tokio::test]
async fn a_leader_that_loses_the_lease_in_a_write_writes_no_more() {
    let api = api();
    for index in 0..5 {
        api.declare(&format!("c{index}"), json!({}));
    }
    let stuck = Arc::new(Notify::new());
    let wait_for = stuck.clone();
    api.on_call(move |call| {
        let second = call.by == "a" && call.verb == "patch" && call.path.ends_with("/c1");
        second.then(|| Fault::WaitFor(wait_for.clone()))
    });
    let _a = Controller::start(&api, settings("a"));
    let is_patch_by = |by: &'static str| {
        move |call: &super::api::Call| {
            call.by == by && is_write(call) && call.path.starts_with(CLASSES)
        }
    };
    until("a is in its second write", || (api.calls(is_patch_by("a")).len() == 2).then_some(()))
        .await;
    steal(&api, "b");
    let b = Controller::start(&api, settings("b"));
    // b already is the holder by name and goes on at once; a has to notice.
    for index in 0..5 {
        api.until_reason(&format!("c{index}"), "Applied", "Applied").await;
    }
    stuck.notify_waiters();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(holder(&api).as_deref(), Some("b"));
    assert_eq!(api.calls(is_patch_by("a")).len(), 2, "not one write after the lease was lost");
    for index in 0..5 {
        assert!(api.class(&format!("c{index}")).is_some());
    }
    // And the loser takes over when the winner dies.
    b.kill();
    api.on_call(|_| None);
    api.declare("late", json!({}));
    api.until_reason("late", "Applied", "Applied").await;
    assert_eq!(holder(&api).as_deref(), Some("a"));
}

#[tokio::test]
async fn a_leader_out_of_reach_of_the_lease_stops_before_another_begins() {
    let api = api();
    let _a = Controller::start(&api, settings("a"));
    until("a leads", || (holder(&api)? == "a").then_some(())).await;
    quiet(&api).await;
    // From now on a reaches everything but the lease.
    api.on_call(|call| {
        let cut = call.by == "a" && call.path.contains("/leases/");
        cut.then_some(Fault::Refuse(503, "ServiceUnavailable"))
    });
    let _b = Controller::start(&api, settings("b"));
    until("b leads", || (holder(&api)? == "b").then_some(())).await;
    let before = api.count();
    api.declare("c", json!({}));
    api.until_reason("c", "Applied", "Applied").await;
    quiet(&api).await;
    let since = api.calls(|_| true).split_off(before);
    let by_a: Vec<_> =
        since.iter().filter(|call| call.by == "a" && !call.path.contains("/leases")).collect();
    assert!(by_a.is_empty(), "a no longer leads: {by_a:?}");
}

#[tokio::test]
async fn a_lease_given_up_is_taken_at_once() {
    let api = api();
    let timing = gpu_dra_controller::LeaseTiming {
        duration: Duration::from_secs(60),
        deadline: Duration::from_secs(40),
        period: Duration::from_millis(100),
    };
    let slow = |name: &str| gpu_dra_controller::Settings { lease: timing, ..settings(name) };
    let a = Controller::start(&api, slow("a"));
    until("a leads", || (holder(&api)? == "a").then_some(())).await;
    let _b = Controller::start(&api, slow("b"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(holder(&api).as_deref(), Some("a"), "b waits");
    a.stop().await;
    until("b leads", || (holder(&api)? == "b").then_some(())).await;
}

#[tokio::test]
async fn the_api_server_comes_back_with_another_world() {
    // Away for less than the lease's deadline, and for longer.
    for away in [Duration::from_millis(200), Duration::from_millis(1_500)] {
        let api = api();
        for name in ["stays", "goes", "changes"] {
            api.declare(name, json!({}));
        }
        api.publish("n1", &["NVIDIA L4"]);
        let _controller = Controller::start(&api, settings("a"));
        for name in ["stays", "goes", "changes"] {
            api.until_reason(name, "Matching", "DevicesFound").await;
        }
        quiet(&api).await;
        api.go();
        tokio::time::sleep(away).await;
        api.undeclare("goes");
        api.declare("changes", json!({"model": {"contains": ["H100"]}}));
        api.declare("comes", json!({}));
        api.remove(&DEVICE_CLASS, "stays");
        api.remove(&RESOURCE_SLICE, "n1");
        api.publish("n2", &["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"]);
        api.come_back();
        for name in ["stays", "changes", "comes"] {
            until(&format!("{name} is right"), || {
                let status = api.gpu_class(name)?["status"].clone();
                let is = status["matchingDevices"] == 2 && status["matchingNodes"] == 1;
                (is && api.class(name).is_some()).then_some(())
            })
            .await;
        }
        until("goes is gone", || api.class("goes").is_none().then_some(())).await;
        let changed = api.class("changes").unwrap();
        assert!(changed["spec"]["selectors"].to_string().contains("H100"));
        quiet(&api).await;
    }
}

#[tokio::test]
async fn without_the_custom_resource_the_standard_classes_are_kept() {
    let api = api();
    api.on_call(|call| call.path.contains("gpuclasses").then_some(Fault::Refuse(404, "NotFound")));
    let with = gpu_dra_controller::Settings { standard_classes: true, ..settings("a") };
    let _controller = Controller::start(&api, with);
    until("a standard class", || api.class("gpu.nvidia.com")).await;
    // It is installed later.
    api.on_call(|_| None);
    api.declare("c", json!({}));
    api.until_reason("c", "Applied", "Applied").await;
}
