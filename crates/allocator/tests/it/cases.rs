//! The case files: claims as users write them, each with the outcome that a kube-scheduler
//! 1.36.2 had on the inventory. One test per file, named after it.

use std::collections::BTreeSet;

use gpu_dra_allocator::{AllocateError, Conflict, PoolProblem, Reason};
use k8s_openapi::api::resource::v1::ResourceSlice;

use crate::world::{Pod, World, results};

macro_rules! case {
    ($file:literal) => {
        World::inventory().with(include_str!(concat!("../data/cases/", $file, ".yaml")))
    };
}

const SHARES: &str = include_str!("../data/variant-shares.yaml");
const TAINTED: &str = include_str!("../data/variant-xid-taint.yaml");
const HALF: &str = include_str!("../data/variant-half-published-pool.yaml");

/// The only pod of a case.
fn only(mut world: World) -> Pod {
    let mut pods = world.schedule();
    assert_eq!(pods.len(), 1);
    pods.remove(0)
}

fn runs(world: World) -> (String, Vec<String>) {
    only(world).devices()
}

fn is_whole_gpu(devices: &[String]) -> bool {
    devices.iter().all(|device| device.ends_with("=gpu-0") || device.ends_with("=gpu-1"))
}

#[test]
fn no_case_is_forgotten() {
    let source = include_str!("cases.rs");
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cases");
    let files: BTreeSet<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files.len(), 32);
    for file in files {
        let name = file.strip_suffix(".yaml").unwrap();
        assert!(source.contains(&format!("case!(\"{name}\")")), "{file} is read by no test");
        let function = format!("fn case_{}()", name.replace('-', "_"));
        assert!(source.contains(&function), "{file} has no test of its name");
    }
}

#[test]
fn case_01_whole_gpu_template() {
    let (_, devices) = runs(case!("01-whole-gpu-template"));
    assert!(devices.len() == 1 && is_whole_gpu(&devices), "{devices:?}");
}

#[test]
fn case_02_v1beta1_flat_request() {
    let (_, devices) = runs(case!("02-v1beta1-flat-request"));
    assert!(devices.len() == 1 && is_whole_gpu(&devices), "{devices:?}");
}

