//! A document for each rule and each of its sentences.

use std::collections::BTreeSet;

use gpu_dra_lint::{Document, Fleet, Rule, Severity};

use crate::world::{claim, data, findings, inventory, lines, worse};

const GPU: &str = "device.driver == 'gpu.nvidia.com'";

/// A class with a selector, and more fields of its spec.
fn class(name: &str, expression: &str, more: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: {name}}}\nspec:\n  \
         selectors:\n  - cel:\n      expression: {expression:?}\n{more}"
    )
}

/// A claim with these devices, in flow style.
fn devices(devices: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec: \
         {{devices: {devices}}}\n"
    )
}

fn request(fields: &str) -> String {
    devices(&format!("{{requests: [{{name: gpu, exactly: {{{fields}}}}}]}}"))
}

fn config(class: &str, parameters: &str) -> String {
    devices(&format!(
        "{{requests: [{{name: gpu, exactly: {{deviceClassName: {class}}}}}], config: [{{requests: \
         [gpu], opaque: {{driver: gpu.nvidia.com, parameters: {{apiVersion: \
         resource.nvidia.com/v1beta1, {parameters}}}}}}}]}}"
    ))
}

fn pod(spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n")
}

/// Documents without a fleet, the start of the one finding that is wanted of each, and words
/// of its sentence.
fn table() -> Vec<(String, &'static str, &'static str)> {
    let two = devices(
        "{requests: [{name: a, exactly: {deviceClassName: mig.nvidia.com}}, {name: b, exactly: \
         {deviceClassName: mig.nvidia.com}}]}",
    );
    let uses = |claim: &str| {
        pod(&format!(
            "{{containers: [{{name: x, resources: {{claims: [{claim}]}}}}], resourceClaims: \
             [{{name: g, resourceClaimName: c}}]}}"
        ))
    };
    let with = |pod: String| format!("{two}---\n{pod}");
    vec![
        // Shape.
        (
            request("deviceClassName: gpu.nvidia.com, selector: []"),
            "error unknown-field",
            "unknown field selector: did you mean selectors?",
        ),
        (
            request("deviceClassName: gpu.nvidia.com, matchAttribute: x"),
            "error unknown-field",
            "matchAttribute: it belongs elsewhere",
        ),
        ("apiVersion: v1\nmetadata: {}\n".to_owned(), "error api-shape", "kind is missing"),
        (
            class("a", GPU, "").replace("io/v1\n", "io/v1beta1\n"),
            "warning deprecated-api",
            "write apiVersion: resource.k8s.io/v1",
        ),
        (devices("{requests: [{name: gpu}]}"), "error api-shape", "asks for nothing"),
        (request("allocationMode: All"), "error api-shape", "deviceClassName is missing"),
        (
            devices(
                "{requests: [{name: a, exactly: {deviceClassName: gpu.nvidia.com}}, {name: a, \
                 exactly: {deviceClassName: gpu.nvidia.com}}]}",
            ),
            "error duplicate-name",
            "there are two requests a",
        ),
        // Classes.
        (
            class("a", "device.attributes['gpu.nvidia.com'].type == 'gpu'", ""),
            "error class-driver-guard",
            "put device.driver == 'gpu.nvidia.com' && before it",
        ),
        (
            class("a", "device.attributes['dra.net'].rdma", ""),
            "error class-driver-guard",
            "put device.driver == 'dra.net' && before it",
        ),
        (
            class("a", "!device.allowMultipleAllocations", ""),
            "warning class-driver-guard",
            "takes other drivers' devices too",
        ),
        (
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: a}\nspec: {}\n"
                .to_owned(),
            "warning class-driver-guard",
            "takes the devices of every driver",
        ),
        (
            class(
                "a",
                &format!("{GPU} && device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"),
                "",
            ),
            "error cel-runtime",
            "only MIG devices have profile",
        ),
        (
            class(
                "a",
                &format!("{GPU} && device.attributes['resource.kubernetes.io'].numaNode == 0"),
                "",
            ),
            "warning may-be-missing",
            ".?numaNode.orValue(...)",
        ),
        (
            class("a", GPU, "  extendedResourceName: nvidia.com/gpu\n"),
            "warning extended-resource",
            "also the name of class gpu.nvidia.com",
        ),
        (
            class("a", GPU, "  extendedResourceName: gpu\n"),
            "error extended-resource",
            "is no extended resource",
        ),
        (
            format!("{}---\n{}", class("a", GPU, ""), class("a", GPU, "")),
            "warning duplicate-name",
            "there are two classes a",
        ),
        // Selectors of claims.
        (
            claim("gpu.nvidia.com", "device.attributes['nvidia.com'].productName == 'NVIDIA L4'"),
            "error cel-runtime",
            "did you mean device.attributes['gpu.nvidia.com'].productName?",
        ),
        (
            claim("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"),
            "error cel-runtime",
            "only MIG devices have profile; gpu-0 is a gpu: use class mig.nvidia.com",
        ),
        (
            claim("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].index == 0"),
            "warning advisory-attribute",
            "prefer uuid",
        ),
        (
            claim(
                "gpu.nvidia.com",
                "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('70GB')) >= 0",
            ),
            "error cel-literal",
            "write quantity('70Gi')",
        ),
        (
            claim(
                "gpu.nvidia.com",
                "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('550.127.08'))",
            ),
            "error cel-literal",
            "write semver('550.127.08', true)",
        ),
        (
            claim("gpu.nvidia.com", "device.capacity['gpu.nvidia.com'].memory >= 80"),
            "error cel-compile",
            "compareTo(quantity(\"80Gi\")) >= 0",
        ),
        (
            claim("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].productName == 'H100'"),
            "warning unlikely-value",
            "productName is the full NVML name, such as \"NVIDIA H100 80GB HBM3\"",
        ),
        (
            claim(
                "gpu.nvidia.com",
                "device.attributes['gpu.nvidia.com'].productName in ['B200', 'H100']",
            ),
            "warning unlikely-value",
            "lowerAscii().contains('b200')",
        ),
        (
            claim("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].architecture == 'hopper'"),
            "warning unlikely-value",
            "did you mean \"Hopper\"?",
        ),
        (
            claim("mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g10gb'"),
            "warning unlikely-value",
            "is no name of a MIG profile",
        ),
        (
            claim(
                "gpu.nvidia.com",
                "device.attributes['gpu.nvidia.com'].?productName.orValue('').lowerAscii().contains('h100')",
            ),
            "error cel-compile",
            "test has(...) first",
        ),
        (
            claim(
                "gpu.nvidia.com",
                "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('x')) >= 0 && device.driver == 'gpu.nvidia.com'",
            ),
            "error cel-literal",
            "\"x\" is no quantity",
        ),
        // Requests.
        (
            request("deviceClassName: gpu.nvidia.com, allocationMode: All, count: 2"),
            "error request-count",
            "remove one of the two",
        ),
        (request("deviceClassName: gpu.nvidia.com, count: 0"), "error request-count", "at least 1"),
        (
            request("deviceClassName: gpu.nvidia.com, count: 33"),
            "error request-count",
            "use several claims",
        ),
        (
            request("deviceClassName: gpu.nvidia.com, allocationMode: Any"),
            "error request-count",
            "use ExactCount or All",
        ),
        (
            request(
                "deviceClassName: gpu.nvidia.com, capacity: {requests: {gpu.nvidia.com/memory: 4Gi}}",
            ),
            "warning capacity-name",
            "write it as the devices do: memory",
        ),
        (
            request("deviceClassName: monitor.gpu.nvidia.com"),
            "error admin-access",
            "add adminAccess: true",
        ),
        (
            request("deviceClassName: monitor.gpu.nvidia.com, adminAccess: true"),
            "warning admin-access",
            "key: gpu.nvidia.com/monitoring, operator: Exists",
        ),
        (
            format!(
                "apiVersion: v1\nkind: Namespace\nmetadata: {{name: default}}\n---\n{}",
                request("deviceClassName: gpu.nvidia.com, adminAccess: true")
            ),
            "error admin-access",
            "kubectl label namespace default resource.kubernetes.io/admin-access=true",
        ),
        (
            request(
                "deviceClassName: gpu.nvidia.com, tolerations: [{key: gpu.nvidia.com/xids, operator: Exists}]",
            ),
            "warning toleration",
            "did you mean gpu.nvidia.com/xid?",
        ),
        (
            request("deviceClassName: gpu.nvidia.com, tolerations: [{key: gpu.nvidia.com/xid}]"),
            "warning toleration",
            "write operator: Exists",
        ),
        (
            request("deviceClassName: gpu.nvidia.com, tolerations: [{operator: Exists}]"),
            "warning toleration",
            "tolerates every taint",
        ),
        (
            request(
                "deviceClassName: gpu.nvidia.com, tolerations: [{key: gpu.nvidia.com/monitoring, operator: Exists}]",
            ),
            "warning toleration",
            "ask with adminAccess, or leave out the toleration",
        ),
        // Constraints and configs.
        (
            devices(
                "{requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}], constraints: \
                 [{requests: [gpus], matchAttribute: gpu.nvidia.com/cliqueID}]}",
            ),
            "error unknown-request",
            "no request gpus: did you mean gpu?",
        ),
        (
            devices(
                "{requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}], constraints: \
                 [{matchAttribute: cliqueID}]}",
            ),
            "error constraint-attribute",
            "write gpu.nvidia.com/cliqueID",
        ),
        (
            devices(
                "{requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}], constraints: \
                 [{requests: [gpu]}]}",
            ),
            "error api-shape",
            "set matchAttribute or distinctAttribute",
        ),
        (
            config("mig.nvidia.com", "kind: GpuConfig"),
            "error config-kind",
            "GpuConfig doesn't fit request gpu, whose devices of class mig.nvidia.com are of type \
             mig: use MigDeviceConfig",
        ),
        (
            config("gpu.nvidia.com", "kind: GpuConfig")
                .replace("driver: gpu.nvidia.com", "driver: nvidia.com"),
            "error config-driver",
            "write driver: gpu.nvidia.com",
        ),
        (
            config("gpu.nvidia.com", "kind: GpuConfig, sharing: {strategy: Mps}"),
            "error config",
            "\"Mps\" is not allowed, use TimeSlicing or MPS",
        ),
        (
            class(
                "a",
                &format!("{GPU} && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'mig'"),
                "  config: [{opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig}}}]\n",
            ),
            "error config-kind",
            "use MigDeviceConfig",
        ),
        (
            config("gpu.nvidia.com", "kind: VfioDeviceConfig, iommu: {backendPolicy: LegacyOnly}"),
            "error config",
            "asks for passthrough to a virtual machine, which this driver doesn't serve yet",
        ),
        (
            config("vfio.gpu.nvidia.com", "kind: VfioDeviceConfig"),
            "error config",
            "remove the config and use class gpu.nvidia.com",
        ),
        (
            config("vfio.gpu.nvidia.com", "kind: VfioDeviceConfig, iommu: {backendPolicy: Legacy}"),
            "error config",
            "iommu.backendPolicy: \"Legacy\" is not allowed, use LegacyOnly or PreferIommuFD",
        ),
        (
            class(
                "a",
                &format!(
                    "{GPU} && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'vfio'"
                ),
                "  config: [{opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: VfioDeviceConfig}}}]\n",
            ),
            "error config",
            "remove the config",
        ),
        // Pods.
        (with(uses("{name: g}")), "warning container-request", "gets all MIG devices of claim g"),
        (with(uses("{name: g, request: c}")), "error unknown-request", "no request c"),
        (
            with(uses("{name: h, request: a}")),
            "error unknown-pod-claim",
            "no claim h: did you mean g?",
        ),
        (with(uses("{name: g, requests: a}")), "error unknown-field", "did you mean request?"),
        (
            pod("{containers: [], resourceClaims: [{name: g, resourceClaimName: c}]}"),
            "warning unused-pod-claim",
            "no container gets it",
        ),
        (
            pod(
                "{containers: [{name: x, resources: {claims: [{name: g}]}}], resourceClaims: [{name: g}]}",
            ),
            "error api-shape",
            "set either resourceClaimName or resourceClaimTemplateName",
        ),
        (
            pod("{containers: [], tolerations: [{key: gpu.nvidia.com/xid, operator: Exists}]}"),
            "warning toleration",
            "write the toleration in the claim's request",
        ),
    ]
}

