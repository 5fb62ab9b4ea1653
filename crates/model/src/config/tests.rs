//! Decoding against the incumbent's rules, and against what people write.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn gpu(sharing: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": sharing})
}

fn mig(sharing: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "MigDeviceConfig", "sharing": sharing})
}

fn sentences(parameters: &Value) -> Vec<String> {
    problems(parameters).iter().map(ToString::to_string).collect()
}

fn limit(text: &str) -> MemoryLimit {
    MemoryLimit::new(&text.parse().unwrap()).unwrap()
}

#[test]
fn defaults_are_filled_in() {
    let slice = |interval| {
        DeviceConfig::Gpu(GpuConfig { sharing: Some(Sharing::TimeSlicing { interval }) })
    };
    let mps = DeviceConfig::Gpu(GpuConfig { sharing: Some(Sharing::Mps(MpsConfig::default())) });
    let header = json!({"apiVersion": API_VERSION, "kind": "GpuConfig"});
    for (parameters, want) in [
        (header, DeviceConfig::Gpu(GpuConfig::default())),
        (gpu(Value::Null), DeviceConfig::Gpu(GpuConfig::default())),
        (gpu(json!({"strategy": "TimeSlicing"})), slice(Interval::Default)),
        (
            gpu(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {}})),
            slice(Interval::Default),
        ),
        (
            gpu(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": null}})),
            slice(Interval::Default),
        ),
        (
            gpu(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})),
            slice(Interval::Long),
        ),
        (gpu(json!({"strategy": "MPS"})), mps.clone()),
        (gpu(json!({"strategy": "MPS", "mpsConfig": {}})), mps.clone()),
        (gpu(json!({"strategy": "MPS", "timeSlicingConfig": null})), mps),
        (
            mig(json!({"strategy": "TimeSlicing"})),
            DeviceConfig::Mig(MigDeviceConfig { sharing: Some(MigSharing::TimeSlicing) }),
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "VfioDeviceConfig"}),
            DeviceConfig::Vfio(VfioDeviceConfig {
                backend_policy: IommuBackendPolicy::LegacyOnly,
                enable_api_device: false,
            }),
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "VfioDeviceConfig",
                   "iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": true}}),
            DeviceConfig::Vfio(VfioDeviceConfig {
                backend_policy: IommuBackendPolicy::PreferIommuFd,
                enable_api_device: true,
            }),
        ),
    ] {
        assert_eq!(decode(&parameters), Ok(want), "{parameters}");
    }
}

#[test]
fn mps_config_has_every_field() {
    let parameters = gpu(json!({"strategy": "MPS", "mpsConfig": {
        "defaultActiveThreadPercentage": 25,
        "defaultPinnedDeviceMemoryLimit": "5Gi",
        "defaultPerDevicePinnedMemoryLimit": {"0": "2Gi", "GPU-x": 4_194_304},
        "multiUser": true,
    }}));
    let want = MpsConfig {
        default_active_thread_percentage: Some(25),
        default_pinned_device_memory_limit: Some(limit("5Gi")),
        default_per_device_pinned_memory_limit: BTreeMap::from([
            (MpsDevice::Index(0), limit("2Gi")),
            (MpsDevice::Uuid("GPU-x".into()), limit("4Mi")),
        ]),
        multi_user: true,
    };
    let config = decode(&parameters).unwrap();
    assert_eq!(config, DeviceConfig::Gpu(GpuConfig { sharing: Some(Sharing::Mps(want)) }));
    let stored = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<DeviceConfig>(&stored).unwrap(), config);
}

