//! The device nodes of a MIG device: its GPU's, and the capability nodes of its GPU instance
//! and its compute instance. The driver says in `/proc` which numbers those have.
//!
//! udev or nvidia-modprobe may make a capability node only some time after the instance, so
//! one that isn't there yet is named by its numbers: a runtime makes a container's node from
//! these and doesn't look at the host's. Whether an instance exists is asked of `/proc`
//! alone; nothing here creates or destroys one.

use std::io;
use std::path::{Path, PathBuf};

use gpu_dra_model::ids::{ComputeInstanceId, GpuInstanceId, Minor};

use crate::create;
use crate::error::NodeError;
use crate::kernel::{Capability, capability, char_major};
use crate::nodes::{CharNode, Dev, DeviceNodes, Node, NodeFinder, Numbers};

/// The nodes of one MIG device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigNodes {
    /// `/dev/nvidia<minor>` of its GPU, then `/dev/nvidia-caps/nvidia-cap<N>` of its GPU
    /// instance and of its compute instance.
    pub nodes: Vec<Node>,
    /// Those of [`MigNodes::nodes`] that aren't in `/dev` yet.
    pub late: Vec<String>,
}

impl NodeFinder {
    /// The nodes of the MIG device that is this compute instance of this GPU instance of the
    /// GPU with this minor number. A container that lacks one of them can't use the device.
    ///
    /// # Errors
    /// The driver shows no such instance; the GPU's node is missing or wrong, or a capability
    /// node is wrong.
    pub fn mig(
        &self,
        minor: Minor,
        instance: GpuInstanceId,
        compute: ComputeInstanceId,
    ) -> Result<MigNodes, NodeError> {
        let dev = self.open_dev()?;
        let devices = self.proc_devices()?;
        let mut found =
            MigNodes { nodes: vec![self.gpu_node(&dev, &devices, minor)?], late: vec![] };
        let Some(major) = char_major(&devices, &["nvidia-caps"]) else {
            return Err(NodeError::NoCapabilities { path: self.proc.join("devices") });
        };
        let instance = self.capabilities().join(format!("gpu{minor}/mig/gi{instance}"));
        for folder in [instance.clone(), instance.join(format!("ci{compute}"))] {
            let capability = self.capability(&folder.join("access"))?;
            let (node, late) = self.capability_node(&dev, major, capability)?;
            if late {
                found.late.push(node.path().to_owned());
            }
            found.nodes.push(node);
        }
        Ok(found)
    }

    fn capabilities(&self) -> PathBuf {
        self.proc.join("driver/nvidia/capabilities")
    }

    fn capability(&self, path: &Path) -> Result<Capability, NodeError> {
        match std::fs::read_to_string(path) {
            Ok(text) => capability(&text)
                .ok_or_else(|| NodeError::BadCapability { path: path.to_path_buf() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let all = self.capabilities();
                Err(if all.is_dir() {
                    NodeError::InstanceGone { path: path.to_path_buf() }
                } else {
                    NodeError::NoCapabilities { path: all }
                })
            }
            Err(source) => Err(NodeError::Io { path: path.to_path_buf(), source }),
        }
    }

    /// The node, and whether it isn't in `/dev` yet.
    fn capability_node(
        &self,
        dev: &Dev,
        major: u32,
        capability: Capability,
    ) -> Result<(Node, bool), NodeError> {
        let numbers = Numbers { major, minor: capability.minor };
        let bare_name = format!("nvidia-cap{}", capability.minor);
        let name = format!("{}/{bare_name}", create::CAPABILITIES);
        if let Some(node) = dev.find(&name, Some(numbers), self.policy)? {
            return Ok((node, false));
        }
        if self.policy == DeviceNodes::CreateMissing && capability.modify {
            create::capability(dev, &bare_name, numbers, capability.mode)?;
            if let Some(node) = dev.find(&name, Some(numbers), self.policy)? {
                return Ok((node, false));
            }
        }
        let node = CharNode {
            path: format!("/dev/{name}"),
            host_path: dev.host_path(&name).to_string_lossy().into_owned(),
            major,
            minor: capability.minor,
            mode: capability.mode,
            uid: 0,
            gid: 0,
        };
        Ok((Node::Char(node), true))
    }
}