#[test]
fn each_rule_has_its_sentence() {
    for (text, start, words) in table() {
        let found = worse(&findings(&text, None));
        let wanted =
            |line: &&String| line.starts_with(&format!("{start}:")) && line.contains(words);
        assert!(found.iter().any(|line| wanted(&line)), "{start} {words}\n{found:#?}\n{text}");
    }
}

/// What another rule already says isn't said twice.
#[test]
fn one_mistake_gives_one_finding() {
    let several = [
        // A wrong literal also fails, a claim that isn't there is also used by nobody.
        "cel-literal",
        "unknown-pod-claim",
        "unknown-field",
        "container-request",
        "unknown-request",
    ];
    for (text, start, _) in table() {
        if several.iter().any(|rule| start.ends_with(rule)) {
            continue;
        }
        let found = worse(&findings(&text, None));
        assert_eq!(found.len(), 1, "{start}: {found:#?}\n{text}");
    }
}

#[test]
fn every_rule_is_tried() {
    let tried: BTreeSet<String> =
        table().iter().map(|(_, start, _)| start.split(' ').nth(1).unwrap().to_owned()).collect();
    // These need a fleet: their tests are below, and among the cases.
    let with_fleet = ["capacity-ignored", "matches-nothing", "never-fits", "unknown-class"];
    // And this one something that compiles; its test is beside.
    let with_fleet = [with_fleet.as_slice(), &["gpu-class"]].concat();
    for rule in Rule::ALL {
        let known = tried.contains(rule.id()) || with_fleet.contains(&rule.id());
        assert!(known, "{rule}");
    }
}

