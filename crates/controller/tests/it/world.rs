//! Controllers that run, and what they are asked and seen to do.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_controller::{LeaseTiming, RunError, Settings, Webhook, run};
use gpu_dra_lab::WriteOptions;
use gpu_dra_lab::kinds::{DEVICE_CLASS, Kind, RESOURCE_CLAIM, RESOURCE_SLICE};
use gpu_dra_model::DriverName;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::api::{Api, Call};
use super::extra::GPU_CLASSES;

pub(crate) const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/gpu-dra/leases";

/// A controller in a task of its own.
pub(crate) struct Controller {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Controller {
    pub(crate) fn start(api: &Arc<Api>, settings: Settings) -> Self {
        let client = api.client(&settings.identity);
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        Self { stop: Some(stop), task: tokio::spawn(run(settings, client, stopped)) }
    }

    /// As SIGTERM does.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap().unwrap();
    }

    /// As kill -9 does.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A controller without standard classes and webhook; an election in fractions of a second.
pub(crate) fn settings(identity: &str) -> Settings {
    Settings {
        namespace: "gpu-dra".to_owned(),
        identity: identity.to_owned(),
        driver: DriverName::new("gpu.nvidia.com").unwrap(),
        standard_classes: false,
        fleet_classes: false,
        webhook: None::<Webhook>,
        http: None,
        lease: LeaseTiming {
            duration: Duration::from_secs(1),
            deadline: Duration::from_millis(600),
            period: Duration::from_millis(100),
        },
        count_pace: Duration::from_millis(50),
    }
}

/// An API server with the controller's namespace.
pub(crate) fn api() -> Arc<Api> {
    let api = Api::new();
    let namespace = json!({"metadata": {"name": "gpu-dra"}});
    let by = WriteOptions::by("test");
    api.lab.create(&gpu_dra_lab::kinds::NAMESPACE, "", namespace, &by).unwrap();
    api
}

/// Waits until `check` answers, at most 20 s.
pub(crate) async fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2_000 {
        if let Some(found) = check() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

/// Waits until nothing but the lease is asked any more, for half a second.
pub(crate) async fn quiet(api: &Arc<Api>) {
    let count = || api.calls(|call| !is_lease(call)).len();
    let mut before = count();
    let mut since = tokio::time::Instant::now();
    let end = since + Duration::from_secs(20);
    while since.elapsed() < Duration::from_millis(500) {
        assert!(tokio::time::Instant::now() < end, "never quiet: {:?}", api.calls(|_| true));
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = count();
        if now != before {
            (before, since) = (now, tokio::time::Instant::now());
        }
    }
}

pub(crate) fn is_lease(call: &Call) -> bool {
    call.path.starts_with(LEASES)
}

pub(crate) fn is_write(call: &Call) -> bool {
    !matches!(call.verb, "get" | "watch")
}

/// Everything that a test does to the cluster itself.
pub(crate) trait Cluster {
    fn declare(&self, name: &str, spec: Value);
    fn undeclare(&self, name: &str);
    fn gpu_class(&self, name: &str) -> Option<Value>;
    fn class(&self, name: &str) -> Option<Arc<Value>>;
    fn create(&self, kind: &'static Kind, object: Value) -> Arc<Value>;
    fn remove(&self, kind: &'static Kind, name: &str);
    fn publish(&self, node: &str, products: &[&str]);
    fn take(&self, claim: &str, node: &str, device: &str);
    fn until_reason(
        &self,
        name: &str,
        condition: &str,
        reason: &str,
    ) -> impl Future<Output = Value>;
}

impl Cluster for Arc<Api> {
    fn declare(&self, name: &str, spec: Value) {
        let object = json!({"apiVersion": "gpu-dra.io/v1alpha1", "kind": "GpuClass",
                            "metadata": {"name": name}, "spec": spec});
        self.extra.lock().unwrap().put(GPU_CLASSES, object);
    }

    fn undeclare(&self, name: &str) {
        self.extra.lock().unwrap().delete(GPU_CLASSES, name);
    }

    fn gpu_class(&self, name: &str) -> Option<Value> {
        self.extra.lock().unwrap().get(GPU_CLASSES, name)
    }

    fn class(&self, name: &str) -> Option<Arc<Value>> {
        self.lab.get(&DEVICE_CLASS, "", name).ok()
    }

    fn create(&self, kind: &'static Kind, object: Value) -> Arc<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.lab.create(kind, namespace, object, &WriteOptions::by("helm")).unwrap().object
    }

    fn remove(&self, kind: &'static Kind, name: &str) {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.lab.delete(kind, namespace, name, &gpu_dra_lab::DeleteOptions::now()).unwrap();
    }

    fn publish(&self, node: &str, products: &[&str]) {
        let device = |(index, product): (usize, &&str)| {
            json!({"name": format!("gpu-{index}"), "attributes": {
                "type": {"string": "gpu"}, "productName": {"string": product},
                "cudaComputeCapability": {"version": "9.0.0"}},
                "capacity": {"memory": {"value": "81559Mi"}}})
        };
        let devices: Vec<Value> = products.iter().enumerate().map(device).collect();
        self.create(
            &RESOURCE_SLICE,
            json!({"metadata": {"name": node}, "spec": {
            "driver": "gpu.nvidia.com", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}}),
        );
    }

    fn take(&self, claim: &str, node: &str, device: &str) {
        let spec = json!({"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "any"}}]}});
        let object = json!({"metadata": {"name": claim}, "spec": spec});
        let mut claim = (*self.create(&RESOURCE_CLAIM, object)).clone();
        claim["status"] = json!({"allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": device}]}}});
        let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
        let by = WriteOptions::by("test");
        let status = gpu_dra_lab::Subresource::Status;
        self.lab.update(&RESOURCE_CLAIM, ("default", &name), status, claim, &by).unwrap();
    }

    async fn until_reason(&self, name: &str, condition: &str, reason: &str) -> Value {
        until(&format!("{name}: {condition} is {reason}"), || {
            let status = self.gpu_class(name)?["status"].clone();
            let conditions = status["conditions"].as_array()?.clone();
            let found = conditions.iter().find(|c| c["type"] == condition)?;
            (found["reason"] == reason).then_some(status)
        })
        .await
    }
}
