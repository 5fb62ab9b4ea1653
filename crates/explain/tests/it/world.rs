//! A cluster from YAML, and reports on the pods of a file.

use std::collections::BTreeMap;

use gpu_dra_explain::manifest::Manifests;
use gpu_dra_explain::{Cluster, Explainer, Known, Question, Report, Slices};
use serde_json::Value;

pub(crate) const INVENTORY: &str = include_str!("../data/inventory.yaml");

pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

/// What is in the files, later slices and nodes in place of earlier ones of their name.
pub(crate) fn manifests(files: &[&str]) -> Manifests {
    let mut all = Manifests::default();
    for document in files.iter().flat_map(|file| documents(file)) {
        all.add(document, "default");
    }
    let mut slices: Vec<k8s_openapi::api::resource::v1::ResourceSlice> = Vec::new();
    for slice in all.slices.drain(..) {
        slices.retain(|known| known.metadata.name != slice.metadata.name);
        slices.push(slice);
    }
    all.slices = slices;
    let mut nodes: Vec<k8s_openapi::api::core::v1::Node> = Vec::new();
    for node in all.nodes.drain(..) {
        nodes.retain(|known| known.metadata.name != node.metadata.name);
        nodes.push(node);
    }
    all.nodes = nodes;
    all
}

/// Reports on every pod of the files in order, each after those before it have their devices.
pub(crate) fn reports(files: &[&str]) -> Vec<Report> {
    let all = manifests(files);
    let admin = all.namespaces.iter().map(|namespace| {
        let labels = namespace.metadata.labels.as_ref();
        let label = "resource.kubernetes.io/admin-access";
        let allows = labels.is_some_and(|l| l.get(label).is_some_and(|value| value == "true"));
        (namespace.metadata.name.clone().unwrap(), allows)
    });
    let admin: BTreeMap<String, bool> = admin.collect();
    let slices: Slices = all.slices.into_iter().collect();
    let cluster = Cluster {
        slices: &slices,
        classes: &all.classes,
        claims: &all.claims,
        nodes: &all.nodes,
        admin_access: Some(&admin),
    };
    let known = Known { claims: &all.claims, templates: &all.templates, classes: &all.classes };
    let mut explainer = Explainer::new(cluster);
    let mut questions: Vec<Question> =
        all.pods.iter().map(|pod| Question::of_pod(pod, &known)).collect();
    if questions.is_empty() {
        questions.extend(all.claims.iter().map(Question::of_claim));
        questions.extend(all.templates.iter().map(Question::of_template));
    }
    let questions = questions.into_iter().map(|question| question.refused_by(&all.refused));
    questions.map(|question| explainer.explain_and_take(&question, &mut |_| {})).collect()
}
