//! The OpenAPI v3 documents, made from the field tables: enough for kubectl to know that the server checks
//! fields itself, for `kubectl explain`, and for merges on the client's side.

use serde_json::{Map, Value, json};

use crate::kinds::{KINDS, Kind};
use crate::schema::{self, Merge, Scalar, Shape};

/// The document of a path.
pub(super) fn document(path: &str) -> Option<Value> {
    let rest = path.strip_prefix("/openapi/v3")?;
    if rest.trim_matches('/').is_empty() {
        let mut paths = Map::new();
        for kind in KINDS {
            let root = root(kind);
            let url = format!("/openapi/v3/{root}");
            paths.insert(root, json!({"serverRelativeURL": url}));
        }
        return Some(json!({"paths": paths}));
    }
    let wanted = rest.trim_matches('/');
    let kinds: Vec<&Kind> = KINDS.into_iter().filter(|kind| root(kind) == wanted).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for kind in kinds {
        let (collection, one) = addresses(kind);
        paths.insert(collection, operations(kind, &["get", "post", "delete"]));
        paths.insert(one, operations(kind, &["get", "put", "patch", "delete"]));
        collect(kind.schema, &mut schemas);
        schemas[&name_of(kind.schema)]["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": crate::KUBERNETES_VERSION},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

fn root(kind: &Kind) -> String {
    match kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

fn addresses(kind: &Kind) -> (String, String) {
    let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("/{}{namespace}/{}", root(kind), kind.plural);
    let one = format!("{collection}/{{name}}");
    (collection, one)
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn operations(kind: &Kind, verbs: &[&str]) -> Value {
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
        .collect();
    let schema = json!({"$ref": format!("#/components/schemas/{}", name_of(kind.schema))});
    let mut item = Map::new();
    for verb in verbs {
        let action = if *verb == "get" { "list" } else { verb };
        item.insert((*verb).to_owned(), json!({
            "parameters": parameters, "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(kind),
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        }));
    }
    Value::Object(item)
}

/// The full name that Kubernetes gives the type.
fn name_of(name: &str) -> String {
    let package = match name {
        "ObjectMeta" | "OwnerReference" | "Condition" => "io.k8s.apimachinery.pkg.apis.meta.v1",
        "EventV1" => return "io.k8s.api.events.v1.Event".to_owned(),
        "Lease" | "LeaseSpec" => "io.k8s.api.coordination.v1",
        name if name.starts_with("Resource") && name != "ResourceRequirements" => {
            "io.k8s.api.resource.v1"
        }
        name if [
            "Device",
            "Counter",
            "Capacity",
            "CEL",
            "ExactDevice",
            "Allocat",
            "Opaque",
            "NetworkDevice",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix)) =>
        {
            "io.k8s.api.resource.v1"
        }
        _ => "io.k8s.api.core.v1",
    };
    format!("{package}.{name}")
}

/// Adds a type and all that it uses.
fn collect(name: &'static str, schemas: &mut Map<String, Value>) {
    if schemas.contains_key(&name_of(name)) {
        return;
    }
    schemas.insert(name_of(name), Value::Null);
    let mut properties = Map::new();
    for (field, spec) in schema::fields(name) {
        properties.insert((*field).to_owned(), property(&spec.shape, schemas));
    }
    schemas.insert(name_of(name), json!({"type": "object", "properties": properties}));
}

fn property(shape: &Shape, schemas: &mut Map<String, Value>) -> Value {
    match shape {
        Shape::Scalar(scalar) => match scalar {
            Scalar::String | Scalar::Quantity => json!({"type": "string"}),
            Scalar::Time => json!({"type": "string", "format": "date-time"}),
            Scalar::Bool => json!({"type": "boolean"}),
            Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
            Scalar::Int64 => json!({"type": "integer", "format": "int64"}),
            Scalar::Raw => json!({"type": "object"}),
            Scalar::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        },
        Shape::Struct(name) => {
            collect(name, schemas);
            json!({"allOf": [{"$ref": format!("#/components/schemas/{}", name_of(name))}]})
        }
        Shape::Map(element, _) => {
            json!({"type": "object", "additionalProperties": property(element, schemas)})
        }
        Shape::List(element, merge) => {
            let mut list = json!({"type": "array", "items": property(element, schemas)});
            match merge {
                Merge::Atomic => list["x-kubernetes-list-type"] = "atomic".into(),
                Merge::Each => list["x-kubernetes-list-type"] = "set".into(),
                Merge::Keys(keys) => {
                    list["x-kubernetes-list-type"] = "map".into();
                    list["x-kubernetes-list-map-keys"] = json!(keys);
                    list["x-kubernetes-patch-strategy"] = "merge".into();
                    list["x-kubernetes-patch-merge-key"] = json!(keys.first());
                }
            }
            list
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_the_apis() {
        let document = document("/openapi/v3/apis/resource.k8s.io/v1").unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(schemas.contains_key("io.k8s.api.resource.v1.DeviceAttribute"));
        assert!(schemas.contains_key("io.k8s.api.core.v1.NodeSelector"));
        let unresolved = schemas.values().filter(|schema| schema.is_null()).count();
        assert_eq!(unresolved, 0);
        assert!(super::document("/openapi/v3/apis/none/v1").is_none());
    }
}
