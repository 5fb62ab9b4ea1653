//! Which kinds the server serves, under which paths, and which of them share one store.

use serde_json::{Value, json};

/// One served kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version within the group.
    pub version: &'static str,
    /// `ResourceSlice`
    pub kind: &'static str,
    /// `resourceslices`, the name in paths.
    pub plural: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `/status`.
    pub status: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    pub(crate) short: &'static [&'static str],
    /// Its type in the field tables.
    pub(crate) schema: &'static str,
    /// Where its objects are kept; the two event kinds share.
    pub(crate) store: &'static str,
}

const fn kind(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        plural,
        namespaced: true,
        status: false,
        generation: false,
        short,
        schema: kind,
        store: plural,
    }
}

impl Kind {
    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }
    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }
    const fn counted(mut self) -> Self {
        self.generation = true;
        self
    }

    /// `resource.k8s.io/v1`, or `v1` in the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `resourceslices.resource.k8s.io`, as in errors.
    #[must_use]
    pub fn qualified(&self) -> String {
        qualify(self.plural, self.group)
    }

    /// `ResourceSlice.resource.k8s.io`, as in errors.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        qualify(self.kind, self.group)
    }

    /// `resourceslice`
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// The kept form of an object of this kind.
    pub(crate) fn to_stored(&self, value: Value) -> Value {
        if self.schema == "EventV1" { rename(value, &EVENT_FIELDS, "v1") } else { value }
    }

    /// The kept form as this kind shows it.
    pub(crate) fn shown(&self, value: &Value) -> Value {
        if self.schema != "EventV1" {
            return value.clone();
        }
        let back = EVENT_FIELDS.map(|(here, stored)| (stored, here));
        rename(value.clone(), &back, "events.k8s.io/v1")
    }
}

fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// Fields of events.k8s.io/v1 and their names in the core v1 form, in which events are kept.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn rename(mut value: Value, names: &[(&str, &str)], api_version: &str) -> Value {
    if let Some(map) = value.as_object_mut() {
        let moved: Vec<_> = names.iter().map(|(from, to)| (*to, map.remove(*from))).collect();
        for (to, value) in moved {
            if let Some(value) = value {
                map.insert(to.to_owned(), value);
            }
        }
        map.insert("apiVersion".to_owned(), json!(api_version));
    }
    value
}

/// Namespaces.
pub static NAMESPACE: Kind = kind("", "Namespace", "namespaces", &["ns"]).cluster().with_status();
/// Nodes.
pub static NODE: Kind = kind("", "Node", "nodes", &["no"]).cluster().with_status();
/// Pods.
pub static POD: Kind = kind("", "Pod", "pods", &["po"]).with_status().counted();
/// Events, in the core form.
pub static EVENT: Kind = kind("", "Event", "events", &["ev"]);
/// Claims.
pub static RESOURCE_CLAIM: Kind =
    kind("resource.k8s.io", "ResourceClaim", "resourceclaims", &[]).with_status();
/// Templates of claims.
pub static RESOURCE_CLAIM_TEMPLATE: Kind =
    kind("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", &[]);
/// Slices of a driver's pool.
pub static RESOURCE_SLICE: Kind =
    kind("resource.k8s.io", "ResourceSlice", "resourceslices", &[]).cluster().counted();
/// Classes of devices.
pub static DEVICE_CLASS: Kind =
    kind("resource.k8s.io", "DeviceClass", "deviceclasses", &[]).cluster().counted();
static CONFIG_MAP: Kind = kind("", "ConfigMap", "configmaps", &["cm"]);
static SECRET: Kind = kind("", "Secret", "secrets", &[]);
static SERVICE_ACCOUNT: Kind = kind("", "ServiceAccount", "serviceaccounts", &["sa"]);
static LEASE: Kind = kind("coordination.k8s.io", "Lease", "leases", &[]);
static EVENT_V1: Kind =
    Kind { schema: "EventV1", ..kind("events.k8s.io", "Event", "events", &["ev"]) };

/// All served kinds.
pub static KINDS: [&Kind; 13] = [
    &NAMESPACE,
    &NODE,
    &POD,
    &EVENT,
    &CONFIG_MAP,
    &SECRET,
    &SERVICE_ACCOUNT,
    &DEVICE_CLASS,
    &RESOURCE_CLAIM,
    &RESOURCE_CLAIM_TEMPLATE,
    &RESOURCE_SLICE,
    &EVENT_V1,
    &LEASE,
];

/// The kind under a path.
#[must_use]
pub fn by_path(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .into_iter()
        .find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// The kind of an object's `apiVersion` and `kind`.
#[must_use]
pub fn by_name(api_version: &str, name: &str) -> Option<&'static Kind> {
    KINDS.into_iter().find(|kind| kind.kind == name && kind.api_version() == api_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_one_form() {
        let new =
            json!({"apiVersion": "events.k8s.io/v1", "note": "n", "regarding": {"name": "a"}});
        let stored = EVENT_V1.to_stored(new.clone());
        assert_eq!(
            stored,
            json!({"apiVersion": "v1", "message": "n", "involvedObject": {"name": "a"}})
        );
        assert_eq!(EVENT_V1.shown(&stored), new);
        assert_eq!(EVENT.shown(&stored), stored);
    }

    #[test]
    fn every_kind_has_a_table() {
        for kind in KINDS {
            assert!(crate::schema::types().contains_key(kind.schema), "{}", kind.schema);
        }
    }
}
