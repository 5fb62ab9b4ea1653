//! What is asked: a pod with its claims, or a claim by itself, as the scheduler would see
//! them. Claims that a controller would make from templates, or the scheduler from extended
//! resources, are made here.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
    ResourceClaimTemplate,
};

use crate::report::Advice;
use crate::words;

/// `ResourceClaimReservedForMaxSize`: pods that can use one claim.
const MAX_USERS: usize = 256;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// `pod default/train-0`.
    pub subject: String,
    /// The pod, if it is one.
    pub pod: Option<Pod>,
    /// Its claims.
    pub claims: Vec<ResourceClaim>,
    /// Extended resources of the pod that classes stand for.
    pub extended_resources: Vec<String>,
    /// What it refers to and isn't there.
    pub missing: Vec<Advice>,
    /// What else was noticed.
    pub notes: Vec<Advice>,
}

/// The objects that pods refer to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// All claims.
    pub claims: &'a [ResourceClaim],
    /// All templates.
    pub templates: &'a [ResourceClaimTemplate],
    /// All classes.
    pub classes: &'a [DeviceClass],
}

impl Question {
    /// About a claim.
    #[must_use]
    pub fn of_claim(claim: &ResourceClaim) -> Self {
        let subject = format!("claim {}", full_name(&claim.metadata));
        Self { subject, claims: vec![claim.clone()], ..Self::default() }
    }

    /// About a template: the claim that would be made of it.
    #[must_use]
    pub fn of_template(template: &ResourceClaimTemplate) -> Self {
        let subject = format!("template {}", full_name(&template.metadata));
        let name = template.metadata.name.clone().unwrap_or_default();
        let claim = from_template(template, name);
        Self { subject, claims: vec![claim], ..Self::default() }
    }

    /// About a pod.
    #[must_use]
    pub fn of_pod(pod: &Pod, known: &Known<'_>) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let subject = format!("pod {}", full_name(&pod.metadata));
        let mut question = Self { subject, pod: Some(pod.clone()), ..Self::default() };
        let here = |object: Option<&String>| object.map(String::as_str) == Some(namespace);
        let claim_named = |name: &str| {
            known.claims.iter().find(|claim| {
                claim.metadata.name.as_deref() == Some(name)
                    && here(claim.metadata.namespace.as_ref())
            })
        };
        let spec = pod.spec.as_ref();
        let made: BTreeMap<&str, &str> = pod
            .status
            .iter()
            .flat_map(|status| status.resource_claim_statuses.iter().flatten())
            .filter_map(|made| Some((made.name.as_str(), made.resource_claim_name.as_deref()?)))
            .collect();
        for entry in spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
            let about = format!("{}: resourceClaims[{}]", question.subject, entry.name);
            let existing =
                entry.resource_claim_name.as_deref().or(made.get(entry.name.as_str()).copied());
            if let Some(claim) = existing.and_then(claim_named) {
                question.claims.push(claim.clone());
                continue;
            }
            if let Some(name) = &entry.resource_claim_name {
                let problem = format!("claim {name} does not exist in namespace {namespace}");
                let fix = "create it, or use resourceClaimTemplateName".to_owned();
                question.missing.push(Advice::new(about, problem, fix));
                continue;
            }
            let Some(template) = &entry.resource_claim_template_name else {
                let problem = "names neither a claim nor a template";
                let fix = "set resourceClaimName or resourceClaimTemplateName".to_owned();
                question.missing.push(Advice::new(about, problem, fix));
                continue;
            };
            let found = known.templates.iter().find(|known| {
                known.metadata.name.as_ref() == Some(template)
                    && here(known.metadata.namespace.as_ref())
            });
            match found {
                Some(found) => {
                    let pod = pod.metadata.name.as_deref().unwrap_or_default();
                    let claim = from_template(found, format!("{pod}-{}", entry.name));
                    question.claims.push(claim);
                }
                None => {
                    let problem =
                        format!("template {template} does not exist in namespace {namespace}");
                    let fix = "create the ResourceClaimTemplate in the pod's namespace".to_owned();
                    question.missing.push(Advice::new(about, problem, fix));
                }
            }
        }
        if let Some((claim, resources)) = extended_resources(pod, known.classes) {
            question.claims.push(claim);
            question.extended_resources = resources;
        }
        question.note(pod);
        question
    }

    /// What the pod itself and its claims say about why it waits.
    fn note(&mut self, pod: &Pod) {
        let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
        let gates: Vec<&str> = gates.map(|gate| gate.name.as_str()).collect();
        if !gates.is_empty() {
            let problem = format!("has scheduling gates: {}", gates.join(", "));
            let fix = "the scheduler waits until those who set them take them away".to_owned();
            self.notes.push(Advice::new(&self.subject, problem, fix));
        }
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let refused = conditions.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
        for message in refused.filter_map(|condition| condition.message.as_ref()) {
            let problem = format!("the scheduler says: {}", words::shortened(message));
            self.notes.push(Advice::new(&self.subject, problem, None));
        }
        for claim in &self.claims {
            let about = format!("claim {}", full_name(&claim.metadata));
            if claim.metadata.deletion_timestamp.is_some() {
                let problem = "is being deleted: no pod can use it any more";
                self.notes.push(Advice::new(&about, problem, None));
            }
            let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
            if users.is_some_and(|users| users.len() >= MAX_USERS) {
                let problem = format!("is used by {MAX_USERS} pods, which is the most");
                self.notes.push(Advice::new(&about, problem, None));
            }
        }
    }

    pub(crate) fn is_allocated(claim: &ResourceClaim) -> bool {
        claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
    }
}

