//! Objects as people write them: documents of YAML files, of every served API version, with
//! what the API server would refuse in their shape. Reading files is the caller's.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::report::Advice;

/// Compiles an object to the DeviceClass that it declares, as the controller's GpuClass does;
/// None: it is of a kind that declares none. How is the caller's.
pub type Compile<'c> = dyn Fn(&Value) -> Option<Result<DeviceClass, Vec<Fault>>> + 'c;

/// What is wrong with a field of an object that declares a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field, such as `spec.model.names[0]`.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

/// An object by its name. Pods of workloads are pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// `Pod`, `ResourceClaim` and the like.
    pub kind: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    pub(crate) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(kind: &str, metadata: &ObjectMeta) -> Self {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        Self::new(kind, &part(&metadata.namespace), &part(&metadata.name))
    }
}

/// What the API server would refuse of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The object.
    pub object: ObjectName,
    /// What is refused, and what to write instead.
    pub advice: Advice,
}

/// What is in the files.
#[derive(Debug, Clone, Default)]
pub struct Manifests {
    /// Pods, those of workloads too.
    pub pods: Vec<Pod>,
    /// Claims.
    pub claims: Vec<ResourceClaim>,
    /// Templates.
    pub templates: Vec<ResourceClaimTemplate>,
    /// Classes.
    pub classes: Vec<DeviceClass>,
    /// Slices.
    pub slices: Vec<ResourceSlice>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Namespaces.
    pub namespaces: Vec<Namespace>,
    /// What the API server would refuse.
    pub refused: Vec<Refusal>,
    /// What it would warn of.
    pub warnings: Vec<Advice>,
}

impl Manifests {
    /// Adds a document; `namespace` is for those that name none. Kinds without devices are
    /// passed over.
    pub fn add(&mut self, document: Value, namespace: &str) {
        self.add_with(document, namespace, &|_| None);
    }

    /// As [`Self::add`], with the classes that other kinds of objects declare.
    pub fn add_with(&mut self, document: Value, namespace: &str, compile: &Compile<'_>) {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let mut document = document;
        if !document.is_object() {
            let advice = Advice::new("a document", "it is no object", None);
            self.refused.push(Refusal { object: ObjectName::new("", "", ""), advice });
            return;
        }
        let version = document["apiVersion"].as_str().unwrap_or_default().to_owned();
        if version.starts_with("resource.k8s.io/") {
            document["apiVersion"] = "resource.k8s.io/v1".into();
        }
        if kind == "List" || kind.ends_with("List") && document["items"].is_array() {
            let items = document["items"].take();
            for item in items.as_array().cloned().unwrap_or_default() {
                self.add_with(item, namespace, compile);
            }
            return;
        }
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        let about = format!("{kind} {name}");
        let given = document["metadata"]["namespace"].as_str().unwrap_or(namespace);
        let named = |kind: &str| This { about: &about, name: ObjectName::new(kind, given, name) };
        match kind.as_str() {
            "Pod" => {
                let this = named("Pod");
                self.pod_shape(&this, &mut document["spec"]);
                self.put(&this, namespaced(document, namespace), |m| &mut m.pods);
            }
            "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" | "CronJob" => {
                self.workload(&named("Pod"), document, namespace);
            }
            "ResourceClaim" => {
                let this = named(&kind);
                self.claim_shape(&this, &version, &mut document, "/spec");
                self.put(&this, namespaced(document, namespace), |m| &mut m.claims);
            }
            "ResourceClaimTemplate" => {
                let this = named(&kind);
                self.claim_shape(&this, &version, &mut document, "/spec/spec");
                self.put(&this, namespaced(document, namespace), |m| &mut m.templates);
            }
            "DeviceClass" => self.put(&named(&kind), document, |m| &mut m.classes),
            "ResourceSlice" => {
                let this = named(&kind);
                slice_shape(&mut document);
                self.put(&this, document, |m| &mut m.slices);
            }
            "Node" => self.put(&named(&kind), document, |m| &mut m.nodes),
            "Namespace" => self.put(&named(&kind), document, |m| &mut m.namespaces),
            _ => match compile(&document) {
                Some(Ok(class)) => self.classes.push(class),
                Some(Err(faults)) => {
                    let this = named("DeviceClass");
                    for Fault { path, reason } in faults {
                        self.refuse(&this, Advice::new(format!("{about}, {path}"), reason, None));
                    }
                }
                None => {}
            },
        }
    }

    fn put<T: DeserializeOwned>(
        &mut self,
        this: &This<'_>,
        document: Value,
        list: impl Fn(&mut Self) -> &mut Vec<T>,
    ) {
        match serde_json::from_value(document) {
            Ok(object) => list(self).push(object),
            Err(error) => {
                let advice = Advice::new(this.about, format!("can't be read: {error}"), None);
                self.refuse(this, advice);
            }
        }
    }

    fn refuse(&mut self, this: &This<'_>, advice: Advice) {
        self.refused.push(Refusal { object: this.name.clone(), advice });
    }