#[test]
fn each_refusal_is_a_sentence_with_the_way_out() {
    let slicing = |more: Value| {
        let mut sharing = json!({"strategy": "TimeSlicing"});
        sharing.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        gpu(sharing)
    };
    for (parameters, want) in [
        (json!("GpuConfig"), "the config: want an object, found a string"),
        (
            json!({"kind": "GpuConfig"}),
            "apiVersion is missing: add apiVersion: resource.nvidia.com/v1beta1 and a kind such as GpuConfig",
        ),
        (
            json!({"apiVersion": "resource.nvidia.com/v1alpha1", "kind": "GpuConfig"}),
            "apiVersion \"resource.nvidia.com/v1alpha1\" is not known: use resource.nvidia.com/v1beta1",
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "gpuConfig"}),
            "kind \"gpuConfig\" is not known: use GpuConfig, MigDeviceConfig or VfioDeviceConfig",
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "ComputeDomainChannelConfig", "domainID": "x"}),
            "kind ComputeDomainChannelConfig belongs to compute-domain.nvidia.com: set opaque.driver to that",
        ),
        (
            slicing(json!({"timeSlicing": {"interval": "Long"}})),
            "sharing.timeSlicing: unknown field, did you mean timeSlicingConfig?",
        ),
        (
            slicing(json!({"timeSlicingConfig": {"intervall": "Long"}})),
            "sharing.timeSlicingConfig.intervall: unknown field, did you mean interval?",
        ),
        (
            slicing(json!({"gates": 1})),
            "sharing.gates: unknown field, known are strategy, timeSlicingConfig, mpsConfig",
        ),
        (
            mig(json!({"strategy": "TimeSlicing", "timeSlicingConfig": {}})),
            "sharing.timeSlicingConfig: unknown field, known are strategy, mpsConfig",
        ),
        (
            slicing(json!({"timeSlicingConfig": {"interval": "long"}})),
            "sharing.timeSlicingConfig.interval: \"long\" is not allowed, use Default, Short, Medium or Long",
        ),
        (
            slicing(json!({"timeSlicingConfig": "Long"})),
            "sharing.timeSlicingConfig: want an object, found a string",
        ),
        (
            slicing(json!({"mpsConfig": {}})),
            "sharing.mpsConfig doesn't go with strategy TimeSlicing: remove one of the two",
        ),
        (
            gpu(json!({"strategy": "MPS", "timeSlicingConfig": {}})),
            "sharing.timeSlicingConfig doesn't go with strategy MPS: remove one of the two",
        ),
        (
            gpu(json!({"strategy": "MIG"})),
            "sharing.strategy: \"MIG\" is not allowed, use TimeSlicing or MPS",
        ),
        (gpu(json!({})), "sharing.strategy is missing: set it to TimeSlicing or MPS"),
        (
            gpu(json!({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": "25"}})),
            "sharing.mpsConfig.defaultActiveThreadPercentage: want a whole number from 0 to 100, found a string",
        ),
        (
            gpu(json!({"strategy": "MPS", "mpsConfig": {"multiUser": "yes"}})),
            "sharing.mpsConfig.multiUser: want true or false, found a string",
        ),
        (
            gpu(
                json!({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "5 GB"}}),
            ),
            "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: 5 GB is not allowed, use a quantity of at least 1Mi, such as 5Gi",
        ),
        (
            gpu(
                json!({"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"first": "5Gi"}}}),
            ),
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit: \"first\" is not allowed, use an index such as 0, or a UUID",
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "VfioDeviceConfig", "iommu": {"backendPolicy": "PreferIommuFd"}}),
            "iommu.backendPolicy: \"PreferIommuFd\" is not allowed, use LegacyOnly or PreferIommuFD",
        ),
    ] {
        assert_eq!(sentences(&parameters), [want], "{parameters}");
    }
}

/// Case 51: the device plugin's habit.
#[test]
fn case_51_timeslicing_device_plugin_habit() {
    let parameters =
        json!({"sharing": {"strategy": "TimeSlicing", "timeSlicing": {"replicas": 4}}});
    assert_eq!(
        sentences(&parameters),
        [
            "apiVersion and kind are missing: add apiVersion: resource.nvidia.com/v1beta1 and a kind \
             such as GpuConfig; instead of replicas use shares: capacity.requests.memory in the claim",
            "sharing.timeSlicing.replicas is the device plugin's: to let several claims have parts \
             of a GPU use shares, capacity.requests.memory in the claim",
            "sharing.timeSlicing: unknown field, did you mean timeSlicingConfig?",
        ]
    );
    assert!(matches!(decode(&parameters), Err(ConfigError::MissingHeader { replicas: true, .. })));
}

