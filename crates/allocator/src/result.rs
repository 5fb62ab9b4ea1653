//! The allocation of each claim as the scheduler writes it into the status: devices in the
//! order in which they were given, configs of classes before those of the claim, and where
//! the claim can be used.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::Rules;
use crate::pools::Pools;
use crate::search::{Claim, Given, Wanted};
use crate::state::devices_of;

/// One result per claim.
pub(crate) fn build(
    claims: &[Claim<'_>],
    pools: &Pools<'_>,
    node: &Node,
    rules: Rules,
) -> Vec<AllocationResult> {
    claims
        .iter()
        .map(|claim| {
            let results =
                claim.given.iter().filter_map(|given| device(claim, given, pools)).collect();
            AllocationResult {
                allocation_timestamp: None,
                devices: Some(DeviceAllocationResult {
                    config: Some(configs(claim, rules)).filter(|configs| !configs.is_empty()),
                    results: Some(results),
                }),
                node_selector: node_selector(claim, pools, node),
            }
        })
        .collect()
}

fn wanted<'c, 'a>(
    claim: &'c Claim<'a>,
    request: usize,
    alternative: usize,
) -> Option<&'c Wanted<'a>> {
    claim.requests.get(request)?.get(alternative)
}

fn device(
    claim: &Claim<'_>,
    given: &Given,
    pools: &Pools<'_>,
) -> Option<DeviceRequestAllocationResult> {
    let found = pools.candidates.get(given.candidate)?;
    let request = &wanted(claim, given.request, given.alternative)?.request;
    let consumed = given.share.as_ref().map(|(_, consumed)| {
        consumed
            .iter()
            .map(|(name, value)| (name.clone(), Quantity(value.to_string())))
            .collect::<BTreeMap<_, _>>()
    });
    Some(DeviceRequestAllocationResult {
        admin_access: request.admin.then_some(true),
        binding_conditions: found.device.binding_conditions.clone(),
        binding_failure_conditions: found.device.binding_failure_conditions.clone(),
        consumed_capacity: consumed.filter(|consumed| !consumed.is_empty()),
        device: found.id.device.clone(),
        driver: found.id.driver.clone(),
        pool: found.id.pool.clone(),
        request: request.full_name(),
        share_id: given.share.as_ref().map(|(id, _)| id.clone()),
        skip_node_operations: None,
        tolerations: Some(request.tolerations.to_vec()).filter(|list| !list.is_empty()),
    })
}

/// Each class's configs once, for all requests that use it, then the claim's, those that
/// name no request or one that was allocated. Later ones win when applied.
fn configs(claim: &Claim<'_>, rules: Rules) -> Vec<DeviceAllocationConfiguration> {
    let mut configs: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut of_class: BTreeMap<&str, std::ops::Range<usize>> = BTreeMap::new();
    for (index, chosen) in claim.chosen.iter().enumerate() {
        let Some(wanted) = wanted(claim, index, *chosen) else {
            continue;
        };
        let request = wanted.request.full_name();
        if let Some(known) = of_class.get(wanted.request.class) {
            for config in configs.get_mut(known.clone()).into_iter().flatten() {
                config.requests.get_or_insert_default().push(request.clone());
            }
            continue;
        }
        let start = configs.len();
        for config in wanted.class.spec.iter().flat_map(|spec| spec.config.iter().flatten()) {
            configs.push(DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: Some(vec![request.clone()]),
                source: "FromClass".to_owned(),
            });
        }
        of_class.insert(wanted.request.class, start..configs.len());
    }
    for config in
        devices_of(claim.claim).into_iter().flat_map(|devices| devices.config.iter().flatten())
    {
        let names = config.requests.as_deref().unwrap_or_default();
        let from_claim = || DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: config.requests.clone(),
            source: "FromClaim".to_owned(),
        };
        if names.is_empty() {
            configs.push(from_claim());
            continue;
        }
        for (index, chosen) in claim.chosen.iter().enumerate() {
            let Some(wanted) = wanted(claim, index, *chosen) else {
                continue;
            };
            let full_name = wanted.request.full_name();
            if names.iter().any(|name| name == wanted.request.base || *name == full_name) {
                configs.push(from_claim());
                if rules == Rules::From137 {
                    break;
                }
            }
        }
    }
    if rules == Rules::From137 {
        for config in &mut configs {
            if config.requests.as_deref().is_some_and(|names| are_all(claim, names)) {
                config.requests = None;
            }
        }
    }
    configs
}

/// Whether the names mean all requests of the claim.
fn are_all(claim: &Claim<'_>, names: &[String]) -> bool {
    let mut chosen = claim.chosen.iter().enumerate();
    chosen.all(|(index, chosen)| {
        wanted(claim, index, *chosen).is_some_and(|wanted| {
            let full_name = wanted.request.full_name();
            names.iter().any(|name| name == wanted.request.base || *name == full_name)
        })
    })
}

/// One node, if a device is local to it or binds to it; else what all slices ask for; None
/// where the devices can be had everywhere.
fn node_selector(claim: &Claim<'_>, pools: &Pools<'_>, node: &Node) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for found in claim.given.iter().filter_map(|given| pools.candidates.get(given.candidate)) {
        let location = found.location();
        if location.node_name.is_some() || found.device.binds_to_node == Some(true) {
            let own = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.metadata.name.clone().unwrap_or_default()]),
            };
            let term = NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![own]) };
            return Some(NodeSelector { node_selector_terms: vec![term] });
        }
        for other in location.selector.iter().flat_map(|selector| &selector.node_selector_terms) {
            merge(&mut term.match_fields, other.match_fields.as_deref());
            merge(&mut term.match_expressions, other.match_expressions.as_deref());
        }
    }
    let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
    (!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn merge(
    into: &mut Option<Vec<NodeSelectorRequirement>>,
    from: Option<&[NodeSelectorRequirement]>,
) {
    for requirement in from.unwrap_or_default() {
        let known = into.get_or_insert_default();
        if !known.contains(requirement) {
            known.push(requirement.clone());
        }
    }
}
