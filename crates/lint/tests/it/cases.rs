//! Each case file, with the inventory that its header speaks of: a test named after it.

use crate::world::{data, findings, inventory, lines, worse};

/// Rules that are found, and words of their sentences; nothing else may be but hints.
fn case(name: &str, wanted: &[(&str, &[&str])]) {
    let text = std::fs::read_to_string(data(&format!("cases/{name}.yaml"))).unwrap();
    let fleet = inventory();
    let found = worse(&findings(&text, Some(&fleet)));
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (start, words) in wanted {
        let line = found
            .iter()
            .find(|line| line.starts_with(start) && words.iter().all(|word| line.contains(word)));
        assert!(line.is_some(), "no {start} with {words:?} in {found:#?}");
    }
}

macro_rules! cases {
    ($($test:ident $file:literal: [$(($start:literal, [$($word:literal),* $(,)?])),* $(,)?];)*) => {
        $(#[test] fn $test() { case($file, &[$(($start, &[$($word),*])),*]); })*

        #[test]
        fn every_case_file_has_a_test() {
            let tested = [$($file),*];
            for entry in std::fs::read_dir(data("cases")).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(tested.contains(&name.trim_end_matches(".yaml")), "{name}");
            }
        }
    };
}

cases! {
    case_01_whole_gpu_template "01-whole-gpu-template": [];
    case_02_v1beta1_flat_request "02-v1beta1-flat-request": [
        ("warning deprecated-api", ["1.38", "resource.k8s.io/v1", "exactly:"]),
    ];
    case_03_v1_flat_request_rejected "03-v1-flat-request-rejected": [
        ("error api-shape", [
            "in v1 these fields live under exactly:",
            r#""exactly":{"count":1,"deviceClassName":"gpu.nvidia.com"}"#,
        ]),
    ];
    case_04_pod_old_source_syntax "04-pod-old-source-syntax": [
        ("error api-shape", ["source.X -> X", "resourceClaimTemplateName: one-gpu"]),
    ];
    case_10_cel_80gi_on_80gb_card "10-cel-80gi-on-80gb-card": [
        ("warning matches-nothing", [
            "nothing matches", "81559Mi", "NVIDIA H100 80GB HBM3", "80Gi = 81920Mi", "79Gi",
        ]),
    ];
    case_11_cel_memory_as_attribute "11-cel-memory-as-attribute": [
        ("error cel-runtime", [
            "memory is a capacity",
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0",
        ]),
    ];
    case_13_cel_quantity_vs_string "13-cel-quantity-vs-string": [
        ("error cel-compile", [
            "no matching overload for '_>=_' applied to '(kubernetes.Quantity, string)'",
            r#"memory.compareTo(quantity("16Gi")) >= 0"#,
        ]),
    ];
    case_14_cel_wrong_case "14-cel-wrong-case": [
        ("error cel-runtime", ["no attribute Uuid", "did you mean uuid?"]),
    ];
    case_15_cel_index_attribute "15-cel-index-attribute": [
        ("warning advisory-attribute", ["index may change", "prefer uuid", "pciBusID"]),
    ];
    case_17_cel_version_function "17-cel-version-function": [
        ("error cel-compile", [
            "undeclared reference to 'version'", "semver('8.0.0')",
            "isGreaterThan leaves out '8.0.0' itself",
        ]),
    ];
    case_19_cel_version_equals_string "19-cel-version-equals-string": [
        ("error cel-runtime", ["driverVersion is a version", "== semver('580.105.8')"]),
    ];
    case_20_cel_standard_attribute_as_key "20-cel-standard-attribute-as-key": [
        ("error cel-compile", [
            "'(map(string, any), string)'", "device.attributes['resource.kubernetes.io'].pcieRoot",
        ]),
    ];
    case_22_cel_guarded_optional "22-cel-guarded-optional": [];
    case_24_cel_short_product_name "24-cel-short-product-name": [
        ("warning matches-nothing", [
            "no productName equals \"H100\"", "NVIDIA H100 80GB HBM3", "NVIDIA L4",
            "NVIDIA A100-SXM4-40GB", "it is the full NVML name",
        ]),
    ];
    case_30_class_without_driver_guard "30-class-without-driver-guard": [
        ("error class-driver-guard", ["put device.driver == 'gpu.nvidia.com' && before it"]),
        ("error cel-runtime", ["no attribute family"]),
    ];
    case_32_class_with_mps_default "32-class-with-mps-default": [];
    case_33_extended_resource "33-extended-resource": [];
    case_34_extended_resource_mig "34-extended-resource-mig": [];
    case_35_class_unguarded_but_known_attribute "35-class-unguarded-but-known-attribute": [
        ("error class-driver-guard", ["put device.driver == 'gpu.nvidia.com' && before it"]),
    ];
    case_40_mig_four_slices_one_parent "40-mig-four-slices-one-parent": [];
    case_42_mig_versus_whole_gpu "42-mig-versus-whole-gpu": [];
    case_50_timeslicing_shared_claim "50-timeslicing-shared-claim": [];
    case_51_timeslicing_device_plugin_habit "51-timeslicing-device-plugin-habit": [
        ("error config", ["apiVersion and kind are missing"]),
        ("error config", ["replicas is the device plugin's", "use shares"]),
        ("error config", ["sharing.timeSlicing: unknown field, did you mean timeSlicingConfig?"]),
    ];
    case_53_timeslicing_and_mps_in_one_claim "53-timeslicing-and-mps-in-one-claim": [];
    case_54_mps_bad_values "54-mps-bad-values": [
        ("error config", ["150 is not allowed, use a percentage from 0 to 100"]),
        ("error config", ["no device 7 among the 1 of the request"]),
        ("error config", ["512Ki is not allowed, use a quantity of at least 1Mi"]),
    ];
    case_60_first_available_parent_config "60-first-available-parent-config": [];
    case_61_gpu_and_nic_on_one_root "61-gpu-and-nic-on-one-root": [];
    case_63_numa_node_in_wrong_domain "63-numa-node-in-wrong-domain": [
        ("error constraint-attribute", ["did you mean resource.kubernetes.io/numaNode?"]),
    ];
    case_64_admin_access_monitor "64-admin-access-monitor": [];
    case_66_too_many_gpus "66-too-many-gpus": [
        ("warning never-fits", ["wants 3 devices on one node, it has 2"]),
    ];
    case_67_share_of_memory "67-share-of-memory": [
        ("warning capacity-ignored", ["gets a whole one", "--shares"]),
    ];
    case_69_tolerate_xid_taint "69-tolerate-xid-taint": [];
}

