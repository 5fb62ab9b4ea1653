//! Tells the live display what changes in the store: slices, claims, pods.

use std::sync::Arc;

use serde_json::Value;

use crate::api::{ApiServer, Notice};
use crate::events::{Herald, LabEvent};
use crate::kinds::{Kind, POD, RESOURCE_CLAIM, RESOURCE_SLICE};
use crate::selector::Selector;
use crate::store::Change;

/// Runs until the server stops.
pub(crate) async fn run(server: Arc<ApiServer>, herald: Herald) {
    tokio::join!(
        follow(&server, &RESOURCE_SLICE, |change, object, _| herald.tell(slice(change, object))),
        follow(&server, &RESOURCE_CLAIM, |change, object, before| {
            claim(change, object, before).into_iter().for_each(|event| herald.tell(event));
        }),
        follow(&server, &POD, |change, object, before| {
            pod(change, object, before).into_iter().for_each(|event| herald.tell(event));
        }),
    );
}

/// Calls `tell` with each change, the object, and what it was before.
async fn follow(
    server: &Arc<ApiServer>,
    kind: &'static Kind,
    mut tell: impl FnMut(Change, &Value, Option<&Value>),
) {
    let mut known = std::collections::BTreeMap::<String, Arc<Value>>::new();
    let mut watch = server.watch(kind, "", Selector::default(), None);
    loop {
        match watch.next(None).await {
            None => return,
            Some(Err(expired)) => {
                tracing::debug!(%expired, "display fell behind, starting anew");
                watch = server.watch(kind, "", Selector::default(), None);
            }
            Some(Ok(Notice::Object(change, object))) => {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let before = known.get(&uid).cloned();
                tell(change, &object, before.as_deref());
                if change == Change::Deleted {
                    known.remove(&uid);
                } else {
                    known.insert(uid, object);
                }
            }
            Some(Ok(_)) => {}
        }
    }
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn slice(change: Change, slice: &Value) -> LabEvent {
    let name = text(slice, "/metadata/name");
    if change == Change::Deleted {
        return LabEvent::SliceDeleted { name };
    }
    LabEvent::SlicePublished {
        name,
        driver: text(slice, "/spec/driver"),
        pool: text(slice, "/spec/pool/name"),
        node: text(slice, "/spec/nodeName"),
        devices: slice["spec"]["devices"].as_array().map(Vec::len).unwrap_or_default(),
    }
}

fn claim(change: Change, claim: &Value, before: Option<&Value>) -> Option<LabEvent> {
    let (namespace, name) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
    let results = |claim: &Value| {
        claim.pointer("/status/allocation/devices/results").and_then(Value::as_array).cloned()
    };
    let now = if change == Change::Deleted { None } else { results(claim) };
    match (before.and_then(results), now) {
        (None, Some(devices)) => {
            let show = |d: &Value| {
                format!("{}/{}/{}", text(d, "/driver"), text(d, "/pool"), text(d, "/device"))
            };
            let devices = devices.iter().map(show).collect();
            Some(LabEvent::ClaimAllocated { namespace, name, devices })
        }
        (Some(_), None) => Some(LabEvent::ClaimDeallocated { namespace, name }),
        _ => None,
    }
}

fn pod(change: Change, pod: &Value, before: Option<&Value>) -> Option<LabEvent> {
    let state = |pod: &Value| (text(pod, "/status/phase"), text(pod, "/spec/nodeName"));
    let (mut phase, node) = state(pod);
    if change == Change::Deleted {
        phase = "Gone".to_owned();
    } else if before.map(state) == Some((phase.clone(), node.clone())) {
        return None;
    }
    let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    Some(LabEvent::PodPhase { namespace, name, phase, node })
}
