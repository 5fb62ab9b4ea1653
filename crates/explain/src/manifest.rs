//! Objects as people write them: documents of YAML files, of every served API version, with
//! what the API server would refuse in their shape. Reading files is the caller's.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::report::Advice;

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
    pub refused: Vec<Advice>,
    /// What it would warn of.
    pub warnings: Vec<Advice>,
}

impl Manifests {
    /// Adds a document; `namespace` is for those that name none. Kinds without devices are
    /// passed over.
    pub fn add(&mut self, document: Value, namespace: &str) {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let mut document = document;
        if !document.is_object() {
            self.refused.push(Advice::new("a document", "it is no object", None));
            return;
        }
        let version = document["apiVersion"].as_str().unwrap_or_default().to_owned();
        if version.starts_with("resource.k8s.io/") {
            document["apiVersion"] = "resource.k8s.io/v1".into();
        }
        if kind == "List" || kind.ends_with("List") && document["items"].is_array() {
            let items = document["items"].take();
            for item in items.as_array().cloned().unwrap_or_default() {
                self.add(item, namespace);
            }
            return;
        }
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        let about = format!("{kind} {name}");
        match kind.as_str() {
            "Pod" => {
                self.pod_shape(&about, &mut document["spec"]);
                self.put(&about, namespaced(document, namespace), |m| &mut m.pods);
            }
            "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" | "CronJob" => {
                self.workload(&about, document, namespace);
            }
            "ResourceClaim" => {
                self.claim_shape(&about, &version, &mut document, "/spec");
                self.put(&about, namespaced(document, namespace), |m| &mut m.claims);
            }
            "ResourceClaimTemplate" => {
                self.claim_shape(&about, &version, &mut document, "/spec/spec");
                self.put(&about, namespaced(document, namespace), |m| &mut m.templates);
            }
            "DeviceClass" => self.put(&about, document, |m| &mut m.classes),
            "ResourceSlice" => {
                slice_shape(&mut document);
                self.put(&about, document, |m| &mut m.slices);
            }
            "Node" => self.put(&about, document, |m| &mut m.nodes),
            "Namespace" => self.put(&about, document, |m| &mut m.namespaces),
            _ => {}
        }
    }

    fn put<T: DeserializeOwned>(
        &mut self,
        about: &str,
        document: Value,
        list: impl Fn(&mut Self) -> &mut Vec<T>,
    ) {
        match serde_json::from_value(document) {
            Ok(object) => list(self).push(object),
            Err(error) => {
                let advice = Advice::new(about, format!("can't be read: {error}"), None);
                self.refused.push(advice);
            }
        }
    }

    /// The pod that a workload makes, under the workload's name.
    fn workload(&mut self, about: &str, mut document: Value, namespace: &str) {
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
        self.pod_shape(about, &mut pod["spec"]);
        self.put(about, namespaced(pod, namespace), |m| &mut m.pods);
    }

    /// `source` was left out of the API in 1.31.
    fn pod_shape(&mut self, about: &str, spec: &mut Value) {
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
            self.refused.push(Advice::new(
                format!("{about}, resourceClaims[{name}]"),
                "unknown field source: it was left out of the API, its fields moved up",
                format!("source.X -> X: {{name: {name}, {}}}", moved.join(", ")),
            ));
            if let Some(entry) = entry.as_object_mut() {
                entry.extend(fields);
            }
        }
    }

    /// Requests of older versions are flat; in v1 their fields live under `exactly`.
    fn claim_shape(&mut self, about: &str, version: &str, document: &mut Value, spec: &str) {
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
                self.refused.push(Advice::new(
                    format!("{about}, request {name}"),
                    format!(
                        "unknown field {}: in {version} these fields live under exactly:",
                        names.join(", ")
                    ),
                    json!({"name": name, "exactly": moved}).to_string(),
                ));
            }
            fields.insert("exactly".to_owned(), Value::Object(moved));
        }
        if version.starts_with("v1beta") || version.starts_with("v1alpha") {
            let mut fix = "write apiVersion: resource.k8s.io/v1".to_owned();
            if flat {
                fix.push_str(", with the fields of each request under exactly:");
            }
            self.warnings.push(Advice::new(
                about,
                format!("resource.k8s.io/{version} is deprecated and goes with Kubernetes 1.38"),
                fix,
            ));
        }
    }
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
