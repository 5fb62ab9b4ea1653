//! A lab in a temporary folder, a driver with behaviour to order, and objects that read as sentences.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpu_dra_kubelet::{ClaimService, DeviceHealth, HealthState, Paths, PreparedDevice, Server};
use gpu_dra_lab::kinds::{Kind, POD, RESOURCE_CLAIM};
use gpu_dra_lab::{ApiServer, KubeletTiming, Lab, LabEvent, LabOptions, Subresource, WriteOptions};
use gpu_dra_model::{
    CdiDeviceId, ClaimRef, ClaimUid, DeviceName, DriverName, PoolName, RequestName,
};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const DRIVER: &str = "gpu.nvidia.com";
pub(crate) const NODE: &str = "node-a";

/// Everything of a test: dropped, it is gone.
pub(crate) struct Home {
    pub(crate) lab: Lab,
    pub(crate) dir: tempfile::TempDir,
}

impl Home {
    pub(crate) async fn new() -> Self {
        Self::patient(KubeletTiming {
            plugin_scan: Duration::from_millis(10),
            pod_retry_first: Duration::from_millis(20),
            health_retry: Duration::from_millis(20),
            ..KubeletTiming::default()
        })
        .await
    }

    pub(crate) async fn patient(timing: KubeletTiming) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = LabOptions { timing, ..LabOptions::new(NODE, dir.path().to_path_buf()) };
        Self { lab: Lab::start(options).await.unwrap(), dir }
    }

    pub(crate) fn api(&self) -> &Arc<ApiServer> {
        self.lab.api()
    }

    /// Creates an object in `default`, or in the cluster.
    pub(crate) fn create(&self, kind: &'static Kind, object: Value) -> Arc<Value> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.api().create(kind, namespace, object, &WriteOptions::by("test")).unwrap().object
    }

    pub(crate) fn get(&self, kind: &Kind, name: &str) -> Option<Arc<Value>> {
        let namespace = if kind.namespaced { "default" } else { "" };
        self.api().get(kind, namespace, name).ok()
    }

    /// Pod `train` with claim `one`, placed on `gpu-0` as the scheduler would.
    pub(crate) fn create_train(&self) {
        self.create(&RESOURCE_CLAIM, claim("one"));
        self.create(&POD, pod("train", "one"));
        self.place("train", "one", "gpu-0");
    }

    /// A claim that has a device, reserved for the pod, and the pod bound to the node: what the scheduler does.
    pub(crate) fn place(&self, pod: &str, claim: &str, device: &str) {
        let pod = self.get(&POD, pod).unwrap();
        let name = pod["metadata"]["name"].as_str().unwrap();
        let mut taken = (*self.get(&RESOURCE_CLAIM, claim).unwrap()).clone();
        let by = WriteOptions::by("test");
        if taken["status"].get("allocation").is_none() {
            taken["status"]["allocation"] = json!({"devices": {"results": [
                {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device},
            ]}});
        }
        let mut consumers = taken["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        consumers.push(json!({"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}));
        taken["status"]["reservedFor"] = consumers.into();
        let at = ("default", claim);
        self.api().update(&RESOURCE_CLAIM, at, Subresource::Status, taken, &by).unwrap();
        self.api().bind(("default", name), NODE, &by).unwrap();
    }

    /// Waits until `check` answers, at most 10 s.
    pub(crate) async fn until<T>(&self, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
        for _ in 0..2000 {
            if let Some(found) = check() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never happened: {what}");
    }

    pub(crate) async fn until_phase(&self, pod: &str, phase: &str) {
        self.until(&format!("{pod} is {phase}"), || {
            self.get(&POD, pod).filter(|pod| pod["status"]["phase"] == phase)
        })
        .await;
    }

    pub(crate) async fn until_gone(&self, kind: &'static Kind, name: &str) {
        self.until(&format!("{name} is gone"), || self.get(kind, name).is_none().then_some(()))
            .await;
    }

    /// The messages of all events with that reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<String> {
        let all = gpu_dra_lab::Selector::field("reason", reason);
        let (events, _) = self.api().list(&gpu_dra_lab::kinds::EVENT, "", &all);
        events.iter().map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": DRIVER}},
    ]}}})
}

/// A pod whose only container uses one claim.
pub(crate) fn pod(name: &str, claim: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }})
}

pub(crate) fn slice(name: &str, devices: &[&str]) -> Value {
    let devices: Vec<Value> = devices
        .iter()
        .map(|name| {
            json!({
                "name": name,
                "attributes": {
                    "type": {"string": "gpu"}, "architecture": {"string": "Hopper"},
                    "cudaComputeCapability": {"version": "9.0.0"},
                    "resource.kubernetes.io/numaNode": {"int": 0},
                },
                "capacity": {"memory": {"value": "81559Mi"}},
            })
        })
        .collect();
    json!({"metadata": {"name": name}, "spec": {
        "driver": DRIVER, "nodeName": NODE, "devices": devices,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
    }})
}

