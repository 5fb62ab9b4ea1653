//! The lab as one thing: start it, talk to it, stop it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::api::{ApiServer, PatchType, Subresource, WriteOptions};
use crate::control::{ClaimController, Scheduler, text};
use crate::error::ApiError;
use crate::events::{Herald, LabEvent};
use crate::http::{Listener, Service, kubeconfig_yaml};
use crate::kinds;
use crate::kubelet::{Kubelet, KubeletOptions, KubeletTiming, StartError};
use crate::runtime::Container;
use crate::{json, narrator};

/// How a lab is set up.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// The name of its one node.
    pub node_name: String,
    /// The kubelet's `--root-dir`: drivers' sockets are in `plugins` and `plugins_registry` below it.
    pub kubelet_root: PathBuf,
    /// Where CDI specs are looked for, in ascending priority.
    pub cdi_dirs: Vec<PathBuf>,
    /// Where the API is served; a loopback address, port 0 for any free one.
    pub listen: SocketAddr,
    /// The kubelet's patience.
    pub timing: KubeletTiming,
}

impl LabOptions {
    /// A lab with a node of that name, whose kubelet lives in `kubelet_root`; CDI specs are in `cdi` below it.
    #[must_use]
    pub fn new(node_name: &str, kubelet_root: PathBuf) -> Self {
        Self {
            node_name: node_name.to_owned(),
            cdi_dirs: vec![kubelet_root.join("cdi")],
            kubelet_root,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            timing: KubeletTiming::default(),
        }
    }
}

/// A running control plane with one node. Dropped, it ends.
#[derive(Debug)]
pub struct Lab {
    api: Arc<ApiServer>,
    herald: Herald,
    kubelet: Kubelet,
    listener: Mutex<Option<Listener>>,
    addr: SocketAddr,
    _tasks: JoinSet<()>,
}