#[test]
fn a_class_that_the_fleet_hasnt_is_named() {
    let fleet = inventory();
    let found = worse(&findings(&request("deviceClassName: gpu.nvida.com"), Some(&fleet)));
    assert_eq!(
        found,
        [
            "error unknown-class: DeviceClass gpu.nvida.com does not exist: did you mean gpu.nvidia.com?"
        ]
    );
    let found = findings(&request("deviceClassName: gpu.nvida.com"), None);
    assert!(found.is_empty(), "it may exist: {:?}", lines(&found));
}

/// A few nodes are no cluster: other drivers' devices may be there too.
#[test]
fn a_part_of_a_fleet_says_nothing_of_other_drivers() {
    let mut part = inventory();
    let own = part.slices.iter().filter(|slice| slice.spec.driver == "gpu.nvidia.com");
    part.slices = own.collect();
    part.classes = None;
    let nic = claim("dranet", "device.attributes['dra.net'].rdma == true");
    let together = devices(
        "{requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}, {name: nic, \
         exactly: {deviceClassName: dranet}}], constraints: [{matchAttribute: dra.net/rack}]}",
    );
    for text in [&nic, &together] {
        let found = worse(&findings(text, Some(&part)));
        assert!(found.is_empty(), "{found:#?}");
    }
    part.classes = inventory().classes;
    let found = worse(&findings(&together, Some(&part)));
    let wrong = |line: &String| line.starts_with("error constraint-attribute");
    assert!(found.iter().any(wrong), "in a cluster it is wrong: {found:#?}");
}

