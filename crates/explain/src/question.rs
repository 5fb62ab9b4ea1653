//! What is asked: a pod with its claims, or a claim by itself, as the scheduler would see
//! them. Claims that a controller would make from templates are made here, those that the
//! scheduler makes from extended resources in [`crate::extended`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};

use crate::manifest::{ObjectName, Refusal};
use crate::report::Advice;
use crate::{extended, words};

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
    /// The objects that it is made of, but for classes.
    pub objects: Vec<ObjectName>,
    /// What the API server refuses of them.
    pub refused: Vec<Advice>,
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
        let objects = vec![ObjectName::of("ResourceClaim", &claim.metadata)];
        Self { subject, objects, claims: vec![claim.clone()], ..Self::default() }
    }

    /// About a template: the claim that would be made of it.
    #[must_use]
    pub fn of_template(template: &ResourceClaimTemplate) -> Self {
        let subject = format!("template {}", full_name(&template.metadata));
        let name = template.metadata.name.clone().unwrap_or_default();
        let claim = from_template(template, name);
        let objects = vec![ObjectName::of("ResourceClaimTemplate", &template.metadata)];
        Self { subject, objects, claims: vec![claim], ..Self::default() }
    }

    /// About a pod.
    #[must_use]
    pub fn of_pod(pod: &Pod, known: &Known<'_>) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let subject = format!("pod {}", full_name(&pod.metadata));
        let objects = vec![ObjectName::of("Pod", &pod.metadata)];
        let mut question = Self { subject, objects, pod: Some(pod.clone()), ..Self::default() };
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
            let named = |kind: &str, name: &String| ObjectName::new(kind, namespace, name);
            let of_claim = entry.resource_claim_name.iter().map(|n| named("ResourceClaim", n));
            let template = entry.resource_claim_template_name.iter();
            question.objects.extend(of_claim);
            question.objects.extend(template.map(|name| named("ResourceClaimTemplate", name)));
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
        // Once it is scheduled its claim is there, with what it was given.
        let special = pod.status.as_ref().and_then(|s| s.extended_resource_claim_status.as_ref());
        let special = special.and_then(|status| claim_named(&status.resource_claim_name));
        if let Some(claim) = special {
            question.claims.push(claim.clone());
        } else if let Some((claim, resources)) = extended::claim(pod, known.classes) {
            question.claims.push(claim);
            question.extended_resources = resources;
        }
        for resource in extended::unserved(pod, known.classes) {
            let problem = format!("asks for {resource}, which no DeviceClass stands for");
            let fix = format!(
                "unless a device plugin offers it, a class needs extendedResourceName: {resource}; if one \
                 was applied with it, the API server dropped it: DRAExtendedResource is off, as before 1.36"
            );
            question.notes.push(Advice::new(&question.subject, problem, fix));
        }
        question.note(pod);
        question
    }

    /// With what the API server refuses of its objects and their classes.
    #[must_use]
    pub fn refused_by(mut self, refusals: &[Refusal]) -> Self {
        let classes = self.claims.iter().flat_map(classes).map(str::to_owned);
        let classes: Vec<String> = classes.collect();
        let concerns = |object: &ObjectName| match object.kind.as_str() {
            "DeviceClass" => classes.contains(&object.name),
            _ => self.objects.contains(object),
        };
        let refused = refusals.iter().filter(|refusal| concerns(&refusal.object));
        self.refused = refused.map(|refusal| refusal.advice.clone()).collect();
        self
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

/// The classes that the requests of a claim name.
pub(crate) fn classes(claim: &ResourceClaim) -> impl Iterator<Item = &str> {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let requests = devices.into_iter().flat_map(|devices| devices.requests.iter().flatten());
    requests.flat_map(|request| {
        let exactly = request.exactly.iter().map(|exactly| exactly.device_class_name.as_str());
        let subs = request.first_available.iter().flatten();
        exactly.chain(subs.map(|sub| sub.device_class_name.as_str()))
    })
}
