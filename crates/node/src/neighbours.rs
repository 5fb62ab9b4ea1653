//! Who else has this node's GPUs: another DRA driver of the same name, which neither the kubelet
//! nor the scheduler can tell from this one, or a device plugin, whose count the scheduler books
//! apart from claims.
//!
//! It looks and says. It never touches what is theirs. A driver of another name, such as the
//! ComputeDomain half of NVIDIA's, is none of its business.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_dra_model::{DriverName, NodeName};
use k8s_openapi::api::core::v1::Node;
use tokio::net::UnixStream;

use crate::events::{Announcer, Severity};

/// How long a socket's owner may take to accept; one that is that slow is there.
const ACCEPT: Duration = Duration::from_secs(1);

/// Somebody with whom the GPUs can't be shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Neighbour {
    /// A DRA driver of our name listens for the kubelet.
    Publisher {
        /// The name.
        driver: DriverName,
        /// Its registration socket.
        socket: PathBuf,
    },
    /// A device plugin has registered GPUs with the kubelet.
    DevicePlugin {
        /// The node.
        node: NodeName,
        /// The resource's name and how many there are, such as `nvidia.com/gpu: 8`.
        resource: String,
    },
}

impl std::fmt::Display for Neighbour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Publisher { driver, socket } => write!(
                f,
                "another DRA driver {driver} serves {}: remove it from this node (of NVIDIA's \
                 driver the ComputeDomain half may stay); until then nothing is done here",
                socket.display()
            ),
            Self::DevicePlugin { node, resource } => write!(
                f,
                "a device plugin offers {resource} on {node}, so that GPUs would be given out \
                 twice: remove it from this node; until then no device is published here"
            ),
        }
    }
}

impl Neighbour {
    /// The reason of the Event that tells of it.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Publisher { .. } => "AnotherDriver",
            Self::DevicePlugin { .. } => "DevicePlugin",
        }
    }
}

/// Whether a file in the kubelet's `plugins_registry` is the registration socket of another
/// instance of the driver: the Go helper's `<driver>-reg.sock`, or `<driver>-<pod>-reg.sock` in a
/// rolling update. Ours end in `@reg.sock`.
#[must_use]
pub fn is_others_socket(driver: &DriverName, file: &OsStr) -> bool {
    let name = file.to_str().and_then(|name| name.strip_prefix(driver.as_str()));
    name.is_some_and(|rest| rest.starts_with('-') && rest.ends_with("-reg.sock"))
}

/// The other driver of the name that listens now. The socket of one that has been killed is
/// left over, and nobody listens there.
pub async fn publisher(kubelet_root: &Path, driver: &DriverName) -> Option<Neighbour> {
    let registry = kubelet_root.join("plugins_registry");
    for file in names(&registry).iter().filter(|file| is_others_socket(driver, file)) {
        let socket = registry.join(file);
        let refused = tokio::time::timeout(ACCEPT, UnixStream::connect(&socket)).await;
        if !matches!(refused, Ok(Err(_))) {
            return Some(Neighbour::Publisher { driver: driver.clone(), socket });
        }
    }
    None
}

