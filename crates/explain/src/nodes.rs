//! Why a pod can't go to a node for other reasons than devices: what the scheduler's other
//! filters that concern GPUs look at. CPU, memory, ports and volumes are not looked at.

use gpu_dra_allocator::selects;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use crate::question::{Question, full_name};

/// The first reason; None where there is none.
pub(crate) fn left_out(question: &Question, node: &Node) -> Option<String> {
    let Question { pod, claims, .. } = question;
    for claim in claims {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
        if let Some(selector) = selector
            && selects(selector, node) != Ok(true)
        {
            let claim = full_name(&claim.metadata);
            return Some(format!("claim {claim} is allocated on another node"));
        }
    }
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let offered = |resource: &&String| {
        let quantity = allocatable.and_then(|all| all.get(*resource));
        quantity.is_some_and(|quantity| quantity.0 != "0")
    };
    if let Some(resource) = question.extended_resources.iter().find(offered) {
        return Some(format!("a device plugin offers {resource} here, so that DRA isn't asked"));
    }
    let spec = pod.as_ref()?.spec.as_ref()?;
    let name = node.metadata.name.as_deref();
    if let Some(bound) = spec.node_name.as_deref().filter(|bound| !bound.is_empty())
        && name != Some(bound)
    {
        return Some(format!("the pod is bound to node {bound}"));
    }
    for (key, value) in spec.node_selector.iter().flatten() {
        let labels = node.metadata.labels.as_ref();
        if labels.and_then(|labels| labels.get(key)) != Some(value) {
            return Some(format!("the pod's nodeSelector wants {key}={value}"));
        }
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    if let Some(required) = required
        && selects(required, node) != Ok(true)
    {
        return Some("the pod's required node affinity leaves it out".to_owned());
    }
    let of_node = node.spec.as_ref()?;
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if of_node.unschedulable == Some(true) && !tolerated(&cordon, tolerations) {
        return Some("the node is cordoned".to_owned());
    }
    let keeps_off = |taint: &&Taint| {
        matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
            && !tolerated(taint, tolerations)
    };
    let taint = of_node.taints.iter().flatten().find(keeps_off)?;
    let value = taint.value.as_deref().unwrap_or_default();
    Some(format!(
        "the pod doesn't tolerate the node's taint {}={value}:{}",
        taint.key, taint.effect
    ))
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let (key, effect) = (text(&toleration.key), text(&toleration.effect));
        (effect.is_empty() || effect == taint.effect)
            && (key.is_empty() || key == taint.key)
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
                Some(_) => false,
            }
    })
}
