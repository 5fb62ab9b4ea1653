//! What it does when the API server is well.

use std::time::Duration;

use serde_json::json;

use crate::harness::{large_pool, pool, start};
use crate::server::Server;

#[tokio::test(start_paused = true)]
async fn first_publish_takes_one_list_one_get_and_one_create() {
    let server = Server::new();
    let began = tokio::time::Instant::now();
    let running = start(&server, pool(&["gpu-0", "gpu-1"]));
    running.published(&["gpu-0", "gpu-1"]).await;
    assert!(began.elapsed() < Duration::from_millis(5), "nothing is waited for");
    let mut verbs = server.take_verbs();
    verbs[..2].sort_unstable();
    assert_eq!(verbs, ["get", "list", "create", "watch"]);
    let slice = &server.slices()[0];
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "node-uid-1");
    assert_eq!(slice["metadata"]["generateName"], "00000-gpu.nvidia.com-node-1-");
    let status = running.status();
    assert_eq!((status.published_generation, status.devices, status.slices), (Some(1), 2, 1));
    assert_eq!(status.writes_total, 1);
}

#[tokio::test(start_paused = true)]
async fn gets_ready_before_the_pool_is_known() {
    let server = Server::new();
    let running = start(&server, None);
    let verbs = running.verbs_within(Duration::from_secs(1)).await;
    assert_eq!(verbs.len(), 3, "list, get and watch, but no write: {verbs:?}");
    assert!(!running.status().in_sync);
    running.want(pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    assert_eq!(server.take_verbs(), ["create"]);
}

#[tokio::test(start_paused = true)]
async fn only_our_slices_are_watched() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.in_sync().await;
    for call in server.calls().iter().filter(|call| ["list", "watch"].contains(&call.verb)) {
        let selector = "fieldSelector=spec.driver%3Dgpu.nvidia.com%2Cspec.nodeName%3Dnode-1";
        assert!(call.query.contains(selector), "{}", call.query);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_adopts_with_no_write() {
    let server = Server::new();
    let running = start(&server, large_pool(200));
    running.in_sync().await;
    let server = running.kill().await;
    assert_eq!(server.slices().len(), 4);
    let running = start(&server, large_pool(200));
    running.in_sync().await;
    let mut verbs = running.verbs_within(Duration::from_secs(60)).await;
    verbs.retain(|verb| *verb != "watch");
    assert_eq!(verbs, [""; 0]);
    assert_eq!(running.status().writes_total, 0);
    assert_eq!(running.status().published_generation, Some(1));
}

#[tokio::test(start_paused = true)]
async fn ten_quiet_minutes_cost_nothing_but_the_watch() {
    let server = Server::new();
    let running = start(&server, large_pool(200));
    running.in_sync().await;
    // The server ends watches at times; each is resumed where it was, without a list.
    let verbs = running.verbs_within(Duration::from_secs(600)).await;
    assert!(verbs.len() <= 3 && verbs.iter().all(|verb| *verb == "watch"), "{verbs:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_are_written_at_once_and_only_if_they_are_changes() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.take_verbs();
    let began = tokio::time::Instant::now();
    running.want(pool(&["gpu-0", "gpu-1"]));
    running.published(&["gpu-0", "gpu-1"]).await;
    assert!(began.elapsed() < Duration::from_millis(20));
    assert_eq!(server.take_verbs(), ["update"]);
    running.want(pool(&["gpu-0", "gpu-1"]));
    assert_eq!(running.verbs_within(Duration::from_secs(5)).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn own_deletes_are_not_taken_for_anothers() {
    let server = Server::new();
    let running = start(&server, large_pool(100));
    running.in_sync().await;
    server.take_verbs();
    running.want(pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.take_verbs(), ["update", "delete"], "the node is not looked up again");
}

#[tokio::test(start_paused = true)]
async fn deleted_by_someone_else_it_is_back_at_once() {
    let server = Server::new();
    let running = start(&server, large_pool(130));
    running.in_sync().await;
    server.take_verbs();
    let began = tokio::time::Instant::now();
    server.wipe();
    assert!(server.slices().is_empty());
    crate::harness::until("back", || server.slices().len() == 3).await;
    assert!(began.elapsed() < Duration::from_millis(20));
    // The node may be another one by now, so it is looked up again.
    assert_eq!(server.take_verbs(), ["get", "create", "create", "create"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_created_anew_becomes_the_owner() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.in_sync().await;
    server.set_node(Some("node-uid-2"));
    server.wipe();
    running.published(&["gpu-0"]).await;
    assert_eq!(server.slices()[0]["metadata"]["ownerReferences"][0]["uid"], "node-uid-2");
}

#[tokio::test(start_paused = true)]
async fn what_others_changed_is_repaired() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.modify(|slice| slice["spec"]["devices"] = json!([]));
    running.published(&["gpu-0"]).await;
    // A second slice of ours that nobody ordered goes.
    let stranger = server.slices()[0].clone();
    server.put("stranger", stranger);
    crate::harness::until("alone", || server.slices().len() == 1).await;
    running.published(&["gpu-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn against_a_rival_repairs_get_rare() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.take_verbs();
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(600) {
        if running.devices() == ["gpu-0"] {
            server.modify(|slice| slice["spec"]["devices"] = json!([{"name": "theirs"}]));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let updates = server.take_verbs().iter().filter(|verb| **verb == "update").count();
    assert!((10..50).contains(&updates), "{updates} repairs in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn stops_with_its_caller_and_leaves_the_slices() {
    let server = Server::new();
    let running = start(&server, pool(&["gpu-0"]));
    running.published(&["gpu-0"]).await;
    server.take_verbs();
    let (status, server) = (running.status.clone(), running.server.clone());
    drop(running);
    crate::harness::until("ended", || status.has_changed().is_err()).await;
    assert_eq!(server.take_verbs(), [""; 0]);
    assert_eq!(server.slices().len(), 1);
}
