//! The rules of CDI readers, applied to our own output before it reaches a node: a file
//! that breaks one is dropped whole by the runtime, far from whoever wrote it.

use std::collections::BTreeSet;

use crate::document::{ContainerEdits, Spec};
use crate::version::CdiVersion;

/// A rule that a document breaks.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Two devices would have the same name.
    #[error("CDI device {name:?} is there twice: merge the requests that name one device")]
    DuplicateDevice {
        /// The name.
        name: String,
    },
    /// A file needs at least one device.
    #[error("CDI spec of kind {kind:?} has no devices")]
    NoDevices {
        /// The kind of the file.
        kind: String,
    },
    /// Vendor, class or device name break the grammar of qualified names.
    #[error("{what} {value:?} is no valid CDI name")]
    BadName {
        /// Which part.
        what: &'static str,
        /// The text.
        value: String,
    },
    /// A device that changes nothing in the container.
    #[error("CDI device {name:?} has no edits: nothing of the device was found on this node")]
    EmptyDevice {
        /// The device.
        name: String,
    },
    /// A path that isn't absolute, or isn't UTF-8 free of NUL.
    #[error("{what} {path:?} must be an absolute path")]
    BadPath {
        /// The field.
        what: &'static str,
        /// Its value.
        path: String,
    },
    /// An environment entry that isn't `NAME=value`.
    #[error("CDI environment entry {entry:?} is not NAME=value")]
    BadEnv {
        /// The entry.
        entry: String,
    },
    /// A cgroup rule with other letters than `rwm`.
    #[error("CDI device node {path:?}: permissions {permissions:?} are not letters of rwm")]
    BadPermissions {
        /// The node.
        path: String,
        /// Its permissions.
        permissions: String,
    },
    /// The declared version is lower than the content needs.
    #[error("CDI spec declares version {declared} but needs {needed}")]
    VersionTooLow {
        /// What the file says.
        declared: CdiVersion,
        /// What its content needs.
        needed: CdiVersion,
    },
    /// The document can't be written as JSON.
    #[error("encode CDI spec")]
    Encode(#[source] serde_json::Error),
}

impl Spec<'_> {
    /// Checks the document against the rules that readers apply.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn validate(&self) -> Result<(), SpecError> {
        let (vendor, class) = self.kind.split_once('/').unwrap_or((&self.kind, ""));
        check_name("vendor", vendor, |b| b.is_ascii_alphabetic(), b"_-.")?;
        check_name("class", class, |b| b.is_ascii_alphabetic(), b"_-.")?;
        if self.devices.is_empty() {
            return Err(SpecError::NoDevices { kind: self.kind.clone() });
        }
        let mut names = BTreeSet::new();
        for device in &self.devices {
            check_name("device name", &device.name, |b| b.is_ascii_alphanumeric(), b"_-.:")?;
            if !names.insert(&device.name) {
                return Err(SpecError::DuplicateDevice { name: device.name.clone() });
            }
            if device.container_edits.is_empty() {
                return Err(SpecError::EmptyDevice { name: device.name.clone() });
            }
        }
        self.all_edits().try_for_each(check_edits)?;
        let needed = self.lowest_version();
        if self.cdi_version < needed {
            return Err(SpecError::VersionTooLow { declared: self.cdi_version, needed });
        }
        Ok(())
    }
}

fn check_name(
    what: &'static str,
    value: &str,
    first: fn(u8) -> bool,
    inner: &[u8],
) -> Result<(), SpecError> {
    let bytes = value.as_bytes();
    let valid = bytes.first().is_some_and(|&b| first(b))
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || inner.contains(b));
    if valid { Ok(()) } else { Err(SpecError::BadName { what, value: value.to_owned() }) }
}

fn check_edits(edits: &ContainerEdits) -> Result<(), SpecError> {
    for entry in &edits.env {
        check_env(entry)?;
    }
    for node in &edits.device_nodes {
        check_path("device node path", &node.path)?;
        if let Some(host) = &node.host_path {
            check_path("device node hostPath", host)?;
        }
        if let Some(permissions) = &node.permissions
            && !permissions.bytes().all(|b| b"rwm".contains(&b))
        {
            return Err(SpecError::BadPermissions {
                path: node.path.clone(),
                permissions: permissions.clone(),
            });
        }
    }
    for mount in &edits.mounts {
        check_path("mount containerPath", &mount.container_path)?;
        // The source of a tmpfs is only a word.
        if mount.fs_type.is_none() {
            check_path("mount hostPath", &mount.host_path)?;
        }
    }
    for hook in &edits.hooks {
        check_path("hook path", &hook.path)?;
        for entry in &hook.env {
            check_env(entry)?;
        }
    }
    Ok(())
}

fn check_env(entry: &str) -> Result<(), SpecError> {
    if entry.find('=').is_some_and(|at| at > 0) && !entry.contains('\0') {
        Ok(())
    } else {
        Err(SpecError::BadEnv { entry: entry.to_owned() })
    }
}

fn check_path(what: &'static str, path: &str) -> Result<(), SpecError> {
    if path.starts_with('/') && !path.contains('\0') {
        Ok(())
    } else {
        Err(SpecError::BadPath { what, path: path.to_owned() })
    }
}
