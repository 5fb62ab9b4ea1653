//! Between the objects of the API and the allocator: what there is, what is taken, who gets what.

use std::sync::Arc;

use serde_json::Value;

use super::text;
use crate::api::ApiServer;
use crate::kinds::{DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE};
use crate::selector::Selector;

/// What a decision is made from, read at one moment.
pub(super) struct Cluster {
    slices: Vec<Arc<Value>>,
    classes: Vec<Arc<Value>>,
    claims: Vec<Arc<Value>>,
}

impl Cluster {
    pub(super) fn read(server: &Arc<ApiServer>) -> Self {
        let all = |kind| server.list(kind, "", &Selector::default()).0;
        Self { slices: all(&RESOURCE_SLICE), classes: all(&DEVICE_CLASS), claims: all(&RESOURCE_CLAIM) }
    }
}

/// The allocations of all `claims` on the node, in their order, or why there are none.
pub(super) fn allocate(
    cluster: &Cluster,
    _node: &Value,
    claims: &[&Value],
) -> Result<Vec<Value>, String> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    Err(format!("{} {} {}", cluster.slices.len(), cluster.classes.len(), cluster.claims.len()))
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
