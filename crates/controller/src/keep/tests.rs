//! Whose a class is, what is done about it, and what a GpuClass is told.

use std::collections::BTreeSet;

use gpu_dra_model::DriverName;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::judge::{Judgement, is_left_over, judge};
use super::state::State;
use super::status::{Standing, only_counts_differ};
use super::watches::{Change, News};
use crate::declare::{GpuClass, GpuClassStatus, Origin, compile};

fn driver() -> DriverName {
    DriverName::new("gpu.nvidia.com").unwrap()
}

fn gpu_class(uid: &str, spec: &Value) -> GpuClass {
    serde_json::from_value(json!({
        "metadata": {"name": "c", "uid": uid, "generation": 3}, "spec": spec,
    }))
    .unwrap()
}

fn wanted(uid: &str, spec: &Value) -> DeviceClass {
    compile(&gpu_class(uid, spec), &driver()).unwrap().class
}

fn with(mut class: DeviceClass, change: impl Fn(&mut Value)) -> DeviceClass {
    let mut value = serde_json::to_value(&class).unwrap();
    change(&mut value);
    class = serde_json::from_value(value).unwrap();
    class
}

#[test]
fn a_class_is_written_only_if_it_is_ours() {
    let want = wanted("u", &json!({"profile": "1g.10gb"}));
    let judge = |live: Option<&DeviceClass>| judge(&want, Origin::GpuClass, live);
    assert_eq!(judge(None), Judgement::Write);
    assert_eq!(judge(Some(&want)), Judgement::Good);
    let noted = with(want.clone(), |v| v["metadata"]["annotations"] = json!({"a": "b"}));
    assert_eq!(judge(Some(&noted)), Judgement::Good, "others may add what we don't speak of");
    let edited = with(want.clone(), |v| v["spec"]["extendedResourceName"] = json!("a.com/b"));
    assert_eq!(judge(Some(&edited)), Judgement::Write);
    for (change, whose) in [
        (json!({"labels": null}), "kept by somebody else"),
        (json!({"labels": null, "managedFields": [{"manager": "helm"}]}), "kept by helm"),
        (json!({"labels": {"gpu-dra.io/made-from": "fleet"}}), "made from the fleet"),
        (json!({"labels": {"gpu-dra.io/made-from": "standard"}}), "a standard class"),
        (json!({"ownerReferences": null}), "another GpuClass's"),
    ] {
        let theirs = with(want.clone(), |v| {
            for (key, value) in change.as_object().unwrap() {
                v["metadata"][key] = value.clone();
            }
        });
        assert_eq!(judge(Some(&theirs)), Judgement::Foreign(whose.to_owned()));
    }
    let spec = json!({"f:spec": {"f:selectors": {}}});
    let shared = with(want.clone(), |v| {
        v["metadata"]["managedFields"] = json!([{"manager": "kubectl-edit", "fieldsV1": spec}]);
    });
    assert_eq!(judge(Some(&shared)), Judgement::Shared("kubectl-edit".to_owned()));
    let of_another = wanted("other", &json!({"profile": "1g.10gb"}));
    assert_eq!(judge(Some(&of_another)), Judgement::Foreign("another GpuClass's".to_owned()));
}

#[test]
fn only_what_we_made_and_nobody_wants_is_deleted() {
    let ours = wanted("u", &json!({}));
    let labelled = |origin: &str| {
        with(ours.clone(), |v| {
            v["metadata"]["labels"]["gpu-dra.io/made-from"] = json!(origin);
            v["metadata"]["ownerReferences"] = Value::Null;
        })
    };
    let gone = |class: &DeviceClass, owners: &[&str], keep_fleet| {
        is_left_over(class, &owners.iter().copied().collect::<BTreeSet<_>>(), keep_fleet)
    };
    assert!(!gone(&ours, &["u"], true));
    assert!(gone(&ours, &["v"], true));
    assert!(!gone(&labelled("gpuclass"), &[], true), "somebody took the owner reference off");
    assert!(!gone(&labelled("standard"), &[], false));
    assert!(!gone(&labelled("fleet"), &[], true));
    assert!(gone(&labelled("fleet"), &[], false));
    assert!(!gone(&labelled("nonsense"), &[], false));
    let unlabelled = with(ours, |v| v["metadata"]["labels"] = json!({}));
    assert!(!gone(&unlabelled, &[], false), "the owner reference alone may be anybody's");
}