/// Case 54: bad MPS values, those that no device is needed for. The index is checked by
/// [`MpsConfig::limits`].
#[test]
fn case_54_mps_bad_values() {
    let mut parameters = gpu(json!({"strategy": "MPS", "mpsConfig": {
        "defaultActiveThreadPercentage": 150,
        "defaultPerDevicePinnedMemoryLimit": {"7": "512Ki"},
    }}));
    assert_eq!(
        sentences(&parameters),
        [
            "sharing.mpsConfig.defaultActiveThreadPercentage: 150 is not allowed, use a percentage from 0 to 100",
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.7: 512Ki is not allowed, use a quantity of at least 1Mi, such as 5Gi",
        ]
    );
    parameters["sharing"]["mpsConfig"] =
        json!({"defaultPerDevicePinnedMemoryLimit": {"7": "512Mi"}});
    let DeviceConfig::Gpu(GpuConfig { sharing: Some(Sharing::Mps(mps)) }) =
        decode(&parameters).unwrap()
    else {
        panic!("not MPS")
    };
    assert_eq!(
        mps.limits(["GPU-a"]).unwrap_err().to_string(),
        "mpsConfig.defaultPerDevicePinnedMemoryLimit: no device 7 among the 1 of the request: \
         name an index below 1 or a UUID of them"
    );
}

#[test]
fn bytes_are_bounded_in_length_and_depth() {
    let header = format!("{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"GpuConfig\"");
    let padded = |length: usize| format!("{header}{}}}", " ".repeat(length - header.len() - 1));
    assert!(decode_bytes(padded(MAX_CONFIG_BYTES).as_bytes()).is_ok());
    assert_eq!(
        decode_bytes(padded(MAX_CONFIG_BYTES + 1).as_bytes()),
        Err(ConfigError::TooLarge { bytes: MAX_CONFIG_BYTES + 1 })
    );
    let deep = format!("{header},\"sharing\":{}", "[".repeat(9000));
    assert!(matches!(decode_bytes(deep.as_bytes()), Err(ConfigError::Json { .. })));
    for bad in [&b""[..], b"{", b"\xff\xfe", b"apiVersion: x"] {
        let error = decode_bytes(bad).unwrap_err();
        assert!(matches!(error, ConfigError::Json { .. }), "{error}");
    }
}

proptest! {
    /// Whatever stands in the places that are read: no panic, and short sentences.
    #[test]
    fn any_values_give_short_sentences(
        texts in prop::collection::vec("(\\PC|[\"\\\\\u{0}\u{7f}]){0,120}", 6),
        number in any::<f64>(),
    ) {
        let [version, kind, field, strategy, key, limit] = texts.try_into().unwrap();
        for kind in ["GpuConfig", "MigDeviceConfig", "VfioDeviceConfig", &kind] {
            for version in [API_VERSION, &version] {
                let parameters = json!({
                    "apiVersion": version, "kind": kind, &field: 1,
                    "iommu": {"backendPolicy": &strategy, &field: 2},
                    "sharing": {
                        "strategy": &strategy, &field: {"replicas": 4},
                        "timeSlicingConfig": {"interval": &limit, &field: null},
                        "mpsConfig": {
                            "defaultActiveThreadPercentage": number,
                            "defaultPinnedDeviceMemoryLimit": &limit,
                            "defaultPerDevicePinnedMemoryLimit": {&key: &limit},
                        },
                    },
                });
                for sentence in sentences(&parameters) {
                    prop_assert!(sentence.len() < 200, "{}: {sentence}", sentence.len());
                }
            }
        }
    }
}
