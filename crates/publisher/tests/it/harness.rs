//! A publisher that runs, and ways to wait for what it should do.

use std::sync::Arc;
use std::time::Duration;

use gpu_dra_model::{DriverName, NodeName, PoolName};
use gpu_dra_publisher::{PublishStatus, Publisher};
use gpu_dra_slices::{DesiredPool, PackedPool, PoolRef};
use k8s_openapi::api::resource::v1::Device;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) desired: watch::Sender<Option<Arc<PackedPool>>>,
    pub(crate) status: watch::Receiver<PublishStatus>,
    task: JoinHandle<()>,
}

pub(crate) fn device(name: &str) -> Device {
    Device { name: name.to_owned(), ..Device::default() }
}

pub(crate) fn pool(names: &[&str]) -> DesiredPool {
    let devices = names.iter().map(|name| device(name)).collect();
    DesiredPool::new(devices, Vec::new(), Vec::new())
}

/// A pool of so many devices, 64 a slice.
pub(crate) fn large_pool(devices: usize) -> DesiredPool {
    let devices = (0..devices).map(|n| device(&format!("gpu-{n}"))).collect();
    DesiredPool::new(devices, Vec::new(), Vec::new())
}

/// Starts a publisher for this pool.
pub(crate) fn start(server: &Server, desired: impl Into<Option<DesiredPool>>) -> Running {
    let (desired, receiver) =
        watch::channel(desired.into().map(|pool| Arc::new(PackedPool::new(&pool))));
    let target = PoolRef {
        driver: DriverName::new("gpu.nvidia.com").unwrap(),
        node: NodeName::new("node-1").unwrap(),
        pool: PoolName::new("node-1").unwrap(),
    };
    let (publisher, status) = Publisher::new(server.client(), target, receiver);
    let task = tokio::spawn(publisher.run());
    Running { server: server.clone(), desired, status, task }
}

/// Waits, in paused time, until this holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}

impl Running {
    pub(crate) fn status(&self) -> PublishStatus {
        self.status.borrow().clone()
    }

    pub(crate) fn want(&self, pool: DesiredPool) {
        self.desired.send_replace(Some(Arc::new(PackedPool::new(&pool))));
    }

    /// Waits until the pool is in the server, all is known, and the watch is open.
    pub(crate) async fn in_sync(&self) {
        until("in sync", || self.status().in_sync && self.server.watches() == 1).await;
    }

    /// Waits until the server has exactly these devices, and all is calm.
    pub(crate) async fn published(&self, names: &[&str]) {
        until(&format!("{names:?}"), || self.devices() == names).await;
        self.in_sync().await;
    }

    /// Names of the devices of the highest complete generation.
    pub(crate) fn devices(&self) -> Vec<String> {
        let slices = self.server.slices();
        let generation = |slice: &serde_json::Value| slice["spec"]["pool"]["generation"].as_i64();
        let highest = slices.iter().filter_map(generation).max();
        let current: Vec<_> = slices.iter().filter(|slice| generation(slice) == highest).collect();
        let count = current.first().map(|s| s["spec"]["pool"]["resourceSliceCount"].as_u64());
        if count != Some(u64::try_from(current.len()).ok()) {
            return vec!["(incomplete)".to_owned()];
        }
        let devices = current.iter().filter_map(|slice| slice["spec"]["devices"].as_array());
        devices.flatten().map(|device| device["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Lets so much time pass and gives the verbs of the requests made meanwhile.
    pub(crate) async fn verbs_within(&self, time: Duration) -> Vec<&'static str> {
        self.server.take_verbs();
        tokio::time::sleep(time).await;
        self.server.take_verbs()
    }

    /// The process dies; its slices stay.
    pub(crate) async fn kill(self) -> Server {
        self.task.abort();
        self.task.await.unwrap_err();
        self.server.cut_watches();
        self.server.take_verbs();
        self.server
    }
}
