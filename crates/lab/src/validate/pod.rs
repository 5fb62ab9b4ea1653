//! Rules for pods, as far as devices are concerned: claims and who uses them, extended resources.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Errors, each, list, map, names, text};
use crate::error::FieldError;

/// The list of a pod has no limit of its own.
const ANY: usize = usize::MAX;

pub(super) fn check(errors: &mut Errors, spec: &Value) {
    let claims = list(spec, "resourceClaims");
    let path = "spec.resourceClaims";
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = format!("{path}[{index}]");
        check_claim(errors, &path, claim);
        if !seen.insert(text(claim, "name")) {
            errors.push(FieldError::duplicate(&format!("{path}.name"), &claim["name"]));
        }
    }
    let names: Vec<&str> = claims.iter().map(|claim| text(claim, "name")).collect();
    let containers = list(spec, "containers");
    if containers.is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    for list_name in ["initContainers", "containers"] {
        for (index, container) in list(spec, list_name).iter().enumerate() {
            check_container(errors, &format!("spec.{list_name}[{index}]"), container, &names);
        }
    }
}

fn check_claim(errors: &mut Errors, path: &str, claim: &Value) {
    names::label(errors, &format!("{path}.name"), text(claim, "name"));
    let (by_name, by_template) =
        (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
    let shown = json!({
        "Name": claim["name"], "ResourceClaimName": by_name, "ResourceClaimTemplateName": by_template,
    });
    match (by_name, by_template) {
        (Some(_), Some(_)) => errors.push(FieldError::invalid(
            path,
            &shown,
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        )),
        (None, None) => errors.push(FieldError::invalid(
            path,
            &shown,
            "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        )),
        (Some(name), None) => {
            let path = format!("{path}.resourceClaimName");
            names::subdomain(errors, &path, name.as_str().unwrap_or_default());
        }
        (None, Some(name)) => {
            let path = format!("{path}.resourceClaimTemplateName");
            names::subdomain(errors, &path, name.as_str().unwrap_or_default());
        }
    }
}

fn check_container(errors: &mut Errors, path: &str, container: &Value, claims: &[&str]) {
    match text(container, "name") {
        "" => errors.push(FieldError::required(&format!("{path}.name"), "")),
        name => names::label(errors, &format!("{path}.name"), name),
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(&format!("{path}.image"), ""));
    }
    let path = format!("{path}.resources");
    let resources = &container["resources"];
    extended_resources(errors, &path, resources);
    let used = (list(resources, "claims"), ANY);
    let mut seen = BTreeSet::new();
    each(errors, &format!("{path}.claims"), used, super::no_key, |errors, path, claim| {
        let name = text(claim, "name");
        if !seen.insert((name, text(claim, "request"))) {
            errors.push(FieldError::duplicate(path, &name.into()));
        }
        if !claims.contains(&name) {
            let known = claims.join(", ");
            let why = match claims {
                [] => {
                    "must be one of the names in pod.spec.resourceClaims which is empty".to_owned()
                }
                _ => format!("must be one of the names in pod.spec.resourceClaims: {known}"),
            };
            errors.push(FieldError::not_found(path, name, &why));
        }
    });
}

fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.starts_with("kubernetes.io/") && !name.contains(".kubernetes.io/")
}

/// Whole numbers, and as much requested as limited: devices can't be overcommitted.
fn extended_resources(errors: &mut Errors, path: &str, resources: &Value) {
    for field in ["limits", "requests"] {
        for (name, value) in map(resources, field).into_iter().filter(|(n, _)| is_extended(n)) {
            let count =
                value.as_str().and_then(|text| text.parse::<gpu_dra_model::Quantity>().ok());
            if count.is_none_or(|count| count.as_integer().is_none()) {
                let path = format!("{path}.{field}[{name}]");
                errors.push(FieldError::invalid(&path, value, "must be an integer"));
            }
        }
    }
    for (name, requested) in map(resources, "requests").into_iter().filter(|(n, _)| is_extended(n))
    {
        match resources["limits"].get(name) {
            None => errors.push(FieldError::required(
                &format!("{path}.limits"),
                "Limit must be set for non overcommitable resources",
            )),
            Some(limit) if limit != requested => errors.push(FieldError::invalid(
                &format!("{path}.requests[{name}]"),
                requested,
                format!("must be equal to {name} limit of {}", limit.as_str().unwrap_or_default()),
            )),
            Some(_) => {}
        }
    }
}

/// Of a pod's spec an update may change next to nothing: images, tolerations, and the node once.
pub(super) fn check_update(errors: &mut Errors, new: &Value, old: &Value) {
    let mut comparable = new.clone();
    for field in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"] {
        copy(&mut comparable, old, field);
    }
    if text(old, "nodeName").is_empty() {
        copy(&mut comparable, old, "nodeName");
    }
    for list_name in ["initContainers", "containers"] {
        let before = list(old, list_name);
        let containers = comparable.get_mut(list_name).and_then(Value::as_array_mut);
        for (container, before) in containers.into_iter().flatten().zip(before) {
            copy(container, before, "image");
        }
    }
    if &comparable != old {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    if let Some(map) = to.as_object_mut() {
        match from.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
}
