//! Documents as objects: lists unfolded, older API versions brought to v1, decoded.

use gpu_dra_explain::manifest::Manifests;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate};
use serde_json::Value;

use crate::declared::{self, Compile};
use crate::document::Document;
use crate::finding::{Findings, Rule, Severity};
use crate::path::Path;
use crate::shape;

/// One object.
#[derive(Debug)]
pub(crate) struct Object<'d> {
    pub(crate) document: &'d Document,
    /// Its place among all.
    pub(crate) serial: usize,
    /// Where it is in the document: in the items of a list, or at the top.
    pub(crate) root: Path,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// As it is written.
    pub(crate) value: &'d Value,
    /// Whether its body is compiled from fields of its own.
    pub(crate) is_declared: bool,
    pub(crate) body: Body,
}

/// What it is.
#[derive(Debug)]
pub(crate) enum Body {
    Class(DeviceClass),
    Claim(Claim),
    /// A pod, or what makes pods; read as it is written.
    Pod,
    /// Something without devices, or that can't be decoded.
    Other,
}

/// A claim, or a template of claims.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) claim: ResourceClaim,
    /// The path from the object to the claim's spec.
    pub(crate) spec: &'static str,
    /// Whether each claim made is a new one.
    pub(crate) is_template: bool,
}

impl<'d> Object<'d> {
    /// The objects of a document, with what is wrong with their shape.
    pub(crate) fn all_of(
        document: &'d Document,
        compile: &Compile<'_>,
        findings: &mut Findings,
    ) -> Vec<Self> {
        let mut objects = Vec::new();
        unfold(document, document.value(), Path::default(), compile, findings, &mut objects);
        objects
    }

    /// `DeviceClass hopper`.
    pub(crate) fn title(&self) -> String {
        if self.name.is_empty() {
            self.kind.clone()
        } else {
            format!("{} {}", self.kind, self.name)
        }
    }
}

fn unfold<'d>(
    document: &'d Document,
    value: &'d Value,
    root: Path,
    compile: &Compile<'_>,
    findings: &mut Findings,
    objects: &mut Vec<Object<'d>>,
) {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind").to_owned();
    if kind.ends_with("List")
        && let Some(items) = value.get("items").and_then(Value::as_array)
    {
        for (place, item) in items.iter().enumerate() {
            let root = root.key("items").index(place);
            unfold(document, item, root, compile, findings, objects);
        }
        return;
    }
    let mut object = Object {
        document,
        // Unique among all documents of a run: findings are sorted by it.
        serial: 0,
        root,
        kind,
        name: text("/metadata/name").to_owned(),
        namespace: text("/metadata/namespace").to_owned(),
        value,
        is_declared: false,
        body: Body::Other,
    };
    if object.namespace.is_empty() {
        "default".clone_into(&mut object.namespace);
    }
    object.serial = findings.next_serial();
    if let Some(compiled) = compile(value) {
        object.is_declared = true;
        object.body = declared::body(&object, compiled, findings);
    } else {
        object.body = decode(&object, findings);
    }
    objects.push(object);
}

/// Brings the object to v1 and decodes it.
fn decode(object: &Object<'_>, findings: &mut Findings) -> Body {
    if object.kind.is_empty() {
        // Values and settings lie beside manifests.
        let is_object = object.value.get("apiVersion").is_some();
        let severity = if is_object { Severity::Error } else { Severity::Hint };
        let message = "kind is missing: write apiVersion and kind if this is a Kubernetes object";
        findings.add(object, &object.root, severity, Rule::ApiShape, message);
        return Body::Other;
    }
    if let Some(pointer) = shape::unsound(object.value) {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let message = format!("{field} is no object: write fields under it");
        let path = object.root.keys(&field);
        findings.add(object, &path, Severity::Error, Rule::ApiShape, message);
        return Body::Other;
    }
    let mut manifests = Manifests::default();
    manifests.add(object.value.clone(), &object.namespace);
    shape::lint(object, &manifests, findings);
    let body = match object.kind.as_str() {
        "DeviceClass" => manifests.classes.pop().map(Body::Class),
        "ResourceClaim" => manifests
            .claims
            .pop()
            .map(|claim| Body::Claim(Claim { claim, spec: "spec", is_template: false })),
        "ResourceClaimTemplate" => manifests.templates.pop().map(|template| {
            let claim = of_template(&template);
            Body::Claim(Claim { claim, spec: "spec.spec", is_template: true })
        }),
        _ if pod_spec(&object.kind).is_some() => Some(Body::Pod),
        _ => None,
    };
    body.unwrap_or(Body::Other)
}

/// The claim that would be made of a template, under the template's name.
fn of_template(template: &ResourceClaimTemplate) -> ResourceClaim {
    let spec = template.spec.as_ref().and_then(|spec| spec.spec.clone());
    let mut claim = ResourceClaim { spec, ..ResourceClaim::default() };
    claim.metadata.name.clone_from(&template.metadata.name);
    claim.metadata.namespace.clone_from(&template.metadata.namespace);
    claim
}

/// The path from an object to its pod spec, of the kinds that have one.
pub(crate) fn pod_spec(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Pod" => "spec",
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => "spec.template.spec",
        "CronJob" => "spec.jobTemplate.spec.template.spec",
        _ => return None,
    })
}
