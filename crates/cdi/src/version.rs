//! Which CDI version a document needs. Readers refuse a file whose declared version they
//! don't know (podman 4.3 ends at 0.5.0 and drops the file without a word), and refuse one
//! that declares less than it uses; so exactly the lowest sufficient version is written.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::document::Spec;

/// The CDI versions between which our documents' content can make a difference
/// (`specs-go/version.go` of the CDI repository).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CdiVersion {
    /// The base.
    #[serde(rename = "0.3.0")]
    V0_3,
    /// `type` of a mount.
    #[serde(rename = "0.4.0")]
    V0_4,
    /// `hostPath` of a device node; device names that begin with a digit.
    #[serde(rename = "0.5.0")]
    V0_5,
    /// A dot in the class.
    #[serde(rename = "0.6.0")]
    V0_6,
    /// `additionalGids`.
    #[serde(rename = "0.7.0")]
    V0_7,
}

impl fmt::Display for CdiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_3 => "0.3.0",
            Self::V0_4 => "0.4.0",
            Self::V0_5 => "0.5.0",
            Self::V0_6 => "0.6.0",
            Self::V0_7 => "0.7.0",
        })
    }
}

impl Spec<'_> {
    /// The lowest version whose readers understand this document, whatever it declares.
    #[must_use]
    pub fn lowest_version(&self) -> CdiVersion {
        let class_has_dot = self.kind.split_once('/').is_some_and(|(_, class)| class.contains('.'));
        let name_needs_0_5 = self
            .devices
            .iter()
            .any(|device| !device.name.starts_with(|c: char| c.is_ascii_alphabetic()));
        let edits = || self.all_edits();
        if edits().any(|edits| !edits.additional_gids.is_empty()) {
            CdiVersion::V0_7
        } else if class_has_dot {
            CdiVersion::V0_6
        } else if name_needs_0_5
            || edits().flat_map(|edits| &edits.device_nodes).any(|node| node.host_path.is_some())
        {
            CdiVersion::V0_5
        } else if edits().flat_map(|edits| &edits.mounts).any(|mount| mount.fs_type.is_some()) {
            CdiVersion::V0_4
        } else {
            CdiVersion::V0_3
        }
    }
}
