//! A class as it should be beside the one that is stored: leave it, write it, or keep off
//! because it is somebody else's. And which stored classes have lost their reason.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::{DeviceClass, DeviceClassSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use crate::declare::{Origin, owner};

/// Our name in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "gpu-dra-controller";

/// What to do about a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is as it should be.
    Good,
    /// It has to be written.
    Write,
    /// It is somebody else's; who, in a few words.
    Foreign(String),
    /// It is ours, but this manager has set fields of its spec too.
    Shared(String),
}

/// Judges a wanted class of this origin beside the stored one.
pub(crate) fn judge(wanted: &DeviceClass, origin: Origin, live: Option<&DeviceClass>) -> Judgement {
    let Some(live) = live else { return Judgement::Write };
    if Origin::of(live) != Some(origin) || owner(live) != owner(wanted) {
        return Judgement::Foreign(whose(live));
    }
    if let Some(manager) = other_manager(live, |entry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some())
    }) {
        return Judgement::Shared(manager.to_owned());
    }
    if has(live, wanted) { Judgement::Good } else { Judgement::Write }
}

/// Whether a stored class has all that is wanted of it.
pub(crate) fn has(live: &DeviceClass, wanted: &DeviceClass) -> bool {
    let labels = wanted.metadata.labels.iter().flatten();
    let has_label = |(name, value): (&String, &String)| {
        live.metadata.labels.as_ref().and_then(|labels| labels.get(name)) == Some(value)
    };
    labels.into_iter().all(has_label) && normal(live) == normal(wanted)
}

/// The spec, with empty lists as none.
fn normal(class: &DeviceClass) -> DeviceClassSpec {
    let mut spec = class.spec.clone().unwrap_or_default();
    spec.selectors = spec.selectors.filter(|selectors| !selectors.is_empty());
    spec.config = spec.config.filter(|config| !config.is_empty());
    spec
}

/// Who wrote a class, as a sentence's end.
fn whose(class: &DeviceClass) -> String {
    match (Origin::of(class), first_manager(class)) {
        (Some(Origin::Fleet), _) => "made from the fleet".to_owned(),
        (Some(Origin::Standard), _) => "a standard class".to_owned(),
        (Some(Origin::GpuClass), _) => "another GpuClass's".to_owned(),
        (None, Some(manager)) => format!("kept by {manager}"),
        (None, None) => "kept by somebody else".to_owned(),
    }
}

/// The first manager but this controller that has set anything.
pub(crate) fn first_manager(class: &DeviceClass) -> Option<&str> {
    other_manager(class, |_| true)
}

fn other_manager(
    class: &DeviceClass,
    counts: impl Fn(&ManagedFieldsEntry) -> bool,
) -> Option<&str> {
    let entries = class.metadata.managed_fields.iter().flatten().filter(|entry| counts(entry));
    let mut managers = entries.filter_map(|entry| entry.manager.as_deref());
    managers.find(|manager| *manager != FIELD_MANAGER)
}

/// Whether a stored class that we made has no reason to be any more. `owners` are the UIDs of
/// the GpuClasses that exist.
pub(crate) fn is_left_over(class: &DeviceClass, owners: &BTreeSet<&str>, keep_fleet: bool) -> bool {
    match Origin::of(class) {
        // Whoever takes the owner reference off has taken the class over.
        Some(Origin::GpuClass) => owner(class).is_some_and(|uid| !owners.contains(uid)),
        Some(Origin::Fleet) => !keep_fleet,
        // Pods of all sorts rely on them: only people delete them.
        Some(Origin::Standard) | None => false,
    }
}
