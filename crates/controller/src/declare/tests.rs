//! Tables: what a GpuClass compiles to, and what is said of one that doesn't.

use gpu_dra_cel::{Attribute, DeviceView, Field, Selector};
use gpu_dra_model::{DriverName, config};
use serde_json::{Value, json};

use super::*;
use crate::fleet::READ;

const GPU: &str = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'";
const MIG: &str = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'mig'";

fn driver() -> DriverName {
    DriverName::new("gpu.nvidia.com").unwrap()
}

fn class(spec: &Value) -> GpuClass {
    serde_json::from_value(json!({
        "apiVersion": "gpu-dra.io/v1alpha1", "kind": "GpuClass",
        "metadata": {"name": "c", "uid": "u-1"}, "spec": spec,
    }))
    .unwrap()
}

fn compiled(spec: &Value) -> Compiled {
    compile(&class(spec), &driver()).unwrap_or_else(|p| panic!("{spec}: {}", joined(&p)))
}

fn device(driver: &str, attributes: &[(&str, Attribute)], memory: Option<&str>) -> DeviceView {
    let mut view = DeviceView::new(driver, false);
    for (name, value) in attributes {
        view.add_attribute(name, value.clone());
    }
    if let Some(memory) = memory {
        view.add_capacity("memory", memory.parse().unwrap());
    }
    view
}

fn text(value: &str) -> Attribute {
    Attribute::String(value.to_owned())
}

fn h100() -> DeviceView {
    let attributes = [
        ("type", text("gpu")),
        ("productName", text("NVIDIA H100 80GB HBM3")),
        ("cudaComputeCapability", Attribute::Version("9.0.0".to_owned())),
    ];
    device("gpu.nvidia.com", &attributes, Some("81559Mi"))
}

fn mig() -> DeviceView {
    let attributes = [
        ("type", text("mig")),
        ("profile", text("1g.10gb")),
        ("productName", text("NVIDIA H100 80GB HBM3")),
        ("cudaComputeCapability", Attribute::Version("9.0.0".to_owned())),
    ];
    device("gpu.nvidia.com", &attributes, Some("9984Mi"))
}

/// Spec, expression, whether an H100 matches, whether its MIG device does.
#[test]
fn plain_fields_become_guarded_cel() {
    let product = "device.attributes['gpu.nvidia.com'].?productName.orValue('')";
    let plain = "device.attributes['gpu.nvidia.com'].productName";
    for (spec, expression, gpu_matches, mig_matches) in [
        (json!({}), GPU.to_owned(), true, false),
        (Value::Null, GPU.to_owned(), true, false),
        (json!({"type": "mig"}), MIG.to_owned(), false, true),
        (
            json!({"model": {"names": ["NVIDIA H100 80GB HBM3"]}}),
            format!("{GPU} && {product} == 'NVIDIA H100 80GB HBM3'"),
            true,
            false,
        ),
        (
            json!({"model": {"names": ["NVIDIA L4", "NVIDIA H100 80GB HBM3"]}}),
            format!("{GPU} && {product} in ['NVIDIA L4', 'NVIDIA H100 80GB HBM3']"),
            true,
            false,
        ),
        (
            json!({"model": {"names": ["H100"]}}),
            format!("{GPU} && {product} == 'H100'"),
            false,
            false,
        ),
        (
            json!({"model": {"names": ["x"], "contains": ["H200", "H100"]}}),
            format!(
                "{GPU} && ({product} == 'x' || has({plain}) && {plain}.contains('H200') || has({plain}) && {plain}.contains('H100'))"
            ),
            true,
            false,
        ),
        (
            json!({"memoryAtLeast": "79Gi"}),
            format!(
                "{GPU} && device.capacity['gpu.nvidia.com'].?memory.orValue(quantity('0')).compareTo(quantity('79Gi')) >= 0"
            ),
            true,
            false,
        ),
        (
            json!({"memoryAtLeast": "80Gi"}),
            format!(
                "{GPU} && device.capacity['gpu.nvidia.com'].?memory.orValue(quantity('0')).compareTo(quantity('80Gi')) >= 0"
            ),
            false,
            false,
        ),
        (
            json!({"type": "mig", "memoryAtLeast": 1024}),
            format!(
                "{MIG} && device.capacity['gpu.nvidia.com'].?memory.orValue(quantity('0')).compareTo(quantity('1024')) >= 0"
            ),
            false,
            true,
        ),
        (
            json!({"profile": "1g.10gb"}),
            format!(
                "{MIG} && device.attributes['gpu.nvidia.com'].?profile.orValue('') == '1g.10gb'"
            ),
            false,
            true,
        ),
        (
            json!({"computeCapabilityAtLeast": "9.0"}),
            format!(
                "{GPU} && device.attributes['gpu.nvidia.com'].?cudaComputeCapability.orValue(semver('0.0.0')).compareTo(semver('9.0.0')) >= 0"
            ),
            true,
            false,
        ),
        (
            json!({"computeCapabilityAtLeast": "10"}),
            format!(
                "{GPU} && device.attributes['gpu.nvidia.com'].?cudaComputeCapability.orValue(semver('0.0.0')).compareTo(semver('10.0.0')) >= 0"
            ),
            false,
            false,
        ),
    ] {
        let made = compiled(&spec);
        let class_spec = made.class.spec.clone().unwrap();
        let selectors = class_spec.selectors.unwrap();
        assert_eq!(selectors.len(), 1);
        assert_eq!(selectors[0].cel.as_ref().unwrap().expression, expression, "{spec}");
        assert_eq!(made.selector.matches(&h100()), Ok(gpu_matches), "{spec}");
        assert_eq!(made.selector.matches(&mig()), Ok(mig_matches), "{spec}");
        assert_eq!(class_spec.config, None);
        stops_no_pod(&made.selector, &spec);
    }
}

