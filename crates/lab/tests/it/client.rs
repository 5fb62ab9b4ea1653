//! Round trips with kube's client, in process and over HTTP.

use k8s_openapi::api::core::v1::{Event, Node, ObjectReference};
use k8s_openapi::api::resource::v1::{
    Device, DeviceClass, ResourceClaim, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use super::support::{Home, NODE, over_http};

fn slice(name: &str) -> ResourceSlice {
    ResourceSlice {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: ResourceSliceSpec {
            driver: "gpu.nvidia.com".to_owned(),
            node_name: Some(NODE.to_owned()),
            pool: ResourcePool { name: NODE.to_owned(), generation: 1, resource_slice_count: 1 },
            devices: Some(vec![Device { name: "gpu-0".to_owned(), ..Device::default() }]),
            ..ResourceSliceSpec::default()
        },
    }
}

fn code(err: kube::Error) -> u16 {
    match err {
        kube::Error::Api(status) => status.code,
        other => panic!("{other:?}"),
    }
}

async fn round_trip(client: Client) {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let post = PostParams { field_manager: Some("test".to_owned()), ..PostParams::default() };
    let mut made = slices.create(&post, &slice("a")).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(code(slices.create(&post, &slice("a")).await.unwrap_err()), 409);

    let mut generated = slice("");
    generated.metadata =
        ObjectMeta { generate_name: Some("00000-gpu-".to_owned()), ..ObjectMeta::default() };
    let generated = slices.create(&post, &generated).await.unwrap();
    assert!(generated.metadata.name.as_ref().unwrap().starts_with("00000-gpu-"));

    let stale = made.clone();
    made.spec.pool.generation = 2;
    let replaced = slices.replace("a", &post, &made).await.unwrap();
    assert_eq!(replaced.metadata.generation, Some(2));
    assert_eq!(code(slices.replace("a", &post, &stale).await.unwrap_err()), 409);
    // Nothing changed: no new revision.
    let again = slices.replace("a", &post, &replaced).await.unwrap();
    assert_eq!(again.metadata.resource_version, replaced.metadata.resource_version);

    let mine =
        ListParams::default().fields(&format!("spec.driver=gpu.nvidia.com,spec.nodeName={NODE}"));
    assert_eq!(slices.list(&mine).await.unwrap().items.len(), 2);
    let none = ListParams::default().fields("spec.driver=other");
    assert_eq!(slices.list(&none).await.unwrap().items.len(), 0);
    let first = slices.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (1, Some(1)));
    let next = ListParams::default().limit(1).continue_token(&first.metadata.continue_.unwrap());
    let second = slices.list(&next).await.unwrap();
    assert_ne!(first.items[0].metadata.name, second.items[0].metadata.name);
    assert_eq!(second.metadata.continue_, None);

    let wrong = Preconditions { uid: Some("other".to_owned()), resource_version: None };
    let params = DeleteParams::default().preconditions(wrong);
    assert_eq!(code(slices.delete("a", &params).await.unwrap_err()), 409);
    slices.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(slices.delete("a", &DeleteParams::default()).await.unwrap_err()), 404);
    assert!(slices.get_opt("a").await.unwrap().is_none());
    slices.delete_collection(&DeleteParams::default(), &mine).await.unwrap();
    assert_eq!(slices.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn objects_make_the_round_trip_in_process() {
    round_trip(Home::new().await.lab.client()).await;
}

#[tokio::test]
async fn objects_make_the_round_trip_over_http() {
    let home = Home::new().await;
    let client = over_http(&home.lab).await;
    let version = client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    round_trip(client).await;
}

#[tokio::test]
async fn slices_go_with_their_node() {
    let home = Home::new().await;
    let client = home.lab.client();
    let node = Api::<Node>::all(client.clone()).get(NODE).await.unwrap();
    let mut owned = slice("owned");
    owned.metadata.owner_references =
        Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: NODE.to_owned(),
            uid: node.metadata.uid.unwrap(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    slices.create(&PostParams::default(), &owned).await.unwrap();
    slices.create(&PostParams::default(), &slice("free")).await.unwrap();
    Api::<Node>::all(client).delete(NODE, &DeleteParams::default()).await.unwrap();
    let left = slices.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        left.items.iter().map(|s| s.metadata.name.as_deref().unwrap()).collect::<Vec<_>>(),
        ["free"]
    );
}

#[tokio::test]
async fn patches_of_all_kinds() {
    let home = Home::new().await;
    let classes: Api<DeviceClass> = Api::all(home.lab.client());
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}});
    let by = PatchParams::apply("a");
    let made = classes.patch("c", &by, &Patch::Apply(&class)).await.unwrap();
    let [owner] = made.metadata.managed_fields.as_deref().unwrap() else { panic!("one owner") };
    assert_eq!(owner.fields_v1.as_ref().unwrap().0, json!({"f:spec": {}}));

    let labels = |value: &str| json!({"metadata": {"labels": {"team": value}}});
    let merged =
        classes.patch("c", &PatchParams::default(), &Patch::Merge(labels("x"))).await.unwrap();
    assert_eq!(merged.metadata.labels.unwrap()["team"], "x");
    let strategic =
        classes.patch("c", &PatchParams::default(), &Patch::Strategic(labels("y"))).await.unwrap();
    assert_eq!(strategic.metadata.labels.unwrap()["team"], "y");
    let operations = json!([{"op": "replace", "path": "/metadata/labels/team", "value": "z"}]);
    let patch = Patch::Json::<()>(serde_json::from_value(operations).unwrap());
    let patched = classes.patch("c", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.metadata.labels.unwrap()["team"], "z");
}