/// The API server rejects it; should one come through, it is refused by name.
#[test]
fn case_03_v1_flat_request_rejected() {
    let mut world = case!("03-v1-flat-request-rejected");
    world.pods = serde_saphyr::from_multiple(
        "metadata: {name: p}\nspec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]}",
    )
    .unwrap();
    let pod = only(world);
    let error = pod.error();
    assert!(matches!(error, AllocateError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("request gpu without exactly or firstAvailable"), "{error}");
}

/// The pod is rejected by the API server; its template is good.
#[test]
fn case_04_pod_old_source_syntax() {
    let mut world = case!("04-pod-old-source-syntax");
    for pod in &mut world.pods {
        let claim = &mut pod["spec"]["resourceClaims"][0];
        assert!(claim.get("resourceClaimTemplateName").is_none());
        claim["resourceClaimTemplateName"] = claim["source"]["resourceClaimTemplateName"].clone();
    }
    assert!(is_whole_gpu(&runs(world).1));
}

#[test]
fn case_10_cel_80gi_on_80gb_card() {
    only(case!("10-cel-80gi-on-80gb-card")).assert_nothing_fits(3);
}

fn assert_cel_error(world: World, of: &str, text: &str) {
    let pod = only(world);
    let AllocateError::Evaluate { of: found, index: 0, error, .. } = pod.error() else {
        panic!("{pod:?}")
    };
    assert_eq!((found.as_str(), error.to_string().as_str()), (of, text));
}

fn assert_rejected_by_the_api(world: World, text: &str) {
    let pod = only(world);
    let AllocateError::Compile { error, .. } = pod.error() else { panic!("{pod:?}") };
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn case_11_cel_memory_as_attribute() {
    let world = case!("11-cel-memory-as-attribute");
    assert_cel_error(world, "claim default/train-0-gpu", "no such key: memory");
}

#[test]
fn case_13_cel_quantity_vs_string() {
    assert_rejected_by_the_api(
        case!("13-cel-quantity-vs-string"),
        "no matching overload for '_>=_' applied to '(kubernetes.Quantity, string)'",
    );
}

#[test]
fn case_14_cel_wrong_case() {
    let world = case!("14-cel-wrong-case");
    assert_cel_error(world, "claim default/train-0-gpu", "no such key: Uuid");
}

#[test]
fn case_15_cel_index_attribute() {
    let world = case!("15-cel-index-attribute");
    let mut without = world.clone();
    without.slices.iter_mut().for_each(|slice| without_attribute(slice, "index"));
    assert_eq!(runs(world), ("node-h100".to_owned(), vec!["gpu=gpu-0".to_owned()]));
    assert_cel_error(without, "claim default/train-0-gpu", "no such key: index");
}

fn without_attribute(slice: &mut ResourceSlice, name: &str) {
    for device in slice.spec.devices.iter_mut().flatten() {
        device.attributes.as_mut().map(|attributes| attributes.remove(name));
    }
}

#[test]
fn case_17_cel_version_function() {
    let world = case!("17-cel-version-function");
    assert_rejected_by_the_api(world, "undeclared reference to 'version'");
}

#[test]
fn case_19_cel_version_equals_string() {
    let world = case!("19-cel-version-equals-string");
    assert_cel_error(world, "claim default/train-0-gpu", "no such overload");
}

#[test]
fn case_20_cel_standard_attribute_as_key() {
    assert_rejected_by_the_api(
        case!("20-cel-standard-attribute-as-key"),
        "no matching overload for '_==_' applied to '(map(string, any), string)'",
    );
}

#[test]
fn case_22_cel_guarded_optional() {
    let (node, devices) = runs(case!("22-cel-guarded-optional"));
    assert_eq!(node, "node-h100");
    assert!(is_whole_gpu(&devices));
}

#[test]
fn case_24_cel_short_product_name() {
    only(case!("24-cel-short-product-name")).assert_nothing_fits(3);
}

#[test]
fn case_30_class_without_driver_guard() {
    let world = case!("30-class-without-driver-guard");
    assert_cel_error(world, "class gpu-blackwell", "no such key: family");
}

#[test]
fn case_32_class_with_mps_default() {
    let Pod::Running(_, allocations) = only(case!("32-class-with-mps-default")) else { panic!() };
    let config = allocations[0].devices.as_ref().unwrap().config.as_ref().unwrap();
    assert_eq!(config.len(), 1);
    assert_eq!(config[0].source, "FromClass");
    assert_eq!(config[0].requests.as_deref(), Some(&["gpu".to_owned()][..]));
    let parameters = &config[0].opaque.as_ref().unwrap().parameters.0;
    assert_eq!(parameters["sharing"]["mpsConfig"]["defaultPinnedDeviceMemoryLimit"], "5Gi");
}

#[test]
fn case_33_extended_resource() {
    let (_, devices) = runs(case!("33-extended-resource"));
    assert!(is_whole_gpu(&devices) && devices[0].starts_with("container-0-request-0="));
}

#[test]
fn case_34_extended_resource_mig() {
    let (node, devices) = runs(case!("34-extended-resource-mig"));
    assert_eq!(node, "node-mig");
    assert_eq!(devices.len(), 2);
    assert!(devices.iter().all(|device| device.contains("mig-1g5gb-19-")), "{devices:?}");
}

#[test]
fn case_35_class_unguarded_but_known_attribute() {
    let world = case!("35-class-unguarded-but-known-attribute");
    let mut alone = world.clone();
    alone.slices.retain(|slice| slice.spec.driver == "gpu.nvidia.com");
    assert_cel_error(world, "class hopper", "no such key: architecture");
    assert_eq!(runs(alone).0, "node-h100", "without other drivers it works");
}

#[test]
fn case_40_mig_four_slices_one_parent() {
    let (node, devices) = runs(case!("40-mig-four-slices-one-parent"));
    assert_eq!(node, "node-mig");
    let want = [
        "mig-1g-0=gpu-0-mig-1g5gb-19-0",
        "mig-1g-1=gpu-0-mig-1g5gb-19-1",
        "mig-2g=gpu-0-mig-2g10gb-14-2",
        "mig-3g=gpu-0-mig-3g20gb-9-4",
    ];
    assert_eq!(devices, want);
}

#[test]
fn case_42_mig_versus_whole_gpu() {
    let pods = case!("42-mig-versus-whole-gpu").schedule();
    assert_eq!(pods[0].devices(), ("node-mig".to_owned(), vec!["gpu=gpu-0".to_owned()]));
    pods[1].assert_nothing_fits(3);
    let Pod::Pending(refusals) = &pods[1] else { panic!() };
    let (_, refusal) = refusals.iter().find(|(node, _)| node == "node-mig").unwrap();
    let used_up = refusal.rejected.iter().filter(|r| matches!(r.reason, Reason::Counters { .. }));
    assert_eq!(used_up.count(), 7, "each 1g.5gb placement lacks counters: {refusal:?}");
}

#[test]
fn case_50_timeslicing_shared_claim() {
    let pods = case!("50-timeslicing-shared-claim").schedule();
    assert_eq!(pods[0].devices(), pods[1].devices(), "one claim, one node, one device");
    let Pod::Running(_, allocations) = &pods[0] else { panic!() };
    let config = allocations[0].devices.as_ref().unwrap().config.as_ref().unwrap();
    assert_eq!((config.len(), config[0].source.as_str()), (1, "FromClaim"));
}

#[test]
fn case_51_timeslicing_device_plugin_habit() {
    assert!(is_whole_gpu(&runs(case!("51-timeslicing-device-plugin-habit")).1));
}

#[test]
fn case_53_timeslicing_and_mps_in_one_claim() {
    let pod = only(case!("53-timeslicing-and-mps-in-one-claim"));
    assert_eq!(pod.devices().0, "node-h100");
    let Pod::Running(_, allocations) = &pod else { panic!() };
    let names: Vec<String> = results(&allocations[0]).into_iter().map(|r| r.request).collect();
    assert_eq!(names, ["ts-gpu", "mps-gpu"]);
    let config = allocations[0].devices.as_ref().unwrap().config.as_ref().unwrap();
    let requests: Vec<_> = config.iter().map(|c| c.requests.clone().unwrap()).collect();
    assert_eq!(requests, [["ts-gpu"], ["mps-gpu"]]);
}

#[test]
fn case_54_mps_bad_values() {
    assert!(is_whole_gpu(&runs(case!("54-mps-bad-values")).1), "no one looks before prepare");
}

#[test]
fn case_60_first_available_parent_config() {
    let pod = only(case!("60-first-available-parent-config"));
    assert_eq!(pod.devices(), ("node-l4".to_owned(), vec!["gpu/l4=gpu-0".to_owned()]));
    let Pod::Running(_, allocations) = &pod else { panic!() };
    let config = allocations[0].devices.as_ref().unwrap().config.as_ref().unwrap();
    assert_eq!(config[0].requests.as_deref(), Some(&["gpu".to_owned()][..]));
}

#[test]
fn case_61_gpu_and_nic_on_one_root() {
    let (node, devices) = runs(case!("61-gpu-and-nic-on-one-root"));
    assert_eq!(node, "node-h100");
    assert_eq!(devices, ["gpu=gpu-0", "nic=gpu0rdma0"]);
}

#[test]
fn case_63_numa_node_in_wrong_domain() {
    let pod = only(case!("63-numa-node-in-wrong-domain"));
    pod.assert_nothing_fits(3);
    let Pod::Pending(refusals) = &pod else { panic!() };
    let missing = refusals.iter().flat_map(|(_, refusal)| &refusal.rejected).any(|rejection| {
        matches!(&rejection.reason, Reason::Constraint { conflict: Conflict::Missing, attribute, .. } if attribute == "gpu.nvidia.com/numaNode")
    });
    assert!(missing, "{refusals:?}");
}

#[test]
fn case_64_admin_access_monitor() {
    let mut world = case!("64-admin-access-monitor");
    let mut busy = case!("53-timeslicing-and-mps-in-one-claim");
    busy.schedule();
    world.claims.append(&mut busy.claims);
    let pod = only(world);
    assert_eq!(pod.devices().1, ["all=gpu-0", "all=gpu-1"], "held by others, still observed");
    let Pod::Running(_, allocations) = &pod else { panic!() };
    assert!(results(&allocations[0]).iter().all(|result| result.admin_access == Some(true)));
}

#[test]
fn case_66_too_many_gpus() {
    only(case!("66-too-many-gpus")).assert_nothing_fits(3);
}

#[test]
fn case_67_share_of_memory() {
    let exclusive = case!("67-share-of-memory");
    let Pod::Running(_, allocations) = only(exclusive.clone()) else { panic!() };
    assert_eq!(results(&allocations[0])[0].share_id, None, "a device without shares is had whole");

    let mut shared = exclusive.with(SHARES);
    shared.nodes.retain(|node| node.metadata.name.as_deref() == Some("node-l4"));
    let pod = shared.pods.remove(0);
    shared.pods = (0..6)
        .map(|replica| {
            let mut pod = pod.clone();
            pod["metadata"]["name"] = format!("infer-{replica}").into();
            pod
        })
        .collect();
    let pods = shared.schedule();
    for pod in &pods[..5] {
        let Pod::Running(_, allocations) = pod else { panic!("{pod:?}") };
        let result = &results(&allocations[0])[0];
        assert!(result.share_id.is_some());
        assert_eq!(result.consumed_capacity.as_ref().unwrap()["memory"].0, "4Gi");
    }
    pods[5].assert_nothing_fits(1);
    let Pod::Pending(refusals) = &pods[5] else { panic!() };
    assert!(
        matches!(&refusals[0].1.rejected[0].reason, Reason::Capacity { left, .. } if left.to_string() == "2554Mi")
    );
}

#[test]
fn case_69_tolerate_xid_taint() {
    let mut tainted = case!("69-tolerate-xid-taint").with(TAINTED);
    tainted.nodes.retain(|node| node.metadata.name.as_deref() == Some("node-h100"));
    assert!(is_whole_gpu(&runs(tainted.clone()).1));

    let mut intolerant = case!("01-whole-gpu-template").with(TAINTED);
    intolerant.nodes = tainted.nodes;
    let pod = only(intolerant);
    pod.assert_nothing_fits(1);
    let Pod::Pending(refusals) = &pod else { panic!() };
    let tainted =
        refusals[0].1.rejected.iter().filter(|r| matches!(r.reason, Reason::Taint { .. }));
    assert_eq!(tainted.count(), 2);
}

#[test]
fn variant_half_published_pool() {
    let mut world = case!("01-whole-gpu-template").with(HALF);
    world.nodes.retain(|node| node.metadata.name.as_deref() == Some("node-l4"));
    let pod = only(world);
    pod.assert_nothing_fits(1);
    let Pod::Pending(refusals) = &pod else { panic!() };
    let pool = "gpu.nvidia.com/node-l4".to_owned();
    assert_eq!(refusals[0].1.pools, [PoolProblem::Incomplete { pool, have: 1, want: 2 }]);
}
