//! Constraints: the requests and the attribute that they name.

use crate::ask;
use crate::finding::{Findings, Rule, Severity};
use crate::object::{Claim, Object};
use crate::requests::{self, Asked};
use crate::world::World;

pub(crate) fn lint(
    object: &Object<'_>,
    claim: &Claim,
    asked: &[Asked<'_>],
    world: &World<'_>,
    findings: &mut Findings,
) {
    let list = requests::devices_path(object, claim).key("constraints");
    let constraints = requests::devices(&claim.claim).and_then(|d| d.constraints.as_deref());
    for (place, constraint) in constraints.unwrap_or_default().iter().enumerate() {
        let path = list.index(place);
        let names = constraint.requests.as_deref().unwrap_or_default();
        unknown(object, &path, names, asked, findings);
        let (field, attribute) = match (&constraint.match_attribute, &constraint.distinct_attribute)
        {
            (Some(attribute), None) => ("matchAttribute", attribute),
            (None, Some(attribute)) => ("distinctAttribute", attribute),
            _ => {
                let message = "names no attribute, or two: set matchAttribute or distinctAttribute";
                findings.add(object, &path, Severity::Error, Rule::ApiShape, message);
                continue;
            }
        };
        let domain = attribute.split_once('/').map(|(domain, _)| domain);
        let Some(message) = ask::constraint(world, constraint) else { continue };
        let has_fix = message.contains("did you mean");
        // Of drivers that the stand-in doesn't have nothing is known.
        if !world.is_whole() && !has_fix && domain.is_some_and(|domain| !world.knows(domain)) {
            continue;
        }
        // The values of some devices, which `explain` tells by node.
        let message = match message.split_once("? There ") {
            Some((message, _)) => format!("{message}?"),
            None => message,
        };
        let path = path.key(field);
        findings.add(object, &path, Severity::Error, Rule::ConstraintAttribute, message);
    }
}

/// Requests that the claim hasn't.
pub(crate) fn unknown(
    object: &Object<'_>,
    path: &crate::path::Path,
    names: &[String],
    asked: &[Asked<'_>],
    findings: &mut Findings,
) {
    for (place, name) in names.iter().enumerate() {
        if asked.iter().any(|request| request.is_named(name)) {
            continue;
        }
        let mut known: Vec<&str> = asked.iter().map(|request| request.base()).collect();
        known.dedup();
        let fix = match gpu_dra_model::config::nearest(name, &known) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", known.join(", ")),
        };
        let message = format!("the claim has no request {name}: {fix}");
        let path = path.key("requests").index(place);
        findings.add(object, &path, Severity::Error, Rule::UnknownRequest, message);
    }
}
