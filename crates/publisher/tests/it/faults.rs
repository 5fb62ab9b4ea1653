//! What it does when the API server is not well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpu_dra_publisher::PublishError;
use gpu_dra_slices::{DesiredPool, Feature};
use k8s_openapi::api::resource::v1::{
    Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::harness::{Running, device, large_pool, pool, start, until};
use crate::server::{Call, Fault, Server, status};

/// The first `times` calls of this verb meet the fault.
fn first(
    times: usize,
    verb: &'static str,
    fault: fn() -> Fault,
) -> impl FnMut(&Call) -> Option<Fault> {
    let met = AtomicUsize::new(0);
    move |call| (call.verb == verb && met.fetch_add(1, Ordering::Relaxed) < times).then(fault)
}

fn count(verbs: &[&str], verb: &str) -> usize {
    verbs.iter().filter(|v| **v == verb).count()
}

async fn failing(running: &Running, is: fn(&PublishError) -> bool) -> Arc<PublishError> {
    until("the error", || running.status().last_error.is_some_and(|error| is(&error))).await;
    running.status().last_error.unwrap()
}

#[tokio::test(start_paused = true)]
async fn server_away_then_back() {
    let server = Server::new();
    server.on_call(|_| Some(Fault::Unreachable));
    let running = start(&server, pool(&["gpu-0"]));
    let verbs = running.verbs_within(Duration::from_secs(600)).await;
    assert!((20..200).contains(&verbs.len()), "neither hammering nor giving up: {}", verbs.len());
    assert!(running.status().watch_error.is_some());
    server.heal();
    running.published(&["gpu-0"]).await;
    until("all well", || running.status().watch_error.is_none()).await;
    assert!(running.status().last_error.is_none());
}

#[tokio::test(start_paused = true)]
async fn server_restarts_under_a_published_pool() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.take_verbs();
    server.on_call(|_| Some(Fault::Unreachable));
    server.cut_watches();
    until("noticed", || running.status().watch_error.is_some()).await;
    assert!(running.status().in_sync, "the slices are still there");
    server.modify(|slice| slice["spec"]["devices"] = json!([]));
    server.heal();
    // What happened meanwhile is seen, since the watch goes on where it was.
    running.published(&["gpu-0"]).await;
    until("all well", || running.status().watch_error.is_none()).await;
    assert_eq!(count(&server.take_verbs(), "list"), 0);
}