fn state(spec: &Value, devices: &Value) -> State {
    let mut state = State::new(driver(), Vec::new(), false);
    state.learn(News::GpuClass(Change::Put(gpu_class("u", spec))));
    let slice = json!({"metadata": {"name": "s"}, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": "n", "devices": devices,
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}});
    state.learn(News::Slice(Change::Put(Box::new(serde_json::from_value(slice).unwrap()))));
    state.learn(News::GpuClass(Change::Synced(["c".to_owned()].into())));
    state.learn(News::DeviceClass(Change::Synced([].into())));
    state.learn(News::Slice(Change::Synced(["s".to_owned()].into())));
    state.learn(News::Claim(Change::Synced([].into())));
    state
}

fn h100() -> Value {
    json!([{"name": "gpu-0",
        "attributes": {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}},
        "capacity": {"memory": {"value": "81559Mi"}}}])
}

fn condition<'a>(status: &'a GpuClassStatus, name: &str) -> (&'a str, &'a str, &'a str) {
    let condition = status.conditions.iter().find(|c| c.type_ == name).unwrap();
    (&condition.status, &condition.reason, &condition.message)
}

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

#[test]
fn a_status_says_what_is_there() {
    let mut state = state(&json!({"model": {"contains": ["H100"]}}), &h100());
    let status = state.status("c", Some(&Standing::Applied), &at(1)).unwrap();
    assert_eq!((status.observed_generation, status.valid), (3, true));
    assert_eq!((status.matching_devices, status.matching_nodes, status.free_devices), (1, 1, 1));
    assert_eq!(status.device_class_name.as_deref(), Some("c"));
    assert_eq!(condition(&status, "Valid").1, "Compiled");
    assert_eq!(condition(&status, "Applied").1, "Applied");
    assert_eq!(condition(&status, "Matching").0, "True");
}

#[test]
fn a_status_names_the_nearest_miss() {
    for (spec, says) in [
        (json!({"memoryAtLeast": "80Gi"}), "nearest are 1, but memory is 81559Mi, not >= 80Gi"),
        (
            json!({"model": {"names": ["H100"]}}),
            "productName is \"NVIDIA H100 80GB HBM3\", not \"H100\"",
        ),
        (
            json!({"model": {"contains": ["h100"]}}),
            "productName is \"NVIDIA H100 80GB HBM3\", not contains \"h100\"",
        ),
        (json!({"profile": "1g.10gb"}), "type is \"gpu\", not \"mig\""),
    ] {
        let status = state(&spec, &h100()).status("c", Some(&Standing::Applied), &at(1)).unwrap();
        let (is, reason, message) = condition(&status, "Matching");
        assert_eq!((is, reason), ("False", "NoDevices"));
        assert!(message.contains(says), "{message}");
    }
    let empty = state(&json!({}), &json!([])).status("c", None, &at(1)).unwrap();
    assert!(condition(&empty, "Matching").2.contains("no device of the driver is published"));
}

#[test]
fn conflicts_refusals_and_mistakes_have_reasons() {
    let status = |spec: &Value, standing: Option<Standing>| {
        state(spec, &h100()).status("c", standing.as_ref(), &at(1)).unwrap()
    };
    let foreign = status(&json!({}), Some(Standing::Foreign("kept by helm".to_owned())));
    assert_eq!(condition(&foreign, "Applied").1, "Conflict");
    assert!(condition(&foreign, "Applied").2.contains("kept by helm"));
    assert_eq!(foreign.device_class_name, None);
    let contested = status(&json!({}), Some(Standing::Contested("conflict with \"x\"".to_owned())));
    assert_eq!(condition(&contested, "Applied").1, "Conflict");
    let refused = status(&json!({}), Some(Standing::Refused("too long".to_owned())));
    assert_eq!(condition(&refused, "Applied").1, "Refused");
    let wrong = status(&json!({"profile": "x"}), None);
    assert!(!wrong.valid);
    assert_eq!(condition(&wrong, "Valid").1, "Invalid");
    assert!(condition(&wrong, "Valid").2.starts_with("spec.profile"));
    assert_eq!((wrong.matching_devices, condition(&wrong, "Applied").1), (0, "Invalid"));
}