/// A driver that prepares what the claims' allocations say, and fails where it is told to.
pub(crate) struct FakeDriver {
    cdi: std::path::PathBuf,
    api: Arc<ApiServer>,
    /// Calls, as `prepare NAME` and `unprepare NAME`.
    pub(crate) calls: Mutex<Vec<String>>,
    /// The next prepares answer these errors.
    pub(crate) failures: Mutex<Vec<String>>,
    /// Unprepare fails while this is set.
    pub(crate) stuck: Mutex<bool>,
    pub(crate) health: watch::Sender<Arc<Vec<DeviceHealth>>>,
}

impl FakeDriver {
    /// A driver that writes CDI specs where the kubelet of `home` looks for them.
    pub(crate) fn new(home: &Home) -> Arc<Self> {
        let cdi = home.dir.path().join("cdi");
        std::fs::create_dir_all(&cdi).unwrap();
        Arc::new(Self {
            cdi,
            api: home.api().clone(),
            calls: Mutex::default(),
            failures: Mutex::default(),
            stuck: Mutex::default(),
            health: watch::Sender::new(Arc::default()),
        })
    }

    /// Starts the driver and waits until the kubelet has it.
    pub(crate) async fn serve(self: &Arc<Self>, home: &Home) -> Server {
        let name = DriverName::new(DRIVER).unwrap();
        let paths = Paths::new(home.dir.path(), &name, None).unwrap();
        let mut happenings = home.lab.subscribe();
        let server = Server::start(paths, self.clone()).await.unwrap();
        while !matches!(happenings.recv().await.unwrap(), LabEvent::DriverRegistered { .. }) {}
        server
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn report(&self, device: &str, state: HealthState, message: &str) {
        self.health.send_replace(Arc::new(vec![DeviceHealth {
            pool: PoolName::new(NODE).unwrap(),
            device: DeviceName::new(device).unwrap(),
            state,
            last_updated: std::time::SystemTime::now(),
            message: message.to_owned(),
        }]));
    }

    fn prepare_one(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, String> {
        self.calls.lock().unwrap().push(format!("prepare {}", claim.name));
        if let Some(failure) = self.failures.lock().unwrap().pop() {
            return Err(failure);
        }
        let object = self.api.get(&RESOURCE_CLAIM, &claim.namespace, &claim.name).unwrap();
        let results = object.pointer("/status/allocation/devices/results").unwrap();
        let (mut devices, mut prepared) = (Vec::new(), Vec::new());
        for result in results.as_array().unwrap() {
            let device = result["device"].as_str().unwrap();
            let id = format!("claim-{}-{device}", claim.uid);
            devices.push(json!({"name": id, "containerEdits": {
                "deviceNodes": [{"path": format!("/dev/{device}")}],
            }}));
            prepared.push(PreparedDevice {
                request_names: vec![RequestName::new(result["request"].as_str().unwrap()).unwrap()],
                pool: PoolName::new(NODE).unwrap(),
                device: DeviceName::new(device).unwrap(),
                cdi_ids: vec![CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={id}")).unwrap()],
                share_id: None,
            });
        }
        let spec = json!({
            "cdiVersion": "0.5.0", "kind": "k8s.gpu.nvidia.com/claim", "devices": devices,
            "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
        });
        std::fs::write(self.cdi.join(format!("{}.json", claim.uid)), spec.to_string()).unwrap();
        Ok(prepared)
    }
}

impl ClaimService for FakeDriver {
    async fn prepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> Vec<(ClaimUid, Result<Vec<PreparedDevice>, String>)> {
        claims.into_iter().map(|claim| (claim.uid.clone(), self.prepare_one(&claim))).collect()
    }

    async fn unprepare(&self, claims: Vec<ClaimRef>) -> Vec<(ClaimUid, Result<(), String>)> {
        let one = |claim: ClaimRef| {
            self.calls.lock().unwrap().push(format!("unprepare {}", claim.name));
            if *self.stuck.lock().unwrap() {
                return (claim.uid, Err("device is busy".to_owned()));
            }
            std::fs::remove_file(self.cdi.join(format!("{}.json", claim.uid))).unwrap();
            (claim.uid, Ok(()))
        };
        claims.into_iter().map(one).collect()
    }

    fn health(&self) -> watch::Receiver<Arc<Vec<DeviceHealth>>> {
        self.health.subscribe()
    }
}

/// A client over HTTP, by the lab's kubeconfig.
pub(crate) async fn over_http(lab: &Lab) -> kube::Client {
    // Another package of the same build may turn on a second TLS provider; then rustls refuses
    // to choose. An error says that one is chosen already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&lab.kubeconfig_yaml()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    kube::Client::try_from(config).unwrap()
}