/// The lab can't start, or not come back.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The API's address can't be used.
    #[error("can't serve the API on {addr}: choose another port, or 0 for any free one")]
    Listen {
        /// Which address.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The kubelet can't start.
    #[error("the simulated kubelet can't start")]
    Kubelet(#[from] StartError),
    /// The API server refused its own namespaces.
    #[error("the API server can't start")]
    Api(#[from] ApiError),
}

/// A manifest can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It is no YAML, or an object in it has no name or kind.
    #[error("document {document}: {why}")]
    Document {
        /// Which, from 1.
        document: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The API server refused an object.
    #[error("{kind} {name} is refused")]
    Refused {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// The server's answer.
        source: Box<ApiError>,
    },
}

/// An object that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Lab {
    /// Starts API server, controllers, scheduler and kubelet; the node is there when this returns.
    ///
    /// # Errors
    /// When the address or the kubelet's directories can't be used.
    pub async fn start(options: LabOptions) -> Result<Self, LabError> {
        let api = ApiServer::new()?;
        let listener = listen(&api, options.listen).await?;
        let addr = listener.addr();
        let herald = Herald::new(api.clone());
        let kubelet = KubeletOptions {
            node_name: options.node_name,
            root: options.kubelet_root,
            cdi_dirs: options.cdi_dirs,
            timing: options.timing,
        };
        let kubelet = Kubelet::start(kubelet, api.clone(), herald.clone())?;
        let mut tasks = JoinSet::new();
        tasks.spawn(narrator::run(api.clone(), herald.clone()));
        tasks.spawn(ClaimController::new(api.clone(), herald.clone()).run());
        tasks.spawn(Scheduler::new(api.clone(), herald.clone()).run());
        let listener = Mutex::new(Some(listener));
        Ok(Self { api, herald, kubelet, listener, addr, _tasks: tasks })
    }

    /// The address of the API.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The API server, in process.
    #[must_use]
    pub fn api(&self) -> &Arc<ApiServer> {
        &self.api
    }

    /// A client that needs no connection; it is counted and struck by faults as one over HTTP.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(Service::new(self.api.clone()), "default")
    }

    /// A kubeconfig for clients over HTTP.
    #[must_use]
    pub fn kubeconfig_yaml(&self) -> String {
        kubeconfig_yaml(self.addr)
    }

    /// What happens from now on, for a live display.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<LabEvent> {
        self.herald.subscribe()
    }

    /// The containers that run, with what they got.
    #[must_use]
    pub fn containers(&self) -> Vec<Arc<Container>> {
        self.kubelet.containers()
    }

    /// Applies the documents of a YAML text one after the other, as `kubectl apply --server-side` would.
    ///
    /// # Errors
    /// The first document that is wrong or refused; those before it are applied.
    pub fn apply_yaml(&self, text: &str) -> Result<Vec<Applied>, ApplyError> {
        let mut applied = Vec::new();
        for (index, object) in documents(text)?.into_iter().enumerate() {
            if !object.is_null() {
                applied.push(self.apply(index + 1, object)?);
            }
        }
        Ok(applied)
    }

    fn apply(&self, document: usize, object: Value) -> Result<Applied, ApplyError> {
        let refuse = |why: String| ApplyError::Document { document, why };
        let (version, kind_name) = (text(&object, "/apiVersion"), text(&object, "/kind"));
        let kind = kinds::by_name(version, kind_name)
            .ok_or_else(|| refuse(format!("no such kind here: {version} {kind_name}")))?;
        let name = text(&object, "/metadata/name").to_owned();
        if name.is_empty() {
            return Err(refuse("metadata.name is missing".to_owned()));
        }
        let namespace = match (kind.namespaced, text(&object, "/metadata/namespace")) {
            (false, _) => String::new(),
            (true, "") => "default".to_owned(),
            (true, given) => given.to_owned(),
        };
        let options = WriteOptions {
            force: true,
            field_validation: crate::FieldValidation::Strict,
            ..WriteOptions::by("gpu-dra-demo")
        };
        let patch = (PatchType::Apply, object);
        match self.api.patch(kind, (&namespace, &name), Subresource::Main, patch, &options) {
            Ok(_) => Ok(Applied { kind: kind.kind, namespace, name }),
            Err(err) => {
                let source = Box::new(err);
                Err(ApplyError::Refused { kind: kind.kind.to_owned(), name, source })
            }
        }
    }

    /// Restarts the kubelet, as after an update of it: slices go, drivers register again, claims of running
    /// pods are prepared again.
    pub fn restart_kubelet(&self) {
        self.kubelet.restart();
    }

    /// Ends the kubelet until `restart_kubelet`.
    pub fn stop_kubelet(&self) {
        self.kubelet.stop();
    }

    /// Takes the API off the network: connections are cut and new ones refused. Clients in process go on.
    pub fn unplug_api(&self) {
        drop(self.listener().take());
    }

    /// Brings the API back on the same address.
    ///
    /// # Errors
    /// When someone else took the port meanwhile.
    pub async fn replug_api(&self) -> Result<(), LabError> {
        self.unplug_api();
        let listener = listen(&self.api, self.addr).await?;
        *self.listener() = Some(listener);
        Ok(())
    }

    /// Ends everything; watches end in order, not by a broken connection.
    pub async fn shutdown(self) {
        self.kubelet.stop();
        self.api.stop();
        // Lets the ends of the watches reach their clients before the connections are cut.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(api: &Arc<ApiServer>, addr: SocketAddr) -> Result<Listener, LabError> {
    let failed = |source| LabError::Listen { addr, source };
    Listener::start(api.clone(), addr).await.map_err(failed)
}

/// The documents of a YAML text; an empty one is null.
fn documents(text: &str) -> Result<Vec<Value>, ApplyError> {
    let mut documents = Vec::new();
    let mut current = String::new();
    for line in text.lines().chain(["---"]) {
        if line == "---" || line.starts_with("--- ") {
            let document = documents.len() + 1;
            let value = if current.lines().all(|line| line.is_empty() || line.starts_with('#')) {
                Value::Null
            } else {
                let read = json::read_yaml(current.as_bytes());
                read.map_err(|err| ApplyError::Document { document, why: err.message })?.value
            };
            documents.push(value);
            current.clear();
        } else {
            current.push_str(line);
            current.push('\n');
        }
    }
    Ok(documents)
}