#[test]
fn what_matches_nothing_of_the_fleet_is_told_with_the_nearest() {
    let fleet = inventory();
    let found = worse(&findings(
        &class(
            "a",
            "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].architecture == 'hopper'",
            "",
        ),
        Some(&fleet),
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("warning matches-nothing") && found[0].contains("\"Hopper\""),
        "{found:?}"
    );
    // Other drivers' devices are no mistake.
    let found = worse(&findings(&class("a", "device.driver == 'dra.net'", ""), Some(&fleet)));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn lists_and_workloads_are_unfolded() {
    let item = request("deviceClassName: gpu.nvidia.com, count: 0");
    let item: serde_json::Value = serde_saphyr::from_str(&item).unwrap();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [{}, item]});
    let found = findings(&list.to_string(), None);
    let counts: Vec<_> = found.iter().filter(|f| f.severity == Severity::Error).collect();
    assert_eq!(counts.len(), 1, "{found:?}");
    assert_eq!(counts[0].path, "items[1].spec.devices.requests[0].exactly.count");
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      containers:\n      - name: x\n        resources:\n          claims:\n          - name: a\n";
    let found = findings(job, None);
    assert_eq!(found.len(), 1, "{:?}", lines(&found));
    assert_eq!(found[0].path, "spec.template.spec.containers[0].resources.claims[0].name");
    assert_eq!(found[0].line, 11);
}

#[test]
fn a_finding_is_one_line_and_has_its_parts_in_json() {
    let found = findings(&request("deviceClassName: gpu.nvidia.com, count: 0"), None);
    let json = serde_json::to_value(&found[0]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "file": "test.yaml", "document": 1, "line": 4, "object": "ResourceClaim c",
            "path": "spec.devices.requests[0].exactly.count", "severity": "error",
            "rule": "request-count", "message": "count 0: ask for at least 1",
        })
    );
    assert_eq!(
        found[0].to_string(),
        "test.yaml:4: error: ResourceClaim c: count 0: ask for at least 1 [request-count]"
    );
    for (text, ..) in table() {
        for finding in findings(&text, None) {
            assert!(!finding.message.contains('\n') && finding.message.len() < 400, "{finding}");
        }
    }
}

