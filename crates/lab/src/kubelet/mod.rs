//! The kubelet of the lab's one node: finds drivers by their sockets, has claims prepared, keeps pods' status.
//! It does what Kubernetes 1.36's does around DRA, in the same order and with the same texts, but starts no
//! containers: `runtime` says what they would get.

mod claims;
mod node;
mod plugins;
mod pods;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::api::{ApiServer, DeleteOptions};
use crate::error::ApiError;
use crate::events::Herald;
use crate::kinds::RESOURCE_SLICE;
use crate::runtime::Container;
use crate::selector::Selector;
use claims::Cache;
use plugins::Plugins;

/// The kubelet's name in events and managed fields.
const NAME: &str = "kubelet";

/// How patient the kubelet is. The default is as impatient as a demo wants it, except for the times that a
/// driver relies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletTiming {
    /// How often the registration directory is looked at (a real kubelet: 1 s).
    pub plugin_scan: Duration,
    /// After how long without a connection to a driver its slices are deleted (30 s).
    pub slice_wipe: Duration,
    /// After how long the health stream is opened again (5 s).
    pub health_retry: Duration,
    /// First pause before a failed pod is tried again; it doubles each time.
    pub pod_retry_first: Duration,
    /// Longest such pause.
    pub pod_retry_most: Duration,
}

impl Default for KubeletTiming {
    fn default() -> Self {
        Self {
            plugin_scan: Duration::from_millis(50),
            slice_wipe: Duration::from_secs(30),
            health_retry: Duration::from_secs(1),
            pod_retry_first: Duration::from_millis(500),
            pod_retry_most: Duration::from_secs(10),
        }
    }
}

/// Where the kubelet lives.
#[derive(Debug, Clone)]
pub(crate) struct KubeletOptions {
    pub(crate) node_name: String,
    pub(crate) root: PathBuf,
    pub(crate) cdi_dirs: Vec<PathBuf>,
    pub(crate) timing: KubeletTiming,
}

/// What survives a restart of the kubelet, as its state file and the running containers do.
#[derive(Debug)]
struct Shared {
    options: KubeletOptions,
    server: Arc<ApiServer>,
    herald: Herald,
    cache: Cache,
    containers: Mutex<BTreeMap<(String, String), Arc<Container>>>,
}

/// A kubelet that can be restarted.
#[derive(Debug)]
pub(crate) struct Kubelet {
    shared: Arc<Shared>,
    session: Mutex<Option<JoinSet<()>>>,
}

impl Kubelet {
    /// Makes the node and its directories, and starts.
    pub(crate) fn start(
        options: KubeletOptions,
        server: Arc<ApiServer>,
        herald: Herald,
    ) -> Result<Self, StartError> {
        for directory in ["plugins_registry", "plugins"] {
            let path = options.root.join(directory);
            std::fs::create_dir_all(&path)
                .map_err(|source| StartError::Directory { path, source })?;
        }
        node::register(&server, &options.node_name)?;
        let shared = Shared {
            options,
            server,
            herald,
            cache: Cache::default(),
            containers: Mutex::default(),
        };
        let kubelet = Self { shared: Arc::new(shared), session: Mutex::new(None) };
        kubelet.restart();
        Ok(kubelet)
    }

    /// Ends the running kubelet, if any, and starts one that remembers what the state file would: which claims
    /// were used by which pods, but not whether they are prepared.
    pub(crate) fn restart(&self) {
        let mut session = self.session();
        // Dropping the old one aborts all of its tasks.
        *session = None;
        self.shared.cache.forget_prepared();
        let shared = self.shared.clone();
        shared.wipe_slices(None);
        let plugins = Arc::new(Plugins::new(shared.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(plugins::run(plugins.clone()));
        tasks.spawn(pods::run(shared, plugins));
        *session = Some(tasks);
    }

    /// Ends the kubelet; sockets, claims and containers stay as they are.
    pub(crate) fn stop(&self) {
        *self.session() = None;
    }

    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        self.shared.containers().values().cloned().collect()
    }

    fn session(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn containers(&self) -> MutexGuard<'_, BTreeMap<(String, String), Arc<Container>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes the node's slices, of one driver or of all.
    fn wipe_slices(&self, driver: Option<&str>) {
        let mut selector = Selector::field("spec.nodeName", &self.options.node_name);
        if let Some(driver) = driver {
            selector = selector.and("spec.driver", driver);
        }
        let options = DeleteOptions::default();
        match self.server.delete_collection(&RESOURCE_SLICE, "", &selector, &options) {
            Ok(slices) if slices.is_empty() => {}
            Ok(slices) => tracing::info!(count = slices.len(), driver, "slices deleted"),
            Err(err) => tracing::warn!(%err, driver, "slices not deleted"),
        }
    }
}

/// The kubelet can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory can't be made.
    #[error("can't make {}: choose a kubelet root that may be written", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The node object was refused.
    #[error("the node can't be registered: choose another name")]
    Node {
        /// Why.
        #[from]
        source: ApiError,
    },
}
