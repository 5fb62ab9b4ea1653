//! DeviceClasses that somebody else keeps and that read this driver's attributes of every
//! driver's devices: on the day another driver arrives all their pods wait, on all nodes. What
//! is to be said of one; who is told is the keeper's business.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use gpu_dra_cel::{DeviceView, Field, Selector};
use gpu_dra_model::DriverName;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::judge::FIELD_MANAGER;
use crate::declare::Origin;

/// A driver that nobody has.
const ANOTHER: &str = "another-driver.example.com";
/// Where events about objects without namespace are kept.
pub(crate) const NAMESPACE: &str = "default";

/// What is wrong with a class that isn't ours, in a sentence; None: nothing.
pub(crate) fn unguarded(class: &DeviceClass, driver: &DriverName) -> Option<String> {
    if Origin::of(class).is_some() {
        return None;
    }
    let device = DeviceView::new(ANOTHER, false);
    let spec = class.spec.as_ref()?;
    let mut is_about_us = false;
    for (index, selector) in spec.selectors.iter().flatten().enumerate() {
        let selector = Selector::compile(&selector.cel.as_ref()?.expression).ok()?;
        is_about_us |= selector.reads().fields.iter().any(|read| match &read.field {
            Field::Attribute { domain, .. } | Field::Capacity { domain, .. } => {
                domain == driver.as_str()
            }
            _ => false,
        });
        match selector.matches(&device) {
            Ok(true) => {}
            // The scheduler doesn't come to those after it.
            Ok(false) => return None,
            Err(error) => {
                return is_about_us.then(|| {
                    format!(
                        "selector #{index} has no driver guard: on another driver's device it \
                         fails ({error}), which stops every pod of the class: put device.driver \
                         == '{driver}' && before it"
                    )
                });
            }
        }
    }
    None
}

/// The event that says so. It has the same name each time, so that it is there once however
/// often a controller starts.
pub(crate) fn event(class: &DeviceClass, message: &str, now: &Time) -> Event {
    /// The API's limit on a name, less the hash.
    const MOST: usize = 253 - 17;
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let mut hash = DefaultHasher::new();
    (&class.metadata.uid, message).hash(&mut hash);
    let start: String = name.chars().take(MOST).collect();
    let start = start.trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{start}.{:016x}", hash.finish())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("resource.k8s.io/v1".to_owned()),
            kind: Some("DeviceClass".to_owned()),
            name: Some(name.to_owned()),
            uid: class.metadata.uid.clone(),
            ..ObjectReference::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some("Unguarded".to_owned()),
        message: Some(message.chars().take(1024).collect()),
        source: Some(EventSource {
            component: Some(FIELD_MANAGER.to_owned()),
            ..EventSource::default()
        }),
        reporting_component: Some(FIELD_MANAGER.to_owned()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(expressions: &[&str], made_from: Option<&str>) -> DeviceClass {
        let selectors: Vec<_> =
            expressions.iter().map(|text| json!({"cel": {"expression": text}})).collect();
        let labels = made_from.map(|origin| json!({"gpu-dra.io/made-from": origin}));
        serde_json::from_value(json!({
            "metadata": {"name": "c", "uid": "u", "labels": labels}, "spec": {"selectors": selectors},
        }))
        .unwrap()
    }

    #[test]
    fn a_class_that_another_driver_breaks_has_a_sentence() {
        let driver = DriverName::new("gpu.nvidia.com").unwrap();
        let reads = "device.attributes['gpu.nvidia.com'].architecture == 'Hopper'";
        let guard = "device.driver == 'gpu.nvidia.com'";
        let words = unguarded(&class(&[reads], None), &driver).unwrap();
        assert!(words.starts_with("selector #0 has no driver guard"), "{words}");
        assert!(words.contains("(no such key: architecture)") && words.len() < 256, "{words}");
        let second = unguarded(&class(&["true", reads], None), &driver).unwrap();
        assert!(second.starts_with("selector #1"), "{second}");
        for (expressions, made_from) in [
            (vec![reads], Some("gpuclass")),
            (vec![guard, reads], None),
            (vec![&*format!("{guard} && {reads}")], None),
            (vec!["device.attributes['net.example.com'].speed > 1"], None),
            (vec!["device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'"], None),
            (vec!["not CEL"], None),
            (vec![], None),
        ] {
            assert_eq!(
                unguarded(&class(&expressions, made_from), &driver),
                None,
                "{expressions:?}"
            );
        }
    }

    #[test]
    fn an_event_has_one_name_for_one_thing() {
        let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let mut long = class(&[], None);
        long.metadata.name = Some(format!("{}.com", "a".repeat(235)));
        let name = |words: &str| event(&long, words, &now).metadata.name.unwrap();
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
        assert!(name("a").len() <= 253 && !name("a").contains(".."), "{}", name("a"));
    }
}