/// Anything that parses is judged without a panic.
#[test]
fn odd_documents_are_survived() {
    let fleet = inventory();
    let survives = |text: &str| {
        let documents = Document::parse("odd", text).unwrap();
        for fleet in [None, Some(&fleet)] {
            for finding in gpu_dra_lint::lint(&documents, fleet) {
                assert!(!finding.message.is_empty());
            }
        }
    };
    for text in [
        "",
        "---\n---\n",
        "[]",
        "5",
        "kind: 5",
        "kind: List\nitems: {}",
        "{kind: CronJob, spec: {jobTemplate: [], template: 4}}",
        "{kind: DeviceClass, spec: {selectors: [{}, {cel: {expression: \"\"}}]}}",
        "{kind: ResourceClaimTemplate, metadata: {name: é}, spec: {spec: {devices: {config: [{}]}}}}",
    ] {
        survives(text);
    }
    // Every part of these replaced by something else.
    for case in ["02-v1beta1-flat-request", "32-class-with-mps-default"] {
        let text = std::fs::read_to_string(data(&format!("cases/{case}.yaml"))).unwrap();
        for document in serde_saphyr::from_multiple::<serde_json::Value>(&text).unwrap() {
            let mut places = Vec::new();
            pointers(&document, String::new(), &mut places);
            for place in &places {
                for other in ["5", "[\"x\"]", "{\"a\": []}"] {
                    let mut changed = document.clone();
                    *changed.pointer_mut(place).unwrap() = serde_json::from_str(other).unwrap();
                    survives(&changed.to_string());
                }
            }
        }
    }
    assert!(Document::parse("bad", "a: [").is_err());
}

fn pointers(value: &serde_json::Value, at: String, into: &mut Vec<String>) {
    let children: Vec<(String, &serde_json::Value)> = match value {
        serde_json::Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.replace('/', "~1"), value)).collect()
        }
        serde_json::Value::Array(items) => {
            items.iter().enumerate().map(|(place, item)| (place.to_string(), item)).collect()
        }
        _ => Vec::new(),
    };
    for (name, child) in children {
        pointers(child, format!("{at}/{name}"), into);
    }
    into.push(at);
}

/// `lowerAscii()` is compared with what it makes of a value, with a fleet and without.
#[test]
fn values_are_compared_in_the_case_that_is_written() {
    let fleet = inventory();
    for term in [
        "productName.lowerAscii().startsWith('nvidia h100')",
        "productName.lowerAscii() == 'nvidia l4'",
        "productName.upperAscii().contains('H100')",
        "architecture.lowerAscii() == 'hopper'",
    ] {
        let text = claim("gpu.nvidia.com", &format!("device.attributes['gpu.nvidia.com'].{term}"));
        for fleet in [None, Some(&fleet)] {
            let found = worse(&findings(&text, fleet));
            assert!(found.is_empty(), "{term}: {found:#?}");
        }
    }
    let text = claim(
        "gpu.nvidia.com",
        "device.attributes['gpu.nvidia.com'].productName.lowerAscii().contains('H100')",
    );
    let found = worse(&findings(&text, Some(&fleet)));
    let [found] = found.as_slice() else { panic!("{found:#?}") };
    assert!(
        found.contains("compared in lower case") && found.contains("write \"h100\""),
        "{found}"
    );
}

/// Of an attribute with many values it isn't said that none is the one asked for.
#[test]
fn of_many_values_none_is_called_missing() {
    let asks = "device.attributes['gpu.nvidia.com'].uuid == 'GPU-none'";
    let found = |count: usize| {
        let devices: Vec<_> = (0..count)
            .map(|number| {
                serde_json::json!({"name": format!("gpu-{number}"), "attributes": {
                    "type": {"string": "gpu"}, "uuid": {"string": format!("GPU-{number}")},
                }})
            })
            .collect();
        let slice = serde_json::json!({
            "metadata": {"name": "s"}, "spec": {
                "driver": "gpu.nvidia.com", "nodeName": "n", "devices": devices,
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            },
        });
        let slice: k8s_openapi::api::resource::v1::ResourceSlice =
            serde_json::from_value(slice).unwrap();
        let slices = [slice].into_iter().collect();
        let fleet = Fleet { slices, ..inventory() };
        worse(&findings(&claim("gpu.nvidia.com", asks), Some(&fleet)))
    };
    let [few] = found(40).try_into().unwrap_or_else(|found| panic!("{found:?}"));
    assert!(few.contains("no uuid equals \"GPU-none\""), "{few}");
    let [many] = found(60).try_into().unwrap_or_else(|found| panic!("{found:?}"));
    assert!(!many.contains("no uuid equals") && many.contains("matches-nothing"), "{many}");
}