fn labelled(labels: serde_json::Value) -> Patch<serde_json::Value> {
    Patch::Apply(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "c", "labels": labels}, "spec": {},
    }))
}

#[tokio::test]
async fn server_side_apply_knows_who_owns_what() {
    let home = Home::new().await;
    let classes: Api<DeviceClass> = Api::all(home.lab.client());
    let (a, b) = (PatchParams::apply("a"), PatchParams::apply("b"));
    classes.patch("c", &a, &labelled(json!({"one": "1", "two": "2"}))).await.unwrap();
    // The same value may have two owners, another value may not.
    classes.patch("c", &b, &labelled(json!({"one": "1"}))).await.unwrap();
    let refused = classes.patch("c", &b, &labelled(json!({"one": "x"}))).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused:?}") };
    assert_eq!(status.code, 409);
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"a\": .metadata.labels.one"
    );
    assert_eq!(status.details.unwrap().causes[0].field, ".metadata.labels.one");
    let forced =
        classes.patch("c", &b.clone().force(), &labelled(json!({"one": "x"}))).await.unwrap();
    let labels = forced.metadata.labels.unwrap();
    assert_eq!((labels["one"].as_str(), labels["two"].as_str()), ("x", "2"));
    // What its owner no longer names goes, unless another owns it too.
    let left = classes.patch("c", &a, &labelled(json!({}))).await.unwrap();
    let labels = left.metadata.labels.unwrap();
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), [("one".to_owned(), "x".to_owned())]);
    // An update takes fields over.
    let edit = json!({"metadata": {"labels": {"one": "edited"}}});
    let by = PatchParams { field_manager: Some("editor".to_owned()), ..PatchParams::default() };
    classes.patch("c", &by, &Patch::Merge(edit)).await.unwrap();
    let refused = classes.patch("c", &b, &labelled(json!({"one": "x"}))).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused:?}") };
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"editor\" using resource.k8s.io/v1: .metadata.labels.one"
    );
}

#[tokio::test]
async fn an_item_of_a_keyed_list_can_be_given_up() {
    let home = Home::new().await;
    let classes: Api<DeviceClass> = Api::all(home.lab.client());
    let class = |owners: serde_json::Value| {
        Patch::Apply(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": "c", "ownerReferences": owners}, "spec": {},
        }))
    };
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid});
    let by = PatchParams::apply("a");
    classes.patch("c", &by, &class(json!([owner("u1"), owner("u2")]))).await.unwrap();
    let left = classes.patch("c", &by, &class(json!([owner("u2")]))).await.unwrap();
    let uids: Vec<_> =
        left.metadata.owner_references.into_iter().flatten().map(|o| o.uid).collect();
    assert_eq!(uids, ["u2"]);
    let none = classes.patch("c", &by, &class(json!([]))).await.unwrap();
    assert_eq!(none.metadata.owner_references.unwrap_or_default(), []);
}

#[tokio::test]
async fn applied_twice_is_applied_once() {
    let home = Home::new().await;
    let client = home.lab.client();
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let mut wanted = serde_json::to_value(slice("s")).unwrap();
    wanted["spec"]["devices"][0]["taints"] = json!([{"key": "x", "effect": "NoSchedule"}]);
    let by = PatchParams::apply("a");
    let first = slices.patch("s", &by, &Patch::Apply(&wanted)).await.unwrap();
    let again = slices.patch("s", &by, &Patch::Apply(&wanted)).await.unwrap();
    assert_eq!(first.metadata.resource_version, again.metadata.resource_version);

    let claims: Api<ResourceClaim> = Api::default_namespaced(client);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}]}},
    });
    let first = claims.patch("c", &by, &Patch::Apply(&claim)).await.unwrap();
    // The spec is immutable, and the defaults that the server added are no change.
    let again = claims.patch("c", &by, &Patch::Apply(&claim)).await.unwrap();
    assert_eq!(first.metadata.resource_version, again.metadata.resource_version);
}

#[tokio::test]
async fn events_are_seen_in_both_groups() {
    let home = Home::new().await;
    let client = home.lab.client();
    let reporter =
        kube::runtime::events::Reporter { controller: "gpu-dra".to_owned(), instance: None };
    let recorder = kube::runtime::events::Recorder::new(client.clone(), reporter);
    let node = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(NODE.to_owned()),
        uid: Some("u".to_owned()),
        ..ObjectReference::default()
    };
    let event = kube::runtime::events::Event {
        type_: kube::runtime::events::EventType::Warning,
        reason: "FieldsDropped".to_owned(),
        note: Some("consumesCounters is gone".to_owned()),
        action: "Publish".to_owned(),
        secondary: None,
    };
    recorder.publish(&event, &node).await.unwrap();
    // The same again is counted in the one event.
    recorder.publish(&event, &node).await.unwrap();
    let events: Api<Event> = Api::all(client);
    let about =
        ListParams::default().fields(&format!("involvedObject.name={NODE},reason=FieldsDropped"));
    let found = events.list(&about).await.unwrap();
    assert_eq!(found.items.len(), 1);
    assert_eq!(found.items[0].message.as_deref(), Some("consumesCounters is gone"));
    assert_eq!(found.items[0].reporting_component.as_deref(), Some("gpu-dra"));
    assert_eq!(found.items[0].series.as_ref().unwrap().count, Some(2));
}
