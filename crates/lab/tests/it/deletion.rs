//! How objects go: finalizers, grace, owners, namespaces.

use gpu_dra_lab::kinds::{NAMESPACE, NODE as NODES, POD, RESOURCE_CLAIM, RESOURCE_SLICE};
use gpu_dra_lab::{ApiServer, DeleteOptions, Subresource, WriteOptions};
use serde_json::{Value, json};

use super::support::{NODE, claim, pod, slice};

fn by() -> WriteOptions {
    WriteOptions::by("test")
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let api = ApiServer::new().unwrap();
    let mut held = claim("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.create(&RESOURCE_CLAIM, "default", held, &by()).unwrap();
    let options = DeleteOptions::default();
    let marked = api.delete(&RESOURCE_CLAIM, "default", "held", &options).unwrap();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    // Again changes nothing.
    let again = api.delete(&RESOURCE_CLAIM, "default", "held", &options).unwrap();
    assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    let mut released = (*again).clone();
    released["metadata"]["finalizers"] = json!([]);
    api.update(&RESOURCE_CLAIM, ("default", "held"), Subresource::Main, released, &by()).unwrap();
    assert_eq!(api.get(&RESOURCE_CLAIM, "default", "held").unwrap_err().code, 404);
}

#[test]
fn a_pod_on_a_node_has_its_grace_and_others_go_at_once() {
    let api = ApiServer::new().unwrap();
    for name in ["waiting", "placed"] {
        api.create(&POD, "default", pod(name, "c"), &by()).unwrap();
    }
    api.bind(("default", "placed"), NODE, &by()).unwrap();
    let taken = api.bind(("default", "placed"), "other", &by()).unwrap_err();
    assert_eq!((taken.code, taken.reason), (409, "Conflict"));
    let options = DeleteOptions::default();
    api.delete(&POD, "default", "waiting", &options).unwrap();
    assert_eq!(api.get(&POD, "default", "waiting").unwrap_err().code, 404);
    let marked = api.delete(&POD, "default", "placed", &options).unwrap();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    // Less is possible, more isn't.
    let longer = DeleteOptions { grace_period_seconds: Some(60), ..options };
    let same = api.delete(&POD, "default", "placed", &longer).unwrap();
    assert_eq!(same["metadata"]["deletionGracePeriodSeconds"], 30);
    api.delete(&POD, "default", "placed", &DeleteOptions::now()).unwrap();
    assert_eq!(api.get(&POD, "default", "placed").unwrap_err().code, 404);
}

fn owner(node: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]})
}

#[test]
fn an_object_of_two_owners_stays_for_the_other_one() {
    let api = ApiServer::new().unwrap();
    let node = |name: &str| {
        let node = json!({"metadata": {"name": name}});
        api.create(&NODES, "", node, &by()).unwrap().object
    };
    let (a, b) = (node("a"), node("b"));
    let mut shared = slice("shared", &[]);
    shared["metadata"]["ownerReferences"] = json!([owner(&a), owner(&b)]);
    api.create(&RESOURCE_SLICE, "", shared, &by()).unwrap();
    api.delete(&NODES, "", "a", &DeleteOptions::default()).unwrap();
    let left = api.get(&RESOURCE_SLICE, "", "shared").unwrap();
    assert_eq!(left["metadata"]["ownerReferences"], json!([owner(&b)]));
    let orphan = DeleteOptions { orphan: true, ..DeleteOptions::default() };
    api.delete(&NODES, "", "b", &orphan).unwrap();
    let left = api.get(&RESOURCE_SLICE, "", "shared").unwrap();
    assert!(left["metadata"].get("ownerReferences").is_none());
}

#[test]
fn a_namespace_takes_its_objects_along() {
    let api = ApiServer::new().unwrap();
    let refused = api.create(&RESOURCE_CLAIM, "team", claim("c"), &by()).unwrap_err();
    assert_eq!(refused.to_string(), "namespaces \"team\" not found");
    api.create(&NAMESPACE, "", json!({"metadata": {"name": "team"}}), &by()).unwrap();
    api.create(&RESOURCE_CLAIM, "team", claim("c"), &by()).unwrap();
    api.create(&RESOURCE_CLAIM, "default", claim("c"), &by()).unwrap();
    api.delete(&NAMESPACE, "", "team", &DeleteOptions::default()).unwrap();
    assert_eq!(api.get(&RESOURCE_CLAIM, "team", "c").unwrap_err().code, 404);
    assert!(api.get(&RESOURCE_CLAIM, "default", "c").is_ok());
}
