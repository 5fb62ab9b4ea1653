//! Watches over HTTP and in process: what they tell, and when they end.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use gpu_dra_lab::kinds::RESOURCE_SLICE;
use gpu_dra_lab::{DeleteOptions, Subresource, WriteOptions};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::support::{Home, slice};

fn seen(event: &WatchEvent<ResourceSlice>) -> String {
    let name = |slice: &ResourceSlice| slice.metadata.name.clone().unwrap();
    match event {
        WatchEvent::Added(slice) => format!("+{}", name(slice)),
        WatchEvent::Modified(slice) => format!("~{}", name(slice)),
        WatchEvent::Deleted(slice) => format!("-{}", name(slice)),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

async fn take(home: &Home, params: &WatchParams, version: &str, count: usize) -> Vec<String> {
    let slices: Api<ResourceSlice> = Api::all(home.lab.client());
    let stream = slices.watch(params, version).await.unwrap();
    let events: Vec<_> = stream.take(count).try_collect().await.unwrap();
    events.iter().map(seen).collect()
}

fn retarget(home: &Home, name: &str, labels: Value) {
    let mut object = (*home.get(&RESOURCE_SLICE, name).unwrap()).clone();
    object["metadata"]["labels"] = labels;
    let by = WriteOptions::by("test");
    home.api().update(&RESOURCE_SLICE, ("", name), Subresource::Main, object, &by).unwrap();
}

#[tokio::test]
async fn a_watch_tells_what_was_there_and_what_comes() {
    let home = Home::new().await;
    home.create(&RESOURCE_SLICE, slice("a", &[]));
    let from = home.create(&RESOURCE_SLICE, slice("b", &[]))["metadata"]["resourceVersion"].clone();
    let from = from.as_str().unwrap();
    retarget(&home, "a", json!({"x": "1"}));
    home.api().delete(&RESOURCE_SLICE, "", "b", &DeleteOptions::default()).unwrap();
    let all = WatchParams::default();
    assert_eq!(take(&home, &all, "0", 1).await, ["+a"]);
    assert_eq!(take(&home, &all, from, 2).await, ["~a", "-b"]);
    let initial = WatchParams::default().initial_events();
    assert_eq!(take(&home, &initial, "", 2).await, ["+a", "bookmark"]);
}

#[tokio::test]
async fn a_selector_turns_changes_into_coming_and_going() {
    let home = Home::new().await;
    let from = home.create(&RESOURCE_SLICE, slice("a", &[]))["metadata"]["resourceVersion"].clone();
    retarget(&home, "a", json!({"x": "1"}));
    retarget(&home, "a", json!({"x": "1", "y": "2"}));
    retarget(&home, "a", json!({"x": "2"}));
    let marked = WatchParams::default().labels("x=1");
    assert_eq!(take(&home, &marked, from.as_str().unwrap(), 3).await, ["+a", "~a", "-a"]);
}

#[tokio::test]
async fn forgotten_changes_are_gone() {
    let home = Home::new().await;
    let from = home.create(&RESOURCE_SLICE, slice("a", &[]))["metadata"]["resourceVersion"].clone();
    retarget(&home, "a", json!({"x": "1"}));
    home.api().compact();
    let all = WatchParams::default();
    assert_eq!(take(&home, &all, from.as_str().unwrap(), 1).await, ["error 410"]);
}

#[tokio::test]
async fn a_watch_ends_at_its_time() {
    let home = Home::new().await;
    let params = WatchParams::default().timeout(1);
    let slices: Api<ResourceSlice> = Api::all(home.lab.client());
    let stream = slices.watch(&params, "0").await.unwrap();
    let all = tokio::time::timeout(Duration::from_secs(10), stream.collect::<Vec<_>>()).await;
    assert_eq!(all.unwrap().len(), 0);
}

/// kube's watcher, as controllers use it, over the two ways to list and through all troubles.
async fn watcher_survives(config: watcher::Config) {
    let home = Home::new().await;
    home.create(&RESOURCE_SLICE, slice("a", &[]));
    let slices: Api<ResourceSlice> = Api::all(home.lab.client());
    let mut stream = std::pin::pin!(watcher(slices, config));
    let mut next = async |want: &str| {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(10), stream.next())
                .await
                .unwrap()
                .unwrap();
            let name = match event {
                Ok(watcher::Event::Apply(slice)) => format!("+{}", slice.metadata.name.unwrap()),
                Ok(watcher::Event::Delete(slice)) => format!("-{}", slice.metadata.name.unwrap()),
                Ok(watcher::Event::InitApply(slice)) => {
                    format!("={}", slice.metadata.name.unwrap())
                }
                Ok(watcher::Event::InitDone) => "done".to_owned(),
                Ok(watcher::Event::Init) | Err(_) => continue,
            };
            assert_eq!(name, want);
            return;
        }
    };
    next("=a").await;
    next("done").await;
    home.create(&RESOURCE_SLICE, slice("b", &[]));
    next("+b").await;
    // A cut is resumed without a new list.
    home.api().cut_watches();
    home.api().delete(&RESOURCE_SLICE, "", "b", &DeleteOptions::default()).unwrap();
    next("-b").await;
    // A cut after which the past is forgotten starts anew.
    home.create(&RESOURCE_SLICE, slice("c", &[]));
    next("+c").await;
    home.api().cut_watches();
    home.create(&RESOURCE_SLICE, slice("d", &[]));
    home.api().compact();
    for want in ["=a", "=c", "=d", "done"] {
        next(want).await;
    }
}

#[tokio::test]
async fn kubes_watcher_survives_cuts_with_paged_lists() {
    watcher_survives(watcher::Config::default()).await;
}

#[tokio::test]
async fn kubes_watcher_survives_cuts_with_streaming_lists() {
    watcher_survives(watcher::Config::default().streaming_lists()).await;
}
