//! The common confusions: each is explained in one line that names the fix.

use gpu_dra_explain::{Report, Verdict, text};

use crate::world::{INVENTORY, reports};

fn pod(claim: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec:\n{claim}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers: []\n  resourceClaims: [{{name: gpu, resourceClaimName: c}}]\n"
    )
}

fn selecting(class: &str, expression: &str) -> String {
    let expression = serde_json::to_string(expression).unwrap();
    pod(&format!(
        "  devices:\n    requests:\n    - name: gpu\n      exactly:\n        deviceClassName: {class}\n        selectors: [{{cel: {{expression: {expression}}}}}]"
    ))
}

fn report(files: &[&str]) -> Report {
    let mut all = vec![INVENTORY];
    all.extend(files);
    reports(&all).remove(0)
}

/// Class, expression, verdict, and what one line of advice must say.
#[test]
fn expressions_have_their_line() {
    use Verdict::{DoesNotFit, Fits, Rejected, Stopped};
    let mut wrong = Vec::new();
    for (class, expression, verdict, problem, fix) in [
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].productName == 'H100'",
            DoesNotFit,
            "no productName equals \"H100\"",
            "it is the full NVML name: == \"NVIDIA H100 80GB HBM3\"",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].productName.startsWith('H100')",
            DoesNotFit,
            "no productName starts with \"H100\"",
            "startsWith(\"NVIDIA H100\")",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].productName == 'nvidia l4'",
            DoesNotFit,
            "no productName equals",
            "the case differs: write \"NVIDIA L4\"",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['nvidia.com'].productName == 'NVIDIA L4'",
            Stopped,
            "no device has attributes of domain nvidia.com",
            "did you mean device.attributes['gpu.nvidia.com'].productName?",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].memory >= 80",
            Stopped,
            "memory is a capacity, not an attribute",
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0",
        ),
        (
            "gpu.nvidia.com",
            "device.capacity['gpu.nvidia.com'].memory >= 80",
            Rejected,
            "(kubernetes.Quantity, int)",
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity(\"80Gi\")) >= 0",
        ),
        (
            "gpu.nvidia.com",
            "device.driver == 'gpu.nvidia.com' && device.capacity['gpu.nvidia.com'].memory > '16Gi'",
            Rejected,
            "(kubernetes.Quantity, string)",
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity(\"16Gi\")) > 0",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].ProductName == 'NVIDIA L4'",
            Stopped,
            "no attribute ProductName",
            "did you mean productName?",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].numaNode == 0",
            Stopped,
            "no attribute numaNode in domain gpu.nvidia.com",
            "did you mean device.attributes['resource.kubernetes.io'].numaNode?",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].cudaComputeCapability == '9.0.0'",
            Stopped,
            "cudaComputeCapability is a version and can't be compared with a string",
            "== semver('9.0.0')",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].driverVersion == '550.127.08'",
            Stopped,
            "driverVersion is a version",
            "== semver('550.127.08', true)",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].index < '2'",
            Stopped,
            "index is a whole number and can't be compared with a string",
            "device.attributes['gpu.nvidia.com'].index < 2",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",
            Stopped,
            "only MIG devices have profile; gpu-0 is a gpu",
            "use class mig.nvidia.com",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['architecture'] == 'Ampere'",
            Rejected,
            "(map(string, any), string)",
            "the domain is missing: device.attributes['gpu.nvidia.com'].architecture",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['memory'].comparableInt >= quantity('40Gi')",
            Rejected,
            "(any, kubernetes.Quantity)",
            "memory is a capacity",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['memory'] >= 80g",
            Rejected,
            "syntax error",
            "quantity('80Gi')",
        ),
        (
            "gpu.nvidia.com",
            "attributes['gpu.nvidia.com'].index == 0",
            Rejected,
            "undeclared reference to 'attributes'",
            "write device.attributes",
        ),
        (
            "gpu.nvidia.com",
            "device.atributes['gpu.nvidia.com'].index == 0",
            Rejected,
            "undefined field 'atributes'",
            "did you mean attributes?",
        ),
        (
            "gpu.nvidia.com",
            "device.capacity['gpu.nvidia.com'].productName.isGreaterThan(quantity('1'))",
            Stopped,
            "has no capacity productName",
            "productName is an attribute",
        ),
        (
            "gpu.nvidia.com",
            "device.driver == 'nvidia.com'",
            DoesNotFit,
            "no driver is named \"nvidia.com\"",
            "did you mean",
        ),
        (
            "mig.nvidia.com",
            "device.attributes['gpu.nvidia.com'].profile == '1g.10GB'",
            DoesNotFit,
            "no profile equals \"1g.10GB\"",
            "the case differs: write \"1g.10gb\"",
        ),
        (
            "gpu.nvidia.con",
            "true",
            Verdict::Missing,
            "DeviceClass gpu.nvidia.con does not exist",
            "did you mean gpu.nvidia.com?",
        ),
        (
            "gpu.nvidia.com",
            "device.attributes['gpu.nvidia.com'].?nvlinkDomain.orValue('') == ''",
            Fits,
            "",
            "",
        ),
    ] {
        let report = report(&[&selecting(class, expression)]);
        let says = |text: &str, part: &str| text.contains(part);
        let has_line = report.advice.iter().any(|advice| {
            says(&advice.problem, problem)
                && says(advice.fix.as_deref().unwrap_or_default(), fix)
                && !advice.problem.contains('\n')
        });
        if report.verdict != verdict || (verdict != Fits && !has_line) {
            wrong.push(format!("{expression}\n{:?}\n{}", report.verdict, text::plain(&report)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without a driver guard a class that reads what only MIG devices have stops all its pods.
#[test]
fn a_class_that_only_mig_devices_satisfy() {
    let class = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: small}\nspec:\n  selectors:\n  - cel: {expression: \"device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].profile == '1g.5gb'\"}\n";
    let report = report(&[class, &selecting("small", "true")]);
    assert_eq!(report.verdict, Verdict::Stopped);
    let [advice] = report.advice.as_slice() else { panic!("{:?}", report.advice) };
    assert_eq!(advice.about, "class small, selector #0");
    assert!(advice.problem.contains("only MIG devices have profile"), "{advice:?}");
    assert!(advice.fix.as_ref().unwrap().contains(".type == 'mig' &&"), "{advice:?}");
}

#[test]
fn devices_in_use_and_nodes_without_driver() {
    let mut wrong = Vec::new();
    let holder = "apiVersion: v1\nkind: Pod\nmetadata: {name: first}\nspec:\n  containers: []\n  nodeSelector: {kubernetes.io/hostname: node-l4}\n  resourceClaims: [{name: gpu, resourceClaimName: held}]\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: held}\nspec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}\n---\n";
    let l4 = selecting(
        "gpu.nvidia.com",
        "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA L4'",
    );
    let all = pod(
        "  devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All}}]}",
    );
    let bare = "---\napiVersion: v1\nkind: Node\nmetadata: {name: cpu-only}\n";
    let cordoned = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-l4, labels: {kubernetes.io/hostname: node-l4}}\nspec: {unschedulable: true}\n";
    let admin = pod(
        "  devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All, adminAccess: true}}]}",
    );
    let unlabelled = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n";
    let capacity = pod(
        "  devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, capacity: {requests: {gpu.nvidia.com/memory: 4Gi}}}}]}",
    );
    let distinct = pod(
        "  devices:\n    requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]\n    constraints: [{matchAttribute: gpu.nvidia.com/uuid}]",
    );
    let legacy = "apiVersion: v1\nkind: Pod\nmetadata: {name: old}\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n";
    let plugin = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-l4}\nstatus: {allocatable: {nvidia.com/gpu: \"1\"}}\n";
    for (name, files, words) in [
        (
            "held",
            vec![holder, &l4],
            vec!["1 device would do, but is held by other claims: default/held"],
        ),
        (
            "no driver",
            vec![&*l4, bare],
            vec!["fits on 1 of 4 nodes", "cpu-only: no ResourceSlice is for this node"],
        ),
        ("all busy", vec![holder, &all], vec!["fits on 2 of 3 nodes"]),
        ("cordoned", vec![&*l4, cordoned], vec!["the node is cordoned"]),
        (
            "admin",
            vec![&*admin, unlabelled],
            vec![
                "adminAccess is refused in namespace default",
                "kubectl label namespace default resource.kubernetes.io/admin-access=true",
            ],
        ),
        (
            "admin, perhaps",
            vec![&*admin],
            vec!["fits on", "whether namespace default allows adminAccess is not known"],
        ),
        (
            "capacity",
            vec![&*capacity],
            vec!["no capacity named gpu.nvidia.com/memory", "write it as the device does: memory"],
        ),
        (
            "device plugin",
            vec![legacy, plugin],
            vec!["node-l4: a device plugin offers nvidia.com/gpu here", "fits on 2 of 3 nodes"],
        ),
        (
            "together",
            vec![&*distinct],
            vec!["not together: constraint #0 on gpu.nvidia.com/uuid: must be the same on all"],
        ),
    ] {
        let mut all = vec![INVENTORY];
        all.extend(files);
        let reports = reports(&all);
        let shown = text::plain(reports.last().unwrap());
        if words.iter().any(|word| !shown.contains(word)) {
            wrong.push(format!("{name}:\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What isn't about devices is passed on.
#[test]
fn what_the_pod_itself_says_is_noted() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: []\n  schedulingGates: [{name: example.com/quota}]\n  resourceClaims: [{name: gpu, resourceClaimName: c}]\nstatus:\n  conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated, message: Scheduling is blocked}]\n---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}\n";
    let report = report(&[pod]);
    assert_eq!(report.verdict, Verdict::Fits);
    let problems: Vec<&str> = report.advice.iter().map(|advice| advice.problem.as_str()).collect();
    assert_eq!(
        problems,
        ["has scheduling gates: example.com/quota", "the scheduler says: Scheduling is blocked",]
    );
}

#[test]
fn what_is_missing_is_named() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: []\n  resourceClaims: [{name: a, resourceClaimName: nobody}, {name: b, resourceClaimTemplateName: none}]\n";
    let report = report(&[pod]);
    assert_eq!(report.verdict, Verdict::Missing);
    let problems: Vec<&str> = report.advice.iter().map(|advice| advice.problem.as_str()).collect();
    assert_eq!(
        problems,
        [
            "claim nobody does not exist in namespace default",
            "template none does not exist in namespace default",
        ]
    );
    assert!(report.nodes.is_empty());
}

#[test]
fn a_resource_that_no_class_stands_for_is_told() {
    let of = |resource: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: old}}\nspec: {{containers: [{{name: c, \
             resources: {{limits: {{{resource}: 1}}}}}}]}}\n"
        )
    };
    let told = report(&[&of("nvidia.com/mig-7g.1tb")]);
    assert_eq!(told.verdict, Verdict::NoDevices);
    let words = text::plain(&told);
    assert!(words.contains("asks for nvidia.com/mig-7g.1tb, which no DeviceClass"), "{words}");
    assert!(words.contains("DRAExtendedResource is off"), "{words}");
    for served in ["nvidia.com/gpu", "cpu", "example.com/fpga"] {
        let words = text::plain(&report(&[&of(served)]));
        assert!(!words.contains("no DeviceClass stands for"), "{words}");
    }
}

#[test]
fn a_claim_that_256_pods_use_is_told() {
    let users = (0..256).map(|n| format!("{{resource: pods, name: p{n}, uid: u{n}}}"));
    let users = users.collect::<Vec<_>>().join(", ");
    let claim = format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: shared}}\nspec: \
         {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com}}}}]}}}}\n\
         status: {{reservedFor: [{users}]}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: \
         more}}\nspec: {{containers: [], resourceClaims: [{{name: gpu, resourceClaimName: shared}}]}}\n"
    );
    let words = text::plain(&report(&[&claim]));
    assert!(words.contains("is used by 256 pods, which is the most"), "{words}");
}
