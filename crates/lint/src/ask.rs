//! Asks `explain` for its words: why a selector is refused, fails or matches nothing. The
//! verdict is known by then, so the question is about a made-up class, claim and node that
//! have nothing else in them.

use std::collections::BTreeMap;

use gpu_dra_explain::{Advice, Cluster, Explainer, Question, Slices};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, DeviceClaim, DeviceClass, DeviceClassSpec, DeviceConstraint, DeviceRequest,
    DeviceSelector, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec, ResourceSlice,
};

use crate::judge::Failure;
use crate::shape::sentence;
use crate::world::World;

const NODE: &str = "lint";
const CLASS: &str = "lint";

/// What to write instead of an expression that the API server refuses.
pub(crate) fn refused(world: &World<'_>, text: &str) -> Option<String> {
    let advice = ask(world, &[], claim(&[text], None), &[]);
    advice.first().map(sentence)
}

/// Why a selector fails on a device, and what to write instead.
pub(crate) fn failed(
    world: &World<'_>,
    text: &str,
    failure: &Failure,
    of_class: bool,
) -> Option<Advice> {
    let devices = [failure.device];
    let advice = if of_class {
        ask(world, &[text], claim(&[], None), &devices)
    } else {
        ask(world, &[], claim(&[text], None), &devices)
    };
    advice.into_iter().next()
}

/// Why selectors match none of these devices: with each piece the selector's place, if it is
/// about one.
pub(crate) fn unmatched(
    world: &World<'_>,
    texts: &[&str],
    devices: &[usize],
) -> Vec<(Option<usize>, String)> {
    let advice = ask(world, &[], claim(texts, None), devices);
    let place = |advice: &Advice| {
        let (_, number) = advice.about.split_once(", selector #")?;
        number.parse().ok()
    };
    advice.iter().map(|advice| (place(advice), sentence(advice))).collect()
}

/// Why no device can satisfy a constraint; None if one can.
pub(crate) fn constraint(world: &World<'_>, constraint: &DeviceConstraint) -> Option<String> {
    let mut constraint = constraint.clone();
    constraint.requests = None;
    let advice = ask(world, &[], claim(&[], Some(constraint)), &[]);
    let about = advice.iter().find(|advice| advice.about.contains("constraint #"));
    about.map(sentence)
}

fn ask(world: &World<'_>, class: &[&str], claim: ResourceClaim, devices: &[usize]) -> Vec<Advice> {
    let mut slices: Slices = world.catalog.iter().cloned().collect();
    slices.extend(on_node(world, devices));
    let mut made_up = DeviceClass::default();
    made_up.metadata.name = Some(CLASS.to_owned());
    made_up.spec =
        Some(DeviceClassSpec { selectors: Some(selectors(class)), ..DeviceClassSpec::default() });
    let mut node = Node::default();
    node.metadata.name = Some(NODE.to_owned());
    let (classes, nodes) = ([made_up], [node]);
    let cluster = Cluster {
        slices: &slices,
        classes: &classes,
        claims: &[],
        nodes: &nodes,
        admin_access: None,
    };
    Explainer::new(cluster).explain(&Question::of_claim(&claim), &mut |_| {}).advice
}

/// The devices as if they were on one node.
fn on_node(world: &World<'_>, devices: &[usize]) -> Vec<ResourceSlice> {
    let mut slices: BTreeMap<(&str, &str), ResourceSlice> = BTreeMap::new();
    for judged in devices.iter().filter_map(|place| world.devices.get(*place)) {
        let slice = slices.entry((judged.driver, judged.pool)).or_insert_with(|| {
            let mut slice = ResourceSlice::default();
            slice.metadata.name = Some(judged.pool.to_owned());
            judged.driver.clone_into(&mut slice.spec.driver);
            slice.spec.node_name = Some(NODE.to_owned());
            judged.pool.clone_into(&mut slice.spec.pool.name);
            slice.spec.pool.resource_slice_count = 1;
            slice
        });
        slice.spec.devices.get_or_insert_default().push(judged.by_itself());
    }
    slices.into_values().collect()
}

fn claim(texts: &[&str], constraint: Option<DeviceConstraint>) -> ResourceClaim {
    let exactly = ExactDeviceRequest {
        device_class_name: CLASS.to_owned(),
        selectors: Some(selectors(texts)),
        ..ExactDeviceRequest::default()
    };
    let request = DeviceRequest {
        name: "request".to_owned(),
        exactly: Some(exactly),
        ..DeviceRequest::default()
    };
    let devices = DeviceClaim {
        requests: Some(vec![request]),
        constraints: constraint.map(|constraint| vec![constraint]),
        ..DeviceClaim::default()
    };
    let mut claim = ResourceClaim {
        spec: Some(ResourceClaimSpec { devices: Some(devices) }),
        ..ResourceClaim::default()
    };
    claim.metadata.name = Some("claim".to_owned());
    claim.metadata.namespace = Some("default".to_owned());
    claim
}

fn selectors(texts: &[&str]) -> Vec<DeviceSelector> {
    let cel = |text: &&str| DeviceSelector {
        cel: Some(CELDeviceSelector { expression: (*text).to_owned() }),
    };
    texts.iter().map(cel).collect()
}
