//! The four watches as one stream of changes. Each lists once, then only hears; after an error
//! it waits longer and longer. It keeps no objects and decides nothing.

use std::collections::HashSet;
use std::fmt::Debug;
use std::pin::Pin;

use futures::stream::{BoxStream, SelectAll, Stream, StreamExt, select_all};
use gpu_dra_model::DriverName;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::declare::GpuClass;

/// What happened to one object, or to all.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// It is like this now.
    Put(K),
    /// It is gone; `name`, or `namespace/name`.
    Gone(String),
    /// All were told; those not named here are gone.
    Synced(HashSet<String>),
}

/// Something that a watch told.
#[derive(Debug)]
pub(crate) enum News {
    /// Of a GpuClass.
    GpuClass(Change<GpuClass>),
    /// Of a DeviceClass, whoever's: a foreign one may be in our way.
    DeviceClass(Change<DeviceClass>),
    /// Of a slice of the driver.
    Slice(Change<Box<ResourceSlice>>),
    /// Of a claim.
    Claim(Change<Box<ResourceClaim>>),
}

/// All watches.
pub(crate) struct Watches {
    streams: SelectAll<BoxStream<'static, News>>,
}

impl Watches {
    pub(crate) fn new(client: &Client, driver: &DriverName) -> Self {
        let all = watcher::Config::default();
        let ours = all.clone().fields(&format!("spec.driver={driver}"));
        let client = || client.clone();
        let streams: [BoxStream<'static, News>; 4] = [
            follow(
                Api::<GpuClass>::all(client()),
                all.clone(),
                "gpuclasses.gpu-dra.io; apply deploy/gpuclass-crd.yaml if it isn't there",
            )
            .map(News::GpuClass)
            .boxed(),
            follow(Api::<DeviceClass>::all(client()), all.clone(), "deviceclasses")
                .map(News::DeviceClass)
                .boxed(),
            follow(Api::<ResourceSlice>::all(client()), ours, "resourceslices")
                .map(|change| News::Slice(boxed(change)))
                .boxed(),
            follow(Api::<ResourceClaim>::all(client()), all, "resourceclaims")
                .map(|change| News::Claim(boxed(change)))
                .boxed(),
        ];
        Self { streams: select_all(streams) }
    }

    /// The next news. Nothing is lost when this is dropped half-way.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            match self.streams.next().await {
                Some(news) => return news,
                // Watches don't end by themselves.
                None => futures::future::pending().await,
            }
        }
    }
}

/// One watch.
fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    what: &'static str,
) -> Pin<Box<dyn Stream<Item = Change<K>> + Send>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut seen = HashSet::new();
    let mut is_broken = false;
    let events = watcher(api, config).default_backoff();
    events
        .filter_map(move |event| {
            let change = match event {
                Ok(event) => {
                    if is_broken && !matches!(event, Event::Init) {
                        is_broken = false;
                        info!(what, "watching again");
                    }
                    change(event, &mut seen)
                }
                Err(error) => {
                    // Once, not at each attempt.
                    if !is_broken {
                        warn!(what, error = %chain(&error), "can't watch; trying again");
                    }
                    is_broken = true;
                    None
                }
            };
            futures::future::ready(change)
        })
        .boxed()
}

fn boxed<K>(change: Change<K>) -> Change<Box<K>> {
    match change {
        Change::Put(object) => Change::Put(Box::new(object)),
        Change::Gone(key) => Change::Gone(key),
        Change::Synced(seen) => Change::Synced(seen),
    }
}

fn change<K: Resource>(event: Event<K>, seen: &mut HashSet<String>) -> Option<Change<K>> {
    match event {
        Event::Init => {
            seen.clear();
            None
        }
        Event::InitApply(object) => {
            seen.insert(key(&object));
            Some(Change::Put(object))
        }
        Event::InitDone => Some(Change::Synced(std::mem::take(seen))),
        Event::Apply(object) => Some(Change::Put(object)),
        Event::Delete(object) => Some(Change::Gone(key(&object))),
    }
}

fn key<K: Resource>(object: &K) -> String {
    let metadata = object.meta();
    let name = metadata.name.as_deref().unwrap_or_default();
    match &metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
