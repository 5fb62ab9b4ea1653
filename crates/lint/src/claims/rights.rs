//! adminAccess and tolerations: what lets a request have devices that it otherwise couldn't.

use gpu_dra_model::config::nearest;
use k8s_openapi::api::resource::v1::DeviceToleration;

use crate::finding::{Findings, Rule, Severity};
use crate::object::{Claim, Object};
use crate::requests::Asked;
use crate::world::World;

const MONITOR_CLASS: &str = "monitor.gpu.nvidia.com";
const MONITORING: &str = "gpu.nvidia.com/monitoring";
/// The taints of this driver and of the incumbent.
pub(crate) const TAINTS: &[&str] =
    &["gpu.nvidia.com/xid", "gpu.nvidia.com/gpu-lost", "gpu.nvidia.com/unmonitored", MONITORING];

pub(super) fn lint(
    object: &Object<'_>,
    claim: &Claim,
    request: &Asked<'_>,
    world: &World<'_>,
    findings: &mut Findings,
) {
    if request.admin {
        admin_access(object, claim, request, world, findings);
    } else if request.class == MONITOR_CLASS {
        let message =
            format!("devices of class {MONITOR_CLASS} are for monitoring: add adminAccess: true");
        let path = request.path.key("deviceClassName");
        findings.add(object, &path, Severity::Error, Rule::AdminAccess, message);
    }
    for (place, toleration) in request.tolerations.iter().enumerate() {
        if let Some((severity, message)) = tolerates(toleration, request.admin) {
            let path = request.path.key("tolerations").index(place);
            findings.add(object, &path, severity, Rule::Toleration, message);
        }
    }
}

fn admin_access(
    object: &Object<'_>,
    claim: &Claim,
    request: &Asked<'_>,
    world: &World<'_>,
    findings: &mut Findings,
) {
    let path = request.path.key("adminAccess");
    let mut add = |severity, message: String| {
        findings.add(object, &path, severity, Rule::AdminAccess, message);
    };
    let namespace = &object.namespace;
    let label =
        format!("kubectl label namespace {namespace} resource.kubernetes.io/admin-access=true");
    match world.namespaces.get(namespace) {
        Some(true) => {}
        Some(false) => {
            add(
                Severity::Error,
                format!("adminAccess is refused in namespace {namespace}: {label}"),
            );
        }
        None => {
            let what = if claim.is_template { "claims of it" } else { "it" };
            let message = format!(
                "the API server refuses {what} unless the namespace has the label: {label}"
            );
            add(Severity::Hint, message);
        }
    }
    let tolerated = request.tolerations.iter().any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        (key.is_empty() || key == MONITORING) && toleration.operator.as_deref() == Some("Exists")
    });
    if request.class == MONITOR_CLASS && !tolerated {
        let message = format!(
            "GPUs with MIG devices are watched through tainted ones: tolerate them, \
             tolerations: [{{key: {MONITORING}, operator: Exists}}]"
        );
        add(Severity::Warning, message);
    } else if request.class == "gpu.nvidia.com" {
        let message = format!(
            "GPUs in use that can be partitioned are refused even to adminAccess: ask in class \
             {MONITOR_CLASS} and tolerate {MONITORING}"
        );
        add(Severity::Hint, message);
    }
}

fn tolerates(toleration: &DeviceToleration, admin: bool) -> Option<(Severity, String)> {
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    if key.is_empty() {
        let message = format!(
            "tolerates every taint, also of GPUs that failed: name what is meant, such as key: {}",
            TAINTS.first()?
        );
        return exists.then_some((Severity::Warning, message));
    }
    if !key.starts_with("gpu.nvidia.com/") {
        return None;
    }
    if !TAINTS.contains(&key) {
        let fix = match nearest(key, TAINTS) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", TAINTS.join(", ")),
        };
        return Some((Severity::Warning, format!("no GPU has taint {key}: {fix}")));
    }
    if key == MONITORING {
        let message = "devices with this taint are for monitoring: ask with adminAccess, or \
                       leave out the toleration";
        return (!admin).then(|| (Severity::Warning, message.to_owned()));
    }
    if !exists && toleration.value.as_deref().unwrap_or_default().is_empty() {
        let message = format!("tolerates {key} only without a value: write operator: Exists");
        return Some((Severity::Warning, message));
    }
    let message = format!(
        "the pod may get a GPU with taint {key}, which is out of order: leave the toleration out \
         if that isn't meant"
    );
    Some((Severity::Hint, message))
}