/// Returns when no other driver of the name listens; tells once of one that does.
pub async fn wait_until_alone(
    kubelet_root: &Path,
    driver: &DriverName,
    pause: Duration,
    announcer: &Announcer,
) {
    let mut told = None;
    while let Some(neighbour) = publisher(kubelet_root, driver).await {
        if told.as_ref() != Some(&neighbour) {
            announcer.announce(Severity::Warning, neighbour.reason(), neighbour.to_string());
            told = Some(neighbour);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Returns when another driver of the name listens.
pub async fn appears(kubelet_root: &Path, driver: &DriverName, pause: Duration) -> Neighbour {
    loop {
        if let Some(neighbour) = publisher(kubelet_root, driver).await {
            return neighbour;
        }
        tokio::time::sleep(pause).await;
    }
}

/// The device plugin whose GPUs or MIG devices can be had on the node. A resource that a
/// DeviceClass stands for isn't in the Node's `allocatable` (KEP-5004), and one whose plugin has
/// gone is there with 0. GPUs for passthrough have names of their own and are no GPUs of ours.
#[must_use]
pub fn device_plugin(node: &Node, name: &NodeName) -> Option<Neighbour> {
    let allocatable = node.status.as_ref()?.allocatable.as_ref()?;
    let mut offered = allocatable.iter().filter(|(resource, quantity)| {
        let of_nvidia = resource.strip_prefix("nvidia.com/");
        of_nvidia.is_some_and(|r| r == "gpu" || r == "gpu.shared" || r.starts_with("mig-"))
            && quantity.0 != "0"
    });
    let (resource, quantity) = offered.next()?;
    let resource = format!("{resource}: {}", quantity.0);
    Some(Neighbour::DevicePlugin { node: name.clone(), resource })
}

/// The sockets of NVIDIA's device plugins that the kubelet may know, by name. None where the
/// folder isn't mounted.
#[must_use]
pub fn device_plugin_sockets(kubelet_root: &Path) -> BTreeSet<std::ffi::OsString> {
    let mut names = names(&kubelet_root.join("device-plugins"));
    names.retain(|name| name.to_string_lossy().starts_with("nvidia"));
    names
}

fn names(folder: &Path) -> BTreeSet<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn driver() -> DriverName {
        DriverName::new("gpu.nvidia.com").unwrap()
    }

    #[test]
    fn others_of_the_name_are_told_from_ours_and_from_other_names() {
        for (file, is) in [
            ("gpu.nvidia.com-reg.sock", true),
            ("gpu.nvidia.com-0f0e9a5c-2f3b-4f0e-8f8f-0123456789ab-reg.sock", true),
            ("gpu.nvidia.com@reg.sock", false),
            ("gpu.nvidia.com-AbCdEfGhIjK@reg.sock", false),
            ("compute-domain.nvidia.com-reg.sock", false),
            ("dra.net-reg.sock", false),
            ("gpu.nvidia.com", false),
        ] {
            assert_eq!(is_others_socket(&driver(), OsStr::new(file)), is, "{file}");
        }
    }

    #[test]
    fn p13_a_device_plugin_is_seen_by_what_can_be_had_of_it() {
        let name = NodeName::new("node-a").unwrap();
        for (allocatable, seen) in [
            (json!(null), None),
            (json!({"cpu": "8"}), None),
            // Left over of a device plugin that has gone.
            (json!({"nvidia.com/gpu": "0"}), None),
            (json!({"nvidia.com/gpu": "8"}), Some("nvidia.com/gpu: 8")),
            (json!({"nvidia.com/gpu.shared": "40"}), Some("nvidia.com/gpu.shared: 40")),
            (
                json!({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}),
                Some("nvidia.com/mig-1g.10gb: 7"),
            ),
            // Passthrough and others' things.
            (json!({"nvidia.com/GH100_H100_SXM5_80GB": "8", "amd.com/gpu": "1"}), None),
        ] {
            let node = json!({"metadata": {}, "status": {"allocatable": allocatable}});
            let node: Node = serde_json::from_value(node).unwrap();
            let found = device_plugin(&node, &name);
            assert_eq!(
                found,
                seen.map(|resource| Neighbour::DevicePlugin {
                    node: name.clone(),
                    resource: resource.to_owned()
                }),
                "{allocatable}"
            );
        }
    }

    #[test]
    fn what_is_said_names_who_where_and_what_to_do() {
        let socket = "/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock".into();
        let publisher = Neighbour::Publisher { driver: driver(), socket };
        assert!(publisher.to_string().contains("gpu.nvidia.com-reg.sock: remove it"));
        let node = NodeName::new("node-a").unwrap();
        let plugin = Neighbour::DevicePlugin { node, resource: "nvidia.com/gpu: 8".into() };
        assert!(plugin.to_string().contains("nvidia.com/gpu: 8 on node-a"));
        assert_ne!(plugin.reason(), publisher.reason());
    }
}