#[test]
fn two_classes_with_one_resource_are_told() {
    let mut state = state(&json!({"extendedResourceName": "nvidia.com/gpu"}), &h100());
    let status = state.status("c", Some(&Standing::Applied), &at(1)).unwrap();
    assert_eq!(condition(&status, "ExtendedResource").1, "Unique");
    let theirs = json!({"metadata": {"name": "theirs"},
                        "spec": {"extendedResourceName": "nvidia.com/gpu"}});
    state.learn(News::DeviceClass(Change::Put(serde_json::from_value(theirs).unwrap())));
    let status = state.status("c", Some(&Standing::Applied), &at(1)).unwrap();
    let (is, reason, message) = condition(&status, "ExtendedResource");
    assert_eq!((is, reason), ("False", "NamedTwice"));
    assert!(message.contains("theirs"), "{message}");
}

#[test]
fn a_condition_keeps_its_time_until_it_turns() {
    let mut state = state(&json!({}), &h100());
    let first = state.status("c", Some(&Standing::Applied), &at(1)).unwrap();
    let mut told = gpu_class("u", &json!({}));
    told.status = serde_json::to_value(&first).unwrap();
    state.put_gpu_class(told);
    let second = state.status("c", Some(&Standing::Applied), &at(2)).unwrap();
    assert_eq!(first, second, "nothing new, nothing to write");
    let third = state.status("c", Some(&Standing::Refused(String::new())), &at(3)).unwrap();
    let times: Vec<_> = third.conditions.iter().map(|c| c.last_transition_time.clone()).collect();
    assert_eq!(times, [at(1), at(3), at(1)]);
    let counts = GpuClassStatus { free_devices: 9, ..first.clone() };
    assert!(only_counts_differ(&first, &counts) && !only_counts_differ(&first, &third));
}

#[test]
fn nothing_is_said_or_deleted_before_enough_is_known() {
    let mut state = State::new(driver(), Vec::new(), false);
    let orphan = wanted("gone", &json!({}));
    state.learn(News::DeviceClass(Change::Put(orphan)));
    state.learn(News::DeviceClass(Change::Synced(["c".to_owned()].into())));
    assert!(state.left_over().is_empty(), "the GpuClass may come yet");
    state.learn(News::GpuClass(Change::Synced([].into())));
    assert_eq!(state.left_over().len(), 1);
    state.learn(News::GpuClass(Change::Put(gpu_class("u", &json!({})))));
    assert!(state.status("c", None, &at(1)).is_none(), "slices and claims aren't known");
}

#[test]
fn classes_are_made_from_the_fleet_without_taking_a_resource_from_others() {
    let mig = json!([{"name": "mig", "attributes": {
        "type": {"string": "mig"}, "profile": {"string": "1g.10gb+me"}}}]);
    let mut state = State::new(driver(), Vec::new(), true);
    for (name, devices) in [("a", h100()), ("b", mig)] {
        let slice = json!({"metadata": {"name": name}, "spec": {
            "driver": "gpu.nvidia.com", "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}});
        state.learn(News::Slice(Change::Put(Box::new(serde_json::from_value(slice).unwrap()))));
    }
    assert!(state.wanted().is_empty(), "not before all slices are known");
    state.learn(News::Slice(Change::Synced(["a".to_owned(), "b".to_owned()].into())));
    let made = |state: &State| -> Vec<(String, Option<String>)> {
        let class = |(_, class): (Origin, DeviceClass)| {
            (class.metadata.name.unwrap(), class.spec.unwrap().extended_resource_name)
        };
        state.wanted().into_iter().map(class).collect()
    };
    let profile = "mig-1g.10gb-me.gpu.nvidia.com".to_owned();
    let product = ("nvidia-h100-80gb-hbm3.gpu.nvidia.com".to_owned(), None);
    let resource = "nvidia.com/mig-1g.10gb.me".to_owned();
    assert_eq!(made(&state), [product.clone(), (profile.clone(), Some(resource.clone()))]);
    let theirs =
        json!({"metadata": {"name": "theirs"}, "spec": {"extendedResourceName": resource}});
    state.learn(News::DeviceClass(Change::Put(serde_json::from_value(theirs).unwrap())));
    assert_eq!(made(&state), [product, (profile, None)]);
}