    /// The pod that a workload makes, under the workload's name.
    fn workload(&mut self, this: &This<'_>, mut document: Value, namespace: &str) {
        let mut job = document.pointer_mut("/spec/jobTemplate").map(Value::take);
        let template = job.as_mut().unwrap_or(&mut document).pointer_mut("/spec/template");
        let template = template.map(Value::take).unwrap_or_default();
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"],
            "spec": template["spec"],
        });
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        pod["metadata"]["name"] = document["metadata"]["name"].clone();
        if let Some(given) = document["metadata"]["namespace"].as_str() {
            pod["metadata"]["namespace"] = given.into();
        }
        self.pod_shape(this, &mut pod["spec"]);
        self.put(this, namespaced(pod, namespace), |m| &mut m.pods);
    }

    /// `source` was left out of the API in 1.31.
    fn pod_shape(&mut self, this: &This<'_>, spec: &mut Value) {
        let claims = spec.get_mut("resourceClaims").and_then(Value::as_array_mut);
        for entry in claims.into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default().to_owned();
            let Some(source) = entry.as_object_mut().and_then(|entry| entry.remove("source"))
            else {
                continue;
            };
            let fields: Map<String, Value> = source.as_object().cloned().unwrap_or_default();
            let moved: Vec<String> = fields
                .iter()
                .map(|(field, value)| format!("{field}: {}", value.as_str().unwrap_or_default()))
                .collect();
            let advice = Advice::new(
                format!("{}, resourceClaims[{name}]", this.about),
                "unknown field source: it was left out of the API, its fields moved up",
                format!("source.X -> X: {{name: {name}, {}}}", moved.join(", ")),
            );
            self.refuse(this, advice);
            if let Some(entry) = entry.as_object_mut() {
                entry.extend(fields);
            }
        }
    }

    /// Requests of older versions are flat; in v1 their fields live under `exactly`.
    fn claim_shape(&mut self, this: &This<'_>, version: &str, document: &mut Value, spec: &str) {
        let version = version.strip_prefix("resource.k8s.io/").unwrap_or_default();
        let requests = document.pointer_mut(&format!("{spec}/devices/requests"));
        let requests = requests.and_then(Value::as_array_mut);
        let mut flat = false;
        for request in requests.into_iter().flatten() {
            let Some(fields) = request.as_object_mut() else { continue };
            let is_flat =
                |name: &&String| !matches!(name.as_str(), "name" | "exactly" | "firstAvailable");
            let names: Vec<String> = fields.keys().filter(is_flat).cloned().collect();
            if names.is_empty() {
                continue;
            }
            flat = true;
            let moved: Map<String, Value> =
                names.iter().filter_map(|name| fields.remove_entry(name)).collect();
            let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if version == "v1" || version == "v1beta2" {
                let advice = Advice::new(
                    format!("{}, request {name}", this.about),
                    format!(
                        "unknown field {}: in {version} these fields live under exactly:",
                        names.join(", ")
                    ),
                    json!({"name": name, "exactly": moved}).to_string(),
                );
                self.refuse(this, advice);
            }
            fields.insert("exactly".to_owned(), Value::Object(moved));
        }
        if version.starts_with("v1beta") || version.starts_with("v1alpha") {
            let mut fix = "write apiVersion: resource.k8s.io/v1".to_owned();
            if flat {
                fix.push_str(", with the fields of each request under exactly:");
            }
            self.warnings.push(Advice::new(
                this.about,
                format!("resource.k8s.io/{version} is deprecated and goes with Kubernetes 1.38"),
                fix,
            ));
        }
    }
}

/// The object that is being added.
struct This<'d> {
    /// As it is called in advice.
    about: &'d str,
    name: ObjectName,
}

fn namespaced(mut document: Value, namespace: &str) -> Value {
    if document["metadata"]["namespace"].as_str().is_none() && document["metadata"].is_object() {
        document["metadata"]["namespace"] = namespace.into();
    }
    document
}

/// In v1beta1 a device's fields live under `basic`.
fn slice_shape(document: &mut Value) {
    let devices = document.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten() {
        let Some(fields) = device.as_object_mut() else { continue };
        if let Some(Value::Object(basic)) = fields.remove("basic") {
            fields.extend(basic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_odd_value_anywhere_makes_it_panic() {
        let kinds = [
            "Pod",
            "Deployment",
            "CronJob",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "DeviceClass",
            "ResourceSlice",
            "Node",
            "List",
        ];
        let odd = [json!(null), json!(3), json!("x"), json!([1]), json!({"spec": 3}), json!({})];
        let mut read = Manifests::default();
        for odd in &odd {
            read.add(odd.clone(), "default");
            for kind in kinds {
                for field in ["metadata", "spec", "items", "apiVersion"] {
                    let mut document = json!({"kind": kind, "apiVersion": "resource.k8s.io/v1"});
                    document[field] = odd.clone();
                    read.add(document, "default");
                }
                for inner in ["template", "jobTemplate", "devices", "resourceClaims", "spec"] {
                    let document = json!({"kind": kind, "spec": {inner: odd}});
                    read.add(document, "default");
                }
            }
        }
        assert!(!read.refused.is_empty());
    }
}
