//! Reads this agent's Node, and how its container runtime is configured: at the start, and again while a device plugin is on it or has just
//! come or gone, which shows in the kubelet's folder of sockets. A steady node is not asked for.
//!
//! It says what it has seen; what follows is others' business.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpu_dra_model::NodeName;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;

use crate::events::{Announcer, Severity};
use crate::neighbours::{Neighbour, device_plugin, device_plugin_sockets};
use crate::requirements::{cdi, shortfalls};
use crate::runtime_config::RuntimeConfig;

/// How long the kubelet may take to put into the Node what has registered.
const SETTLES: Duration = Duration::from_secs(60);

/// The longest pause between two attempts to read the Node.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the Node says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeSeen {
    /// The device plugin that has its GPUs.
    pub(crate) device_plugin: Option<Neighbour>,
    /// What of the node is too old, each in a sentence.
    pub(crate) shortfalls: Vec<String>,
    /// Why the container runtime takes no CDI specs of ours.
    pub(crate) cdi: Option<String>,
}

impl NodeSeen {
    fn of(node: &Node, name: &NodeName, config: Option<&RuntimeConfig>, cdi_root: &Path) -> Self {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        Self {
            device_plugin: device_plugin(node, name),
            shortfalls: info.map(shortfalls).unwrap_or_default(),
            cdi: info.and_then(|info| cdi(&info.container_runtime_version, config, cdi_root)),
        }
    }

    /// In words, for `/readyz`.
    pub(crate) fn sentence(&self) -> String {
        let neighbour = self.device_plugin.iter().map(ToString::to_string);
        let all: Vec<String> =
            neighbour.chain(self.shortfalls.iter().cloned()).chain(self.cdi.clone()).collect();
        if all.is_empty() { "as it should be".to_owned() } else { all.join("; ") }
    }
}

/// Where the Node is and who is told.
pub(crate) struct NodeWatch {
    pub(crate) client: kube::Client,
    pub(crate) node: NodeName,
    pub(crate) kubelet_root: PathBuf,
    /// The folder of CDI specs.
    pub(crate) cdi_root: PathBuf,
    /// The host's root as this process sees it, where the container runtime is configured.
    pub(crate) host_root: PathBuf,
    pub(crate) announcer: Announcer,
    /// How often the folder of sockets is looked at.
    pub(crate) interval: Duration,
}

impl NodeWatch {
    /// Says what the Node says, for as long as anybody listens.
    pub(crate) async fn run(self, say: watch::Sender<Option<NodeSeen>>) {
        let api = kube::Api::<Node>::all(self.client.clone());
        let mut sockets = device_plugin_sockets(&self.kubelet_root);
        let mut changed = Instant::now();
        let mut pause = Duration::from_secs(1);
        while !say.is_closed() {
            let known = say.borrow().clone();
            let must_ask = known.as_ref().is_none_or(|seen| seen.device_plugin.is_some())
                || (changed.elapsed() < SETTLES && !sockets.is_empty());
            if must_ask {
                match api.get(self.node.as_str()).await {
                    Ok(node) => {
                        let config = self.runtime_config().await;
                        let seen = NodeSeen::of(&node, &self.node, config.as_ref(), &self.cdi_root);
                        self.announce(known.as_ref(), &seen);
                        say.send_if_modified(|now| now.replace(seen.clone()) != Some(seen));
                    }
                    Err(error) => tracing::debug!(%error, "the Node can't be read yet"),
                }
            }
            if say.borrow().is_none() {
                tokio::time::sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
                continue;
            }
            tokio::time::sleep(self.interval).await;
            let now = device_plugin_sockets(&self.kubelet_root);
            if now != sockets {
                (sockets, changed) = (now, Instant::now());
            }
        }
    }

    /// Read anew each time: it may have been corrected.
    async fn runtime_config(&self) -> Option<RuntimeConfig> {
        let root = self.host_root.clone();
        let read = tokio::task::spawn_blocking(move || RuntimeConfig::read(&root)).await;
        read.unwrap_or_else(|error| {
            tracing::error!(%error, "reading the container runtime's configuration failed inside");
            None
        })
    }

    fn announce(&self, before: Option<&NodeSeen>, now: &NodeSeen) {
        let had = before.and_then(|seen| seen.device_plugin.as_ref());
        match (had, &now.device_plugin) {
            (None, Some(plugin)) => {
                self.announcer.announce(Severity::Warning, plugin.reason(), plugin.to_string());
            }
            (Some(_), None) => {
                let text = "no device plugin offers GPUs any more: devices are published";
                self.announcer.announce(Severity::Normal, "DevicePluginGone", text.to_owned());
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        let news =
            now.shortfalls.iter().filter(|it| before.is_none_or(|b| !b.shortfalls.contains(it)));
        for shortfall in news {
            self.announcer.announce(Severity::Warning, "NodeTooOld", shortfall.clone());
        }
        if let Some(cdi) = &now.cdi
            && before.is_none_or(|before| before.cdi.as_ref() != Some(cdi))
        {
            self.announcer.announce(Severity::Warning, "CdiOff", cdi.clone());
        }
    }
}