#[tokio::test(start_paused = true)]
async fn watch_cut_misses_nothing() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.cut_watches();
    server.wipe();
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn history_gone_means_one_new_list() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.take_verbs();
    server.compact();
    until("a list", || count(&server.take_verbs(), "list") == 1).await;
    running.in_sync().await;
    assert_eq!(running.status().writes_total, 1, "nothing differs, nothing is written");
    // While nobody was told, the slice went: the list shows it.
    server.cut_watches();
    server.wipe();
    server.compact();
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_refused_by_http_status_starts_with_a_list() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    for code in [410, 504] {
        // As after a restored backup: what was is unknown until a list has been made.
        let mut listed = false;
        server.on_call(move |call| {
            listed |= call.verb == "list";
            (call.verb == "watch" && !listed).then(|| Fault::Answer(code, status(code, "Expired")))
        });
        server.take_verbs();
        server.cut_watches();
        until("watching again", || server.watches() == 1).await;
        assert_eq!(server.take_verbs(), ["watch", "list", "watch"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn conflict_is_settled_by_a_list() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.take_verbs();
    server.on_call(first(1, "update", || Fault::Answer(409, status(409, "Conflict"))));
    running.want(pool(&["gpu-0", "gpu-1"]));
    running.published(&["gpu-0", "gpu-1"]).await;
    let verbs = server.take_verbs();
    assert_eq!((count(&verbs, "update"), count(&verbs, "list")), (2, 1), "{verbs:?}");
    assert!(running.status().last_error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_was_lost_is_not_repeated() {
    let server = Server::new();
    server.on_call(first(1, "create", || Fault::AnswerLost));
    let running = start(&server, large_pool(100));
    until("in sync", || running.status().in_sync).await;
    let verbs = running.verbs_within(Duration::from_secs(60)).await;
    assert_eq!(server.slices().len(), 2);
    assert_eq!(count(&verbs, "delete"), 0, "there was never one too many");
    assert_eq!(running.status().writes_total, 1, "the first of the two was found by a list");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_server_is_given_up_on_and_asked_again() {
    let server = Server::new();
    server.on_call(first(1, "create", || Fault::Hang));
    let running = start(&server, pool(&["gpu-0"]));
    let error = failing(&running, |error| matches!(error, PublishError::Timeout { .. })).await;
    assert!(error.to_string().contains("30s"), "{error}");
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_node_lookup_is_asked_again() {
    let server = Server::new();
    server.on_call(first(1, "get", || Fault::Hang));
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn refused_objects_are_named_and_not_sent_over_and_over() {
    let server = Server::new();
    server.on_call(|call| {
        let mut answer = status(422, "Invalid");
        answer["details"] = json!({"causes": [{"field": "spec.devices[0].name"}]});
        (call.verb == "create").then_some(Fault::Answer(422, answer))
    });
    let running = start(&server, pool(&["gpu-0"]));
    let error = failing(&running, |error| matches!(error, PublishError::Refused { .. })).await;
    assert_eq!(
        error.to_string(),
        "create resourceslice 00000-gpu.nvidia.com-node-1-: refused at spec.devices[0].name; \
         please report it with the inventory"
    );
    let verbs = running.verbs_within(Duration::from_secs(3600)).await;
    let creates = count(&verbs, "create");
    assert!((5..70).contains(&creates), "{creates} attempts in an hour");
    // Another pool is tried at once.
    server.heal();
    let began = tokio::time::Instant::now();
    running.want(pool(&["gpu-1"]));
    running.published(&["gpu-1"]).await;
    assert!(began.elapsed() < Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_would_refuse_is_not_sent() {
    let server = Server::new();
    let mut bad = device("gpu-0");
    let version =
        DeviceAttribute { version: Some("570.124.06".to_owned()), ..DeviceAttribute::default() };
    bad.attributes = Some([("driverVersion".to_owned(), version)].into());
    let running = start(&server, DesiredPool::new(vec![bad], Vec::new(), Vec::new()));
    let error = failing(&running, |error| matches!(error, PublishError::Invalid { .. })).await;
    assert!(error.to_string().contains("spec.devices[gpu-0].attributes[driverVersion]"), "{error}");
    let verbs = running.verbs_within(Duration::from_secs(600)).await;
    assert_eq!(count(&verbs, "create"), 0);
    running.want(pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_named_and_taken_up_when_granted() {
    for verb in ["list", "get", "create"] {
        let server = Server::new();
        server.on_call(move |call| {
            (call.verb == verb).then(|| Fault::Answer(403, status(403, "Forbidden")))
        });
        let running = start(&server, pool(&["gpu-0"]));
        let is_forbidden = |error: &PublishError| matches!(error, PublishError::Forbidden { .. });
        until(verb, || {
            let status = running.status();
            [status.last_error, status.watch_error].iter().flatten().any(|e| is_forbidden(e))
        })
        .await;
        let verbs = running.verbs_within(Duration::from_secs(60)).await;
        assert!(verbs.len() < 60, "{verb}: {verbs:?}");
        server.heal();
        running.published(&["gpu-0"]).await;
        assert!(running.status().last_error.is_none(), "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_node_is_named_and_waited_for() {
    let server = Server::new();
    server.set_node(None);
    let running = start(&server, pool(&["gpu-0"]));
    let error = failing(&running, |error| matches!(error, PublishError::NoSuchNode { .. })).await;
    assert!(error.to_string().contains("node-1"), "{error}");
    server.set_node(Some("late"));
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn other_errors_pass_and_the_servers_wish_is_kept() {
    for code in [401, 429, 500, 503] {
        let server = Server::new();
        server.on_call(first(
            3,
            "create",
            match code {
                401 => || Fault::Answer(401, status(401, "Unauthorized")),
                429 => || {
                    let mut answer = status(429, "TooManyRequests");
                    answer["details"] = json!({"retryAfterSeconds": 20});
                    Fault::Answer(429, answer)
                },
                500 => || Fault::Answer(500, status(500, "InternalError")),
                _ => || Fault::Answer(503, status(503, "ServiceUnavailable")),
            },
        ));
        let began = tokio::time::Instant::now();
        let running = start(&server, pool(&["gpu-0"]));
        running.published(&["gpu-0"]).await;
        if code == 429 {
            assert!(began.elapsed() >= Duration::from_secs(60), "three times 20 s");
        }
        assert_eq!(running.status().failures_total, 3, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_reported_once_and_not_fought_over() {
    let server = Server::new();
    server.on_call(|_| {
        Some(Fault::Rewrite(|object| {
            if let Some(attributes) = object.pointer_mut("/spec/devices/0/attributes") {
                attributes.as_object_mut().unwrap().remove("index");
            }
        }))
    });
    let mut gpu = device("gpu-0");
    let number = || DeviceAttribute { int: Some(1), ..DeviceAttribute::default() };
    gpu.attributes =
        Some([("index".to_owned(), number()), ("gpuModuleID".to_owned(), number())].into());
    let running = start(&server, DesiredPool::new(vec![gpu], Vec::new(), Vec::new()));
    running.published(&["gpu-0"]).await;
    let dropped: Vec<_> = running.status().dropped_fields.iter().map(ToString::to_string).collect();
    assert_eq!(dropped, ["spec.devices[gpu-0].attributes.index"]);
    // A look for another reason doesn't send the field again.
    server.modify(|slice| slice["metadata"]["labels"] = json!({"touched": "yes"}));
    let verbs = running.verbs_within(Duration::from_secs(600)).await;
    assert!(verbs.iter().all(|verb| *verb == "watch"), "{verbs:?}");
    assert_eq!(running.status().writes_total, 1);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_always_undoes_something_is_not_hammered() {
    let server = Server::new();
    server.on_call(|_| {
        Some(Fault::Rewrite(|object| {
            if let Some(metadata) = object.get_mut("metadata") {
                metadata["ownerReferences"] = json!([]);
            }
        }))
    });
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    let verbs = running.verbs_within(Duration::from_secs(600)).await;
    assert!(verbs.iter().all(|verb| *verb == "watch"), "{verbs:?}");
}

fn drop_counters(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.remove("sharedCounters");
    for device in spec.get_mut("devices").and_then(Value::as_array_mut).into_iter().flatten() {
        device.as_object_mut().unwrap().remove("consumesCounters");
    }
}

/// One GPU whole and in two halves, which must not be allocated together.
fn partitioned() -> DesiredPool {
    let counters = || {
        let value = Quantity("2".to_owned());
        [("memory".to_owned(), Counter { value })].into()
    };
    let part = |name: &str| Device {
        consumes_counters: Some(vec![DeviceCounterConsumption {
            counter_set: "set".to_owned(),
            counters: counters(),
            ..DeviceCounterConsumption::default()
        }]),
        ..device(name)
    };
    let set = CounterSet { name: "set".to_owned(), counters: counters() };
    let devices = vec![part("gpu-0"), part("gpu-0-half-0"), part("gpu-0-half-1")];
    DesiredPool::new(devices, vec![set], Vec::new())
}

#[tokio::test(start_paused = true)]
async fn partitions_are_never_published_without_their_counters() {
    let server = Server::new();
    server.on_call(|_| Some(Fault::Rewrite(drop_counters)));
    let running = start(&server, partitioned());
    let mut seen = Vec::new();
    until("in sync", || {
        seen.push(running.devices());
        running.status().in_sync
    })
    .await;
    assert!(seen.iter().all(|devices| !devices.contains(&"gpu-0-half-0".to_owned())), "{seen:?}");
    running.published(&["gpu-0"]).await;
    assert_eq!(running.status().missing_features, [Feature::SharedCounters]);

    // The server is upgraded under us: everything is tried again.
    server.on_call(|_| Some(Fault::Unreachable));
    server.cut_watches();
    until("noticed", || running.status().watch_error.is_some()).await;
    server.heal();
    running.published(&["gpu-0", "gpu-0-half-0", "gpu-0-half-1"]).await;
    assert_eq!(running.status().missing_features, []);
    assert_eq!(server.slices().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sick_gpu_is_not_offered_where_taints_are_dropped() {
    let server = Server::new();
    server.on_call(|_| {
        Some(Fault::Rewrite(|object| {
            let devices = object.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
            for device in devices.into_iter().flatten() {
                device.as_object_mut().unwrap().remove("taints");
            }
        }))
    });
    let mut sick = device("gpu-0");
    sick.taints = Some(vec![DeviceTaint {
        key: "gpu.nvidia.com/xid".to_owned(),
        effect: "NoExecute".to_owned(),
        ..DeviceTaint::default()
    }]);
    let devices = vec![sick, device("gpu-1")];
    let running = start(&server, DesiredPool::new(devices, Vec::new(), Vec::new()));
    running.published(&["gpu-1"]).await;
    assert_eq!(running.status().missing_features, [Feature::Taints]);
}
