//! What the tests share: the inventory that the cases are judged against, and documents.

use std::path::PathBuf;

use gpu_dra_explain::manifest::Manifests;
use gpu_dra_lint::{Document, Finding, Fleet, Severity, lint};

pub(crate) fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

pub(crate) fn repository(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The inventory of the cases.
pub(crate) fn inventory() -> Fleet {
    let text = std::fs::read_to_string(data("inventory.yaml")).unwrap();
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let mut all = Manifests::default();
    for document in documents {
        all.add(document, "default");
    }
    Fleet {
        name: "inventory".to_owned(),
        slices: all.slices.into_iter().collect(),
        nodes: all.nodes,
        classes: Some(all.classes),
    }
}

pub(crate) fn findings(text: &str, fleet: Option<&Fleet>) -> Vec<Finding> {
    lint(&Document::parse("test.yaml", text).unwrap(), fleet)
}

/// `error cel-runtime: …`, those worse than a hint first.
pub(crate) fn lines(findings: &[Finding]) -> Vec<String> {
    let line =
        |finding: &Finding| format!("{} {}: {}", finding.severity, finding.rule, finding.message);
    findings.iter().map(line).collect()
}

/// Findings that are more than hints.
pub(crate) fn worse(findings: &[Finding]) -> Vec<String> {
    let worse: Vec<Finding> =
        findings.iter().filter(|f| f.severity != Severity::Hint).cloned().collect();
    lines(&worse)
}

/// A claim of the class with a selector.
pub(crate) fn claim(class: &str, expression: &str) -> String {
    let claim = serde_json::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": class, "selectors": [{"cel": {"expression": expression}}],
        }}]}},
    });
    claim.to_string()
}
