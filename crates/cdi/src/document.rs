//! The document types, field by field as the CDI specification names them.
//!
//! Only what this driver writes is here (no annotations, no RDT, no network devices).
//! Optional fields are left out when unset: readers decode strictly, and a field that a
//! reader doesn't know costs it the whole file. The order of the fields is the order in
//! the file. No rule is applied here; see [`Spec::validate`].

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::version::CdiVersion;

/// One CDI spec file. What it says of containers is borrowed where that lives longer: the
/// common edits are large, and the same for all claims of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec<'a> {
    /// The version that a reader must know at least.
    pub cdi_version: CdiVersion,
    /// `vendor/class`.
    pub kind: String,
    /// The devices, at least one.
    pub devices: Vec<Device<'a>>,
    /// Applied once to a container that gets any device of this file.
    #[serde(default, skip_serializing_if = "no_edits")]
    pub container_edits: Cow<'a, ContainerEdits>,
}

/// One named device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device<'a> {
    /// The name after the `=` of a qualified device name.
    pub name: String,
    /// What a container that gets this device gets.
    pub container_edits: Cow<'a, ContainerEdits>,
}

fn no_edits(edits: &ContainerEdits) -> bool {
    edits.is_empty()
}

/// Changes to a container's OCI spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerEdits {
    /// `NAME=value`; replaces the image's variable of the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes to make, each with its cgroup rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Programs of the host that the runtime runs; called in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Files and folders of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Groups that the container's process gets too (needs a reader of CDI 0.7).
    #[serde(default, rename = "additionalGids", skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// One device node. Written with its numbers, so that the runtime doesn't have to look
/// at the host's node, and so that systemd knows the device after a daemon-reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Where the container sees it.
    pub path: String,
    /// Where the host has it; unset where that is the same path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Character or block device.
    #[serde(rename = "type")]
    pub device_type: DeviceType,
    /// The kernel's major number.
    pub major: u32,
    /// The kernel's minor number.
    pub minor: u32,
    /// Permission bits of the node in the container (written as a decimal number).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// The cgroup rule: letters out of `rwm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner of the node in the container, where not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group of the node in the container, where not root's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// The kind of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceType {
    /// A character device.
    #[serde(rename = "c")]
    Char,
    /// A block device.
    #[serde(rename = "b")]
    Block,
}

/// One bind mount, or a mount of another type where [`Mount::fs_type`] says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// The source on the host.
    pub host_path: String,
    /// Where the container sees it.
    pub container_path: String,
    /// Mount options, e.g. `ro`, `nosuid`, `rbind`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The file system, e.g. `tmpfs`; unset for a bind mount.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
}

/// An OCI hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// When the runtime calls it.
    pub hook_name: HookName,
    /// The program's absolute path on the host.
    pub path: String,
    /// Its arguments, the program's name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment; nothing of the runtime's is inherited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds after which the runtime gives up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u32>,
}

/// The points in a container's life at which the OCI runtime calls hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookName {
    /// In the runtime's namespaces, before the container's are made.
    CreateRuntime,
    /// In the container's mount namespace, before its root is pivoted to.
    CreateContainer,
    /// In the container, before its program starts.
    StartContainer,
    /// In the runtime's namespaces, after the container's program ended.
    Poststop,
}

impl ContainerEdits {
    /// Whether there is nothing to change. CDI forbids devices without any edit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.env.is_empty()
            && self.device_nodes.is_empty()
            && self.hooks.is_empty()
            && self.mounts.is_empty()
            && self.additional_gids.is_empty()
    }

    /// Nodes and mounts in the order of their paths in the container (so a folder comes before
    /// what is mounted into it). Environment and hooks keep their order: the last value of a
    /// variable wins, and hooks run one after the other.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.device_nodes.sort_by(|a, b| a.path.cmp(&b.path));
        self.mounts.sort_by(|a, b| a.container_path.cmp(&b.container_path));
        self.additional_gids.sort_unstable();
        self
    }

    /// Whether [`ContainerEdits::sorted`] would change nothing.
    pub(crate) fn is_sorted(&self) -> bool {
        self.device_nodes.is_sorted_by(|a, b| a.path <= b.path)
            && self.mounts.is_sorted_by(|a, b| a.container_path <= b.container_path)
            && self.additional_gids.is_sorted()
    }
}

impl Spec<'_> {
    /// Every group of edits in the file: the common one, then each device's.
    pub fn all_edits(&self) -> impl Iterator<Item = &ContainerEdits> {
        std::iter::once(self.container_edits.as_ref())
            .chain(self.devices.iter().map(|device| device.container_edits.as_ref()))
    }
}
