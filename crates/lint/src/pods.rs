//! Pods, and what makes pods: the claims they name, and how containers use them.

use gpu_dra_model::config::nearest;
use serde_json::Value;

use crate::claims::TAINTS;
use crate::finding::{Findings, Rule, Severity};
use crate::object::{Object, pod_spec};
use crate::path::Path;
use crate::world::{ClaimRequest, World};

pub(crate) fn lint(object: &Object<'_>, world: &World<'_>, findings: &mut Findings) {
    let Some(pointer) = pod_spec(&object.kind) else { return };
    let Some(spec) = object.value.pointer(&format!("/{}", pointer.replace('.', "/"))) else {
        return;
    };
    let root = object.root.keys(pointer);
    let mut used: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (place, container) in array(&spec[list]).enumerate() {
            let path = root.key(list).index(place).keys("resources.claims");
            for (number, claim) in array(&container["resources"]["claims"]).enumerate() {
                used.push(text(&claim["name"]));
                let at = path.index(number);
                container_claim(object, spec, claim, &at, world, findings);
            }
        }
    }
    for (place, entry) in array(&spec["resourceClaims"]).enumerate() {
        pod_claim(object, entry, &root.key("resourceClaims").index(place), &used, findings);
    }
    for (place, toleration) in array(&spec["tolerations"]).enumerate() {
        let key = text(&toleration["key"]);
        if TAINTS.contains(&key) {
            let message = format!(
                "{key} is a taint of devices, which pods don't tolerate: write the toleration \
                 in the claim's request"
            );
            let path = root.key("tolerations").index(place);
            findings.add(object, &path, Severity::Warning, Rule::Toleration, message);
        }
    }
}

/// An entry of `spec.resourceClaims`.
fn pod_claim(
    object: &Object<'_>,
    entry: &Value,
    path: &Path,
    used: &[&str],
    findings: &mut Findings,
) {
    let name = text(&entry["name"]);
    // The old syntax has a finding of its own.
    let sources = ["resourceClaimName", "resourceClaimTemplateName", "source"];
    if sources.iter().filter(|source| entry.get(**source).is_some()).count() != 1 {
        let message = format!(
            "claim {name} must name one thing: set either resourceClaimName or \
             resourceClaimTemplateName"
        );
        findings.add(object, path, Severity::Error, Rule::ApiShape, message);
    }
    if !used.contains(&name) {
        let message = format!(
            "claim {name} is allocated but no container gets it: write resources.claims: [{{name: \
             {name}}}] in one"
        );
        findings.add(object, path, Severity::Warning, Rule::UnusedPodClaim, message);
    }
}

/// An entry of a container's `resources.claims`.
fn container_claim(
    object: &Object<'_>,
    spec: &Value,
    claim: &Value,
    path: &Path,
    world: &World<'_>,
    findings: &mut Findings,
) {
    let name = text(&claim["name"]);
    let Some(entry) = array(&spec["resourceClaims"]).find(|entry| entry["name"] == *name) else {
        let known: Vec<&str> =
            array(&spec["resourceClaims"]).map(|entry| text(&entry["name"])).collect();
        let fix = match nearest(name, &known) {
            Some(near) => format!("did you mean {near}?"),
            None => "add it to the pod's resourceClaims".to_owned(),
        };
        let message = format!("the pod has no claim {name}: {fix}");
        findings.add(object, &path.key("name"), Severity::Error, Rule::UnknownPodClaim, message);
        return;
    };
    let source = entry.get("source").unwrap_or(entry);
    let key = |name: &str, is_template| (object.namespace.clone(), name.to_owned(), is_template);
    let claim_name = text(&source["resourceClaimName"]);
    let template = text(&source["resourceClaimTemplateName"]);
    let requests = world.claims.get(&key(claim_name, false));
    let Some(requests) = requests.or_else(|| world.claims.get(&key(template, true))) else {
        return;
    };
    match claim["request"].as_str() {
        Some(request) => named(object, request, requests, &path.key("request"), findings),
        None if requests.len() > 1 => unnamed(object, name, requests, path, findings),
        None => {}
    }
}

fn named(
    object: &Object<'_>,
    request: &str,
    requests: &[ClaimRequest],
    path: &Path,
    findings: &mut Findings,
) {
    if requests.iter().any(|known| known.name == request) {
        return;
    }
    let base = request.split('/').next().unwrap_or_default();
    let known: Vec<&str> = requests.iter().map(|known| known.name.as_str()).collect();
    let holder = requests
        .iter()
        .find(|known| known.name == base || known.alternatives.iter().any(|name| name == request));
    let fix = match (holder, nearest(request, &known)) {
        (Some(holder), _) => format!("alternatives can't be named, write request: {}", holder.name),
        (None, Some(near)) => format!("did you mean {near}?"),
        (None, None) => format!("there are {}", known.join(", ")),
    };
    let message = format!("the claim has no request {request}: {fix}");
    findings.add(object, path, Severity::Error, Rule::UnknownRequest, message);
}

/// A container that names no request gets the devices of all.
fn unnamed(
    object: &Object<'_>,
    name: &str,
    requests: &[ClaimRequest],
    path: &Path,
    findings: &mut Findings,
) {
    let known: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
    let known = known.join(", ");
    let is_mig =
        |request: &&ClaimRequest| request.classes.iter().any(|class| class == "mig.nvidia.com");
    let (severity, message) = if requests.iter().filter(is_mig).count() > 1 {
        (
            Severity::Warning,
            format!(
                "gets all MIG devices of claim {name}, of which CUDA uses one: name one, \
                 request: ... ({known})"
            ),
        )
    } else {
        (
            Severity::Hint,
            format!(
                "gets the devices of all requests of claim {name}: name one if that isn't meant, \
                 request: ... ({known})"
            ),
        )
    };
    findings.add(object, path, severity, Rule::ContainerRequest, message);
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