/// Whatever is published, as long as it can be read: no error.
fn stops_no_pod(selector: &Selector, spec: &Value) {
    for driver in ["gpu.nvidia.com", "gpu.example.com"] {
        for device_type in [None, Some("gpu"), Some("mig"), Some("monitor")] {
            let attributes: Vec<_> = device_type.map(|t| ("type", text(t))).into_iter().collect();
            let bare = device(driver, &attributes, None);
            assert!(selector.matches(&bare).is_ok(), "{spec} on {driver} {device_type:?}");
        }
    }
    let reads = selector.reads();
    assert!(!reads.anything, "{spec}");
    for read in &reads.fields {
        if let Field::Attribute { domain, name } = &read.field {
            assert_eq!(domain, "gpu.nvidia.com");
            assert!(READ.contains(&name.as_str()), "the fleet's shapes ignore {name}");
        }
    }
}

#[test]
fn the_class_belongs_to_its_gpu_class() {
    let made = compiled(&json!({
        "extendedResourceName": "nvidia.com/h100",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
    }));
    assert_eq!(Origin::of(&made.class), Some(Origin::GpuClass));
    assert_eq!(owner(&made.class), Some("u-1"));
    let class = serde_json::to_value(&made.class).unwrap();
    assert_eq!(class["metadata"]["name"], "c");
    assert_eq!(
        class["metadata"]["ownerReferences"],
        json!([{"apiVersion": "gpu-dra.io/v1alpha1", "kind": "GpuClass", "name": "c", "uid": "u-1",
                "controller": true}])
    );
    assert_eq!(class["spec"]["extendedResourceName"], "nvidia.com/h100");
    let parameters = json!({
        "apiVersion": config::API_VERSION, "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
    });
    assert_eq!(
        class["spec"]["config"],
        json!([{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}])
    );
    let of_mig = compiled(&json!({"profile": "1g.10gb", "sharing": {"strategy": "MPS"}}));
    let config = of_mig.class.spec.unwrap().config.unwrap();
    assert_eq!(config[0].opaque.as_ref().unwrap().parameters.0["kind"], "MigDeviceConfig");
}

