//! The API server without its transport: reads, writes and watches of objects, in process.
//! Controllers, kubelet and the HTTP edge all go through here; only requests of the edge are counted and can
//! be made to fail, so that a fault strikes the client under test and never the control plane itself.

mod bind;
mod delete;
mod identity;
mod input;
mod metadata;
mod patch;
mod strategy;
mod watch;
mod write;

pub use delete::DeleteOptions;
pub use input::FieldValidation;
pub use watch::{Notice, Watch};
pub use write::{PatchType, Subresource, WriteOptions, Written};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch as signal;
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::faults::Faults;
use crate::kinds::{Kind, NAMESPACE};
use crate::requests::Requests;
use crate::selector::Selector;
use crate::store::{Key, Store};

pub(crate) use delete::success;
pub(crate) use identity::{now, uid};

/// The version that the server says it is.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// An API server: a store and the rules by which it changes.
#[derive(Debug)]
pub struct ApiServer {
    store: Mutex<Store>,
    /// The newest revision, for those who wait for changes.
    revision: signal::Sender<u64>,
    stopped: CancellationToken,
    faults: Faults,
    requests: Requests,
}

impl ApiServer {
    /// An empty server with the namespaces `default` and `kube-system`.
    ///
    /// # Errors
    /// None in practice; those of creating a namespace.
    pub fn new() -> Result<Arc<Self>, ApiError> {
        let server = Arc::new(Self {
            store: Mutex::new(Store::new()),
            revision: signal::Sender::new(1),
            stopped: CancellationToken::new(),
            faults: Faults::default(),
            requests: Requests::default(),
        });
        for name in ["default", "kube-system"] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            server.create(&NAMESPACE, "", namespace, &WriteOptions::by("kube-apiserver"))?;
        }
        Ok(server)
    }

    /// Reads one object. `namespace` is empty for cluster-scoped kinds.
    ///
    /// # Errors
    /// 404 if it isn't there.
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
        self.store().get(kind.store, &key).cloned().ok_or_else(|| ApiError::not_found(kind, name))
    }

    /// All selected objects, by namespace and name, and the revision at which they were read. An empty
    /// `namespace` reads all namespaces.
    #[must_use]
    pub fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        selector: &Selector,
    ) -> (Vec<Arc<Value>>, u64) {
        let store = self.store();
        let items = store
            .iter(kind.store)
            .filter(|(key, object)| {
                (namespace.is_empty() || key.namespace == namespace) && selector.matches(object)
            })
            .map(|(_, object)| object.clone())
            .collect();
        (items, store.revision())
    }

    /// The hooks that make requests of the edge fail.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What the edge was asked so far.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Ends all watches that came over the edge, as a dropped connection would.
    pub fn cut_watches(&self) {
        self.faults.cut_watches();
    }

    /// Forgets all past changes: a watch from an older revision is answered 410, as after etcd's compaction.
    pub fn compact(&self) {
        self.store().compact();
    }

    /// Ends all watches for good.
    pub(crate) fn stop(&self) {
        self.stopped.cancel();
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the waiting watches; called with the store locked, so that revisions are told in order.
    fn announce(&self, store: &Store) {
        self.revision.send_replace(store.revision());
    }
}

fn key_of(object: &Value) -> Key {
    let text = |field| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Key { namespace: text("namespace"), name: text("name") }
}
