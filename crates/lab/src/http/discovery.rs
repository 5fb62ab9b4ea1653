//! Discovery: which groups, versions and resources there are, and the server's version.

use serde_json::{Value, json};

use crate::api::KUBERNETES_VERSION;
use crate::kinds::{KINDS, Kind};

const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The discovery document of a path.
pub(super) fn document(path: &str) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        [] => Some(json!({"paths": ["/api", "/api/v1", "/apis", "/openapi/v3", "/version"]})),
        ["version"] => Some(version()),
        ["api"] => Some(
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
        ["api", version] => resources("", version),
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(group).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => groups().contains(name).then(|| {
            let mut group = group(name);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }),
        ["apis", group, version] => resources(group, version),
        _ => None,
    }
}

fn version() -> Value {
    let mut parts = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    json!({
        "major": parts.next(), "minor": parts.next(), "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// The named groups in order; the core group is apart.
fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = KINDS.iter().map(|kind| kind.group).collect();
    groups.retain(|group| !group.is_empty());
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<&Kind> =
        KINDS.into_iter().filter(|kind| kind.group == group && kind.version == version).collect();
    let first = kinds.first()?;
    let mut list = Vec::new();
    for kind in &kinds {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular(), "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": VERBS,
        });
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        list.push(resource);
        if kind.status {
            list.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": kind.kind, "verbs": ["get", "patch", "update"],
            }));
        }
        if kind.plural == "pods" {
            list.push(json!({
                "name": "pods/binding", "singularName": "", "namespaced": true,
                "kind": "Binding", "verbs": ["create"],
            }));
        }
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": first.api_version(),
        "resources": list,
    }))
}
