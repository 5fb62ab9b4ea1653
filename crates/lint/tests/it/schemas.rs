//! The JSON Schemas of the config kinds and the decoder of the node agent: one table, one
//! verdict.

use gpu_dra_model::config;
use serde_json::{Value, json};

use crate::world::repository;

const KINDS: &[(&str, &str)] = &[
    ("GpuConfig", "gpuconfig"),
    ("MigDeviceConfig", "migdeviceconfig"),
    ("VfioDeviceConfig", "vfiodeviceconfig"),
];

fn schema(file: &str) -> Value {
    serde_json::from_str(&repository(&format!("deploy/schemas/{file}.schema.json"))).unwrap()
}

/// A config of a kind, with more fields.
fn of(kind: &str, more: &Value) -> Value {
    let mut config = json!({"apiVersion": config::API_VERSION, "kind": kind});
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn mps(block: &Value) -> Value {
    json!({"sharing": {"strategy": "MPS", "mpsConfig": block}})
}

/// Configs of every kind, good and bad alike.
fn table() -> Vec<Value> {
    let mut table = vec![json!({}), json!([]), json!(null), json!({"kind": "GpuConfig"})];
    for (kind, _) in KINDS {
        let mut old = of(kind, &json!({}));
        old["apiVersion"] = json!("resource.nvidia.com/v1alpha1");
        table.extend([old, json!({"apiVersion": config::API_VERSION, "kind": null})]);
        for more in [
            json!({}),
            json!({"sharing": null}),
            json!({"sharing": {}}),
            json!({"sharing": "MPS"}),
            json!({"sharing": {"strategy": "MIG"}}),
            json!({"sharing": {"strategy": "mps"}}),
            json!({"sharing": {"strategy": "TimeSlicing"}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicing": {"replicas": 4}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": null}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "long"}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"replicas": 2}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": "Long"}}),
            json!({"sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}}),
            json!({"sharing": {"strategy": "TimeSlicing", "mpsConfig": null}}),
            json!({"sharing": {"strategy": "MPS"}}),
            json!({"sharing": {"strategy": "MPS", "timeSlicingConfig": {}}}),
            json!({"sharing": {"strategy": "MPS", "timeSlicingConfig": null}}),
            json!({"profile": "1g.10gb"}),
            json!({"iommu": null}),
            json!({"iommu": {}}),
            json!({"iommu": {"backendPolicy": "LegacyOnly"}}),
            json!({"iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": true}}),
            json!({"iommu": {"backendPolicy": "PreferIommuFd"}}),
            json!({"iommu": {"enableAPIDevice": "yes"}}),
            json!({"iommu": {"enableApiDevice": true}}),
        ] {
            table.push(of(kind, &more));
        }
        for block in [
            json!({}),
            json!({"defaultActiveThreadPercentage": 0}),
            json!({"defaultActiveThreadPercentage": 100}),
            json!({"defaultActiveThreadPercentage": 101}),
            json!({"defaultActiveThreadPercentage": -1}),
            json!({"defaultActiveThreadPercentage": 12.5}),
            json!({"defaultActiveThreadPercentage": "25"}),
            json!({"defaultActiveThreadPercentage": null}),
            json!({"multiUser": true}),
            json!({"multiUser": "yes"}),
            json!({"activeThreadPercentage": 25}),
            json!({"defaultPerDevicePinnedMemoryLimit": {}}),
            json!({"defaultPerDevicePinnedMemoryLimit": {"0": "5Gi", "GPU-1": "1Gi"}}),
            json!({"defaultPerDevicePinnedMemoryLimit": {"MIG-a": "512Mi"}}),
            json!({"defaultPerDevicePinnedMemoryLimit": {"first": "5Gi"}}),
            json!({"defaultPerDevicePinnedMemoryLimit": {"": "5Gi"}}),
            json!({"defaultPerDevicePinnedMemoryLimit": {"7": "512Ki"}}),
            json!({"defaultPerDevicePinnedMemoryLimit": ["5Gi"]}),
        ] {
            table.push(of(kind, &mps(&block)));
        }
        for limit in [
            "5Gi", "1Mi", "0.5Gi", "1.5Gi", "10G", "2M", "1M", "1024Ki", "1023Ki", "512Ki",
            "1025Ki", "9999Ki", "10000Ki", "1048576", "1048575", "1000000", "2000000", "99999999",
            "0", "0Gi", "00005Gi", "5 Gi", "5GB", "5gi", "Gi", "", "-5Gi", "+5Gi", "5Ti", "1P",
            "1Ei", "1T", "five", "5Gi ", "1048k", "1049k", "2000k", "10000k", "100k",
        ] {
            table.push(of(kind, &mps(&json!({"defaultPinnedDeviceMemoryLimit": limit}))));
        }
        for limit in
            [json!(1_048_576), json!(1_048_575), json!(5), json!(true), json!([]), json!(null)]
        {
            table.push(of(kind, &mps(&json!({"defaultPinnedDeviceMemoryLimit": limit}))));
        }
    }
    table
}

#[test]
fn the_schemas_and_the_decoder_agree() {
    let validators: Vec<_> = KINDS
        .iter()
        .map(|(kind, file)| (*kind, jsonschema::validator_for(&schema(file)).unwrap()))
        .collect();
    let (mut good, mut bad, mut wrong) = (0, 0, Vec::new());
    for parameters in table() {
        let decoded = config::decode(&parameters);
        // A schema is of one kind: what has another is refused by it.
        for (kind, validator) in &validators {
            let by_decoder = decoded.as_ref().is_ok_and(|config| config.kind() == *kind);
            let by_schema = validator.is_valid(&parameters);
            if by_decoder != by_schema {
                wrong.push(format!(
                    "{kind}: decoder {by_decoder}, schema {by_schema}: {parameters}"
                ));
            }
            *(if by_decoder { &mut good } else { &mut bad }) += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(good > 60 && bad > 200, "{good} good, {bad} bad");
}

#[test]
fn the_schemas_are_schemas() {
    for (kind, file) in KINDS {
        let schema = schema(file);
        assert!(jsonschema::meta::is_valid(&schema), "{file}");
        assert_eq!(schema["title"], *kind);
        assert_eq!(schema["properties"]["kind"]["const"], *kind);
        assert_eq!(schema["properties"]["apiVersion"]["const"], config::API_VERSION);
    }
}