/// Spec, and the beginning of each problem.
#[test]
fn problems_name_the_field_and_the_fix() {
    let long = "x".repeat(65);
    for (spec, says) in [
        (
            json!({"memoryAtleast": "80Gi"}),
            vec!["spec.memoryAtleast: unknown field `memoryAtleast`, expected"],
        ),
        (json!({"model": "H100"}), vec!["spec.model: invalid type: string \"H100\""]),
        (json!({"model": {"names": "H100"}}), vec!["spec.model.names: invalid type"]),
        (
            json!({"type": "vfio"}),
            vec!["spec.type: unknown variant `vfio`, expected `gpu` or `mig`"],
        ),
        (json!({"memoryAtLeast": "80 GB"}), vec!["spec.memoryAtLeast: "]),
        (json!([]), vec!["spec: is no object"]),
        (json!({"memoryAtLeast": "0"}), vec!["spec.memoryAtLeast: 0 is true of every device"]),
        (
            json!({"type": "gpu", "profile": "1g.10gb"}),
            vec!["spec.profile: only MIG devices have a profile"],
        ),
        (
            json!({"profile": "1G.10GB"}),
            vec!["spec.profile: \"1G.10GB\" is no MIG profile: did you mean 1g.10gb?"],
        ),
        (
            json!({"computeCapabilityAtLeast": "sm_90"}),
            vec!["spec.computeCapabilityAtLeast: \"sm_90\""],
        ),
        (json!({"model": {}}), vec!["spec.model: names nothing"]),
        (
            json!({"model": {"names": ["", long], "contains": [""]}}),
            vec![
                "spec.model.names[0]: is empty",
                "spec.model.names[1]: has 65 bytes",
                "spec.model.contains[0]: is empty",
            ],
        ),
        (json!({"model": {"names": vec!["a"; 33]}}), vec!["spec.model.names: has 33 entries"]),
        (
            json!({"extendedResourceName": "h100"}),
            vec!["spec.extendedResourceName: \"h100\" has no domain"],
        ),
        (
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Loong"}}}),
            vec!["spec: sharing.timeSlicingConfig.interval: \"Loong\" is not allowed"],
        ),
        (json!({"sharing": {"replicas": 4}}), vec!["spec: sharing"]),
        (
            json!({"profile": "1g.10gb", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}}),
            vec!["spec: sharing.timeSlicingConfig: unknown field"],
        ),
        (
            json!({"memoryAtLeast": "-1", "profile": "big", "extendedResourceName": "a/b/c"}),
            vec!["spec.memoryAtLeast", "spec.profile", "spec.extendedResourceName"],
        ),
    ] {
        let problems = compile(&class(&spec), &driver()).expect_err(&spec.to_string());
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        for want in &says {
            assert!(shown.iter().any(|text| text.starts_with(want)), "{spec}: {shown:?}");
        }
        assert!(shown.len() >= says.len() && joined(&problems).len() < 2_000, "{shown:?}");
        assert!(shown.iter().all(|text| text.len() < 300), "{shown:?}");
    }
}

/// The sentence about a sharing default is the one that a claim's config gets.
#[test]
fn sharing_is_judged_as_in_claims() {
    let sharing = json!({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 150}});
    let parameters =
        json!({"apiVersion": config::API_VERSION, "kind": "GpuConfig", "sharing": sharing});
    let words = config::decode(&parameters).unwrap_err().to_string();
    let problems = compile(&class(&json!({"sharing": sharing})), &driver()).unwrap_err();
    assert_eq!(problems, [Problem::new("spec", words)]);
}

/// The manifest says the same as the decoder: each field that it allows is decoded, and the
/// decoder's list of fields is the manifest's.
#[test]
fn the_manifest_and_the_decoder_agree() {
    let text = include_str!("../../../../deploy/gpuclass-crd.yaml");
    let crd: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(crd["metadata"]["name"], format!("gpuclasses.{GROUP}"));
    assert_eq!(crd["spec"]["scope"], "Cluster");
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["name"], VERSION);
    assert_eq!(version["subresources"], json!({"status": {}}));
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let names = |at: &str| {
        let properties = schema.pointer(at).and_then(Value::as_object);
        properties.unwrap_or_else(|| panic!("{at}")).keys().cloned().collect::<Vec<_>>()
    };
    let expected = |spec: Value| {
        let problem = class(&spec).decoded().unwrap_err().reason;
        let mut names: Vec<String> =
            problem.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(names("/spec/properties"), expected(json!({"nonsense": 1})));
    assert_eq!(
        names("/spec/properties/model/properties"),
        expected(json!({"model": {"nonsense": 1}}))
    );
    let example = json!({
        "type": "gpu", "model": {"names": ["a"], "contains": ["b"]}, "memoryAtLeast": "1Gi",
        "computeCapabilityAtLeast": "9.0", "extendedResourceName": "nvidia.com/x",
        "sharing": {"strategy": "MPS", "mpsConfig": {
            "defaultActiveThreadPercentage": 25, "defaultPinnedDeviceMemoryLimit": "5Gi",
            "defaultPerDevicePinnedMemoryLimit": {"0": "2Gi"}, "multiUser": true}},
    });
    compiled(&example);
    let mps = example.pointer("/sharing/mpsConfig").unwrap().as_object().unwrap();
    assert_eq!(
        names("/spec/properties/sharing/properties/mpsConfig/properties"),
        mps.keys().cloned().collect::<Vec<_>>()
    );
    assert_eq!(
        names("/spec/properties/sharing/properties"),
        ["mpsConfig", "strategy", "timeSlicingConfig"]
    );
    let status = serde_json::to_value(GpuClassStatus {
        device_class_name: Some("c".to_owned()),
        ..GpuClassStatus::default()
    });
    let mut fields: Vec<_> = status.unwrap().as_object().unwrap().keys().cloned().collect();
    fields.sort();
    assert_eq!(names("/status/properties"), fields);
}