/// `namespace/name`.
pub(crate) fn full_name(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
}

fn from_template(template: &ResourceClaimTemplate, name: String) -> ResourceClaim {
    let mut claim = ResourceClaim::default();
    claim.metadata.name = Some(name);
    claim.metadata.namespace.clone_from(&template.metadata.namespace);
    claim.spec = template.spec.as_ref().map(|spec| spec.spec.clone().unwrap_or_default());
    claim
}

/// The claim that the scheduler makes for extended resources that classes stand for.
fn extended_resources(pod: &Pod, classes: &[DeviceClass]) -> Option<(ResourceClaim, Vec<String>)> {
    let spec = pod.spec.as_ref()?;
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let (mut requests, mut standing_for) = (Vec::new(), BTreeSet::new());
    for (i, container) in containers.enumerate() {
        let Some(resources) = &container.resources else { continue };
        let limits = resources.limits.iter().chain(&resources.requests).flatten();
        let names: BTreeSet<&String> = limits.clone().map(|(name, _)| name).collect();
        for (j, name) in names.into_iter().enumerate() {
            let Some(class) = class_for(name, classes) else { continue };
            standing_for.insert(name.clone());
            let count = limits.clone().find(|(known, _)| *known == name);
            let count = count.and_then(|(_, quantity)| quantity.0.parse::<i64>().ok());
            requests.push(DeviceRequest {
                name: format!("container-{i}-request-{j}"),
                exactly: Some(ExactDeviceRequest {
                    device_class_name: class.to_owned(),
                    allocation_mode: Some("ExactCount".to_owned()),
                    count: Some(count.filter(|count| *count > 0)?),
                    ..ExactDeviceRequest::default()
                }),
                ..DeviceRequest::default()
            });
        }
    }
    if requests.is_empty() {
        return None;
    }
    let mut claim = ResourceClaim::default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    claim.metadata.name = Some(format!("{name}-extended-resources"));
    claim.metadata.namespace.clone_from(&pod.metadata.namespace);
    let devices = DeviceClaim { requests: Some(requests), ..DeviceClaim::default() };
    claim.spec = Some(ResourceClaimSpec { devices: Some(devices) });
    Some((claim, standing_for.into_iter().collect()))
}

/// The class that an extended resource stands for: the newest that names it, then the first
/// by name.
fn class_for<'a>(resource: &'a str, classes: &'a [DeviceClass]) -> Option<&'a str> {
    if let Some(class) = resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
        return Some(class);
    }
    let named = classes.iter().filter(|class| {
        let spec = class.spec.as_ref();
        spec.and_then(|spec| spec.extended_resource_name.as_deref()) == Some(resource)
    });
    let newest = named.min_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(created), class.metadata.name.clone())
    })?;
    newest.metadata.name.as_deref()
}
