//! Between the objects of the API and the allocator: what there is, what is taken, who gets what.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpu_dra_allocator::{AllocateError, Allocated, Allocator, Outcome, Refusal};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::text;
use crate::api::{ApiServer, uid};
use crate::kinds::{DEVICE_CLASS, Kind, NODE, RESOURCE_CLAIM, RESOURCE_SLICE};
use crate::selector::Selector;

/// How many kinds of reasons a refusal names.
const REASONS: usize = 3;

/// A node in both forms.
pub(super) struct TypedNode {
    pub(super) object: Arc<Value>,
    typed: Node,
}

/// What decisions are made from, read at one moment.
pub(super) struct Snapshot {
    slices: Vec<ResourceSlice>,
    classes: Vec<DeviceClass>,
    claims: Vec<ResourceClaim>,
    nodes: Vec<TypedNode>,
}

/// Why a pod's claims get no devices.
#[derive(Debug)]
pub(super) enum Unfit {
    /// Not on this node.
    Here(String),
    /// On no node: the scheduler tries no other.
    Everywhere(String),
}

impl Snapshot {
    pub(super) fn read(server: &Arc<ApiServer>) -> Self {
        let (nodes, _) = server.list(&NODE, "", &Selector::default());
        let nodes = nodes.into_iter().filter_map(|object| {
            let typed = typed(&object)?;
            Some(TypedNode { object, typed })
        });
        Self {
            slices: all(server, &RESOURCE_SLICE),
            classes: all(server, &DEVICE_CLASS),
            claims: all(server, &RESOURCE_CLAIM),
            nodes: nodes.collect(),
        }
    }

    pub(super) fn nodes(&self) -> &[TypedNode] {
        &self.nodes
    }
}

fn all<T: DeserializeOwned>(server: &Arc<ApiServer>, kind: &Kind) -> Vec<T> {
    let (objects, _) = server.list(kind, "", &Selector::default());
    objects.iter().filter_map(|object| typed(object)).collect()
}

/// The object as its type. What was stored has passed the type check, so that a failure is a gap between the
/// tables and the types, to be told.
fn typed<T: DeserializeOwned>(object: &Value) -> Option<T> {
    match serde_json::from_value(object.clone()) {
        Ok(typed) => Some(typed),
        Err(err) => {
            tracing::error!(%err, name = text(object, "/metadata/name"), "stored object can't be read");
            None
        }
    }
}

/// Claims as the allocator wants them.
pub(super) fn typed_claims(claims: &[&Value]) -> Result<Vec<ResourceClaim>, String> {
    let read = |claim: &&Value| serde_json::from_value((*claim).clone()).map_err(|e| e.to_string());
    claims.iter().map(read).collect()
}

/// The devices of the cluster, and who has them, through one pass of the scheduler.
pub(super) struct Devices<'a> {
    allocator: Allocator<'a>,
}

impl<'a> Devices<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let allocated = Allocated::from_claims(&snapshot.claims);
        Self { allocator: Allocator::new(&snapshot.slices, &snapshot.classes, allocated) }
    }

    /// The allocations of all `claims` on the node, in their order, or why there are none.
    pub(super) fn allocate(
        &mut self,
        node: &TypedNode,
        claims: &[ResourceClaim],
    ) -> Result<Vec<AllocationResult>, Unfit> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let claims: Vec<&ResourceClaim> = claims.iter().collect();
        match self.allocator.allocate(&node.typed, &claims, &mut uid) {
            Outcome::Allocated(allocations) => Ok(allocations),
            Outcome::Refused(refusal) => Err(explain(&refusal)),
        }
    }

    /// Counts an allocation as made.
    pub(super) fn assume(&mut self, claim: &Value, allocation: &AllocationResult) {
        let name =
            format!("{}/{}", text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        self.allocator.assume(&name, allocation);
    }
}

fn explain(refusal: &Refusal) -> Unfit {
    if let Some(error) = &refusal.error {
        let why = crate::error::chain(error);
        return match error {
            AllocateError::NoClass { .. }
            | AllocateError::Compile { .. }
            | AllocateError::Evaluate { .. } => Unfit::Everywhere(why),
            _ => Unfit::Here(why),
        };
    }
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for rejection in &refusal.rejected {
        let key = (rejection.request.clone(), rejection.reason.to_string());
        *counts.entry(key).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut parts: Vec<String> = refusal.pools.iter().map(ToString::to_string).collect();
    for ((request, reason), count) in counts.iter().take(REASONS) {
        let devices = if *count == 1 { "device" } else { "devices" };
        parts.push(format!("request {request}: {count} {devices}: {reason}"));
    }
    if counts.len() > REASONS {
        parts.push(format!("and {} other reasons", counts.len() - REASONS));
    }
    // The real scheduler says only this much.
    let mut why = "cannot allocate all claims".to_owned();
    if !parts.is_empty() {
        why.push_str(&format!(" ({})", parts.join("; ")));
    }
    Unfit::Here(why)
}

/// Whether a node selector of an allocation takes the node.
pub(super) fn selects(selector: &Value, node: &Value) -> bool {
    let terms = selector["nodeSelectorTerms"].as_array().into_iter().flatten();
    let label = |key: &str| node["metadata"]["labels"].get(key).and_then(Value::as_str);
    let field = |key: &str| {
        let path = format!("/{}", key.replace('.', "/"));
        Some(text(node, &path).to_owned())
    };
    let meets = |requirement: &Value, have: Option<String>| {
        let values = requirement["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        let among = have.as_ref().is_some_and(|have| values.iter().any(|value| value == have));
        match text(requirement, "/operator") {
            "In" => among,
            "NotIn" => !among,
            "Exists" => have.is_some(),
            "DoesNotExist" => have.is_none(),
            _ => false,
        }
    };
    let list = |term: &Value, field: &str| term[field].as_array().cloned().unwrap_or_default();
    terms.into_iter().any(|term| {
        let (labels, fields) = (list(term, "matchExpressions"), list(term, "matchFields"));
        !(labels.is_empty() && fields.is_empty())
            && labels.iter().all(|r| meets(r, label(text(r, "/key")).map(str::to_owned)))
            && fields.iter().all(|r| meets(r, field(text(r, "/key"))))
    })
}