/// Field report E06: where there are shares, or nobody knows, nothing is wrong with asking.
#[test]
fn e06_capacity_may_be_asked_of_devices_that_can_be_shared() {
    let text = std::fs::read_to_string(data("cases/67-share-of-memory.yaml")).unwrap();
    let mut fleet = inventory();
    let shared = fleet.slices.iter().map(|mut slice| {
        for device in slice.spec.devices.iter_mut().flatten() {
            device.allow_multiple_allocations = Some(true);
        }
        slice
    });
    fleet.slices = shared.collect();
    assert_eq!(worse(&findings(&text, Some(&fleet))), [""; 0]);
    assert_eq!(worse(&findings(&text, None)), [""; 0]);
}

/// Without a fleet what is wrong for any fleet is still found.
#[test]
fn without_a_fleet_the_same_files_have_the_same_errors() {
    let words = [
        ("03-v1-flat-request-rejected", "live under exactly:"),
        ("04-pod-old-source-syntax", "source.X -> X"),
        ("11-cel-memory-as-attribute", "memory is a capacity"),
        ("13-cel-quantity-vs-string", "compareTo(quantity(\"16Gi\")) >= 0"),
        ("14-cel-wrong-case", "did you mean uuid?"),
        ("15-cel-index-attribute", "index may change"),
        ("17-cel-version-function", "semver('8.0.0')"),
        ("19-cel-version-equals-string", "== semver('580.105.8')"),
        ("20-cel-standard-attribute-as-key", "['resource.kubernetes.io'].pcieRoot"),
        ("24-cel-short-product-name", "productName is the full NVML name"),
        ("30-class-without-driver-guard", "no attribute family"),
        ("35-class-unguarded-but-known-attribute", "put device.driver == 'gpu.nvidia.com' &&"),
        ("51-timeslicing-device-plugin-habit", "use shares"),
        ("54-mps-bad-values", "no device 7"),
        ("63-numa-node-in-wrong-domain", "did you mean resource.kubernetes.io/numaNode?"),
    ];
    for entry in std::fs::read_dir(data("cases")).unwrap() {
        let path = entry.unwrap().path();
        let found = findings(&std::fs::read_to_string(&path).unwrap(), None);
        let name = path.file_stem().unwrap().to_str().unwrap();
        match words.iter().find(|(known, _)| *known == name) {
            Some((_, word)) => assert!(
                worse(&found).iter().any(|line| line.contains(word)),
                "{name}: {:#?}",
                lines(&found)
            ),
            None if name.starts_with("02-") => {}
            None => assert_eq!(worse(&found), Vec::<String>::new(), "{name}"),
        }
    }
    let big = std::fs::read_to_string(data("cases/10-cel-80gi-on-80gb-card.yaml")).unwrap();
    let hints = lines(&findings(&big, None));
    assert!(hints.iter().any(|line| line.contains("write quantity('75Gi')")), "{hints:?}");
}

#[test]
fn findings_have_their_places() {
    let text = std::fs::read_to_string(data("cases/14-cel-wrong-case.yaml")).unwrap();
    let found = findings(&text, None);
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(finding.path, "spec.spec.devices.requests[0].exactly.selectors[0].cel.expression");
    assert_eq!((finding.file.as_str(), finding.document, finding.line), ("test.yaml", 1, 18));
    let line = text.lines().nth(finding.line - 1).unwrap();
    assert!(line.contains("expression:"), "{line}");
    assert_eq!(finding.object, "ResourceClaimTemplate want-gpu");
}
