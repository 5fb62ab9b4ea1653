//! The case files: each report is kept as a golden text, and each stated outcome is checked.
//! `UPDATE_GOLDEN=1` writes the texts anew: read them before they are kept.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gpu_dra_explain::{Verdict, text};

use crate::world::{INVENTORY, manifests, reports};

fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(data(path)).unwrap()
}

/// Verdict of each pod, and words that must be said.
fn outcomes() -> BTreeMap<&'static str, (Vec<Verdict>, Vec<&'static str>)> {
    use Verdict::{Allocated, DoesNotFit, Fits, Rejected, Stopped};
    BTreeMap::from([
        ("01-whole-gpu-template", (vec![Fits], vec![])),
        ("02-v1beta1-flat-request", (vec![Fits], vec![])),
        (
            "03-v1-flat-request-rejected",
            (vec![Rejected], vec!["the API server refuses", "under exactly:"]),
        ),
        (
            "04-pod-old-source-syntax",
            (vec![Rejected], vec!["the API server refuses", "unknown field source"]),
        ),
        (
            "10-cel-80gi-on-80gb-card",
            (
                vec![DoesNotFit],
                vec![
                    "largest memory published is 81559Mi",
                    "NVIDIA H100 80GB HBM3",
                    "80Gi = 81920Mi",
                    "79Gi",
                    "did you mean >= 79Gi?",
                ],
            ),
        ),
        (
            "11-cel-memory-as-attribute",
            (
                vec![Stopped],
                vec![
                    "no such key: memory",
                    "memory is a capacity",
                    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0",
                ],
            ),
        ),
        (
            "13-cel-quantity-vs-string",
            (
                vec![Rejected],
                vec![
                    "no matching overload for '_>=_' applied to '(kubernetes.Quantity, string)'",
                    r#"memory.compareTo(quantity("16Gi")) >= 0"#,
                ],
            ),
        ),
        ("14-cel-wrong-case", (vec![Stopped], vec!["no attribute Uuid", "did you mean uuid?"])),
        ("15-cel-index-attribute", (vec![Fits], vec!["gpu-0"])),
        (
            "17-cel-version-function",
            (
                vec![Rejected],
                vec![
                    "undeclared reference to 'version'",
                    "semver('8.0.0')",
                    "isGreaterThan leaves out '8.0.0' itself",
                ],
            ),
        ),
        (
            "19-cel-version-equals-string",
            (
                vec![Stopped],
                vec!["no such overload", "driverVersion is a version", "== semver('580.105.8')"],
            ),
        ),
        (
            "20-cel-standard-attribute-as-key",
            (
                vec![Rejected],
                vec![
                    "'(map(string, any), string)'",
                    "device.attributes['resource.kubernetes.io'].pcieRoot",
                ],
            ),
        ),
        ("22-cel-guarded-optional", (vec![Fits], vec!["node-h100"])),
        (
            "24-cel-short-product-name",
            (
                vec![DoesNotFit],
                vec![
                    "no productName equals \"H100\"",
                    "NVIDIA H100 80GB HBM3",
                    "NVIDIA L4",
                    "NVIDIA A100-SXM4-40GB",
                    "it is the full NVML name",
                ],
            ),
        ),
        (
            "30-class-without-driver-guard",
            (
                vec![Stopped],
                vec![
                    "class gpu-blackwell: selector #0: CEL runtime error: no such key: family",
                    "device.driver == 'gpu.nvidia.com' &&",
                ],
            ),
        ),
        ("32-class-with-mps-default", (vec![Fits], vec![])),
        ("33-extended-resource", (vec![Fits], vec!["container-0-request-0"])),
        ("34-extended-resource-mig", (vec![Fits], vec!["node-mig"])),
        (
            "35-class-unguarded-but-known-attribute",
            (
                vec![Stopped],
                vec![
                    "class hopper: selector #0: CEL runtime error: no such key: architecture",
                    "put device.driver == 'gpu.nvidia.com' && before it",
                ],
            ),
        ),
        ("40-mig-four-slices-one-parent", (vec![Fits], vec!["19-0", "19-1", "14-2", "9-4"])),
        (
            "42-mig-versus-whole-gpu",
            (vec![Fits, DoesNotFit], vec!["gpu-0 held by claim default/first-whole-gpu"]),
        ),
        ("50-timeslicing-shared-claim", (vec![Fits, Allocated], vec!["all claims are allocated"])),
        (
            "51-timeslicing-device-plugin-habit",
            (vec![Rejected], vec!["the node agent refuses", "apiVersion", "timeSlicing"]),
        ),
        ("53-timeslicing-and-mps-in-one-claim", (vec![Fits], vec!["node-h100"])),
        ("54-mps-bad-values", (vec![Rejected], vec!["the node agent refuses", "150", "512Ki"])),
        ("60-first-available-parent-config", (vec![Fits], vec!["gpu/l4", "node-l4"])),
        ("61-gpu-and-nic-on-one-root", (vec![Fits], vec!["gpu0rdma0"])),
        (
            "63-numa-node-in-wrong-domain",
            (
                vec![DoesNotFit],
                vec![
                    "no device has attribute gpu.nvidia.com/numaNode",
                    "did you mean resource.kubernetes.io/numaNode?",
                    "gpu-0 has 0, gpu-1 has 0",
                ],
            ),
        ),
        ("64-admin-access-monitor", (vec![Fits], vec!["gpu-0", "gpu-1"])),
        (
            "66-too-many-gpus",
            (
                vec![DoesNotFit],
                vec![
                    "wants 3 devices on one node, it has 2 (2 free)",
                    "the most that match are 2, on node-h100",
                    "ask for 2 at most",
                ],
            ),
        ),
        ("67-share-of-memory", (vec![Fits], vec![])),
        ("69-tolerate-xid-taint", (vec![Fits], vec![])),
    ])
}

fn golden(name: &str, got: &str) -> Option<String> {
    let path = data(&format!("golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(data("golden")).unwrap();
        std::fs::write(&path, got).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    (want != got).then(|| format!("{name}: wanted\n{want}\ngot\n{got}"))
}

#[test]
fn every_case_has_its_stated_outcome() {
    let outcomes = outcomes();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(data("cases")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".yaml").unwrap();
        seen += 1;
        let reports = reports(&[INVENTORY, &read(&format!("cases/{file}"))]);
        let shown: String = reports.iter().map(text::plain).collect();
        let (verdicts, words) = outcomes.get(name).unwrap_or_else(|| panic!("{name}"));
        let got: Vec<Verdict> = reports.iter().map(|report| report.verdict).collect();
        if got != *verdicts {
            wrong.push(format!("{name}: {got:?}\n{shown}"));
        }
        for word in words.iter().filter(|word| !shown.contains(**word)) {
            wrong.push(format!("{name} doesn't say {word:?}:\n{shown}"));
        }
        wrong.extend(golden(name, &shown));
    }
    assert_eq!(seen, outcomes.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn variants_of_the_inventory_are_told_apart() {
    let mut wrong = Vec::new();
    for (name, variant, case, verdict, words) in [
        (
            "half-published",
            "variant-half-published-pool.yaml",
            "60-first-available-parent-config.yaml",
            Verdict::DoesNotFit,
            vec!["pool gpu.nvidia.com/node-l4 has 1 of 2 slices"],
        ),
        (
            "xid-taint",
            "variant-xid-taint.yaml",
            "22-cel-guarded-optional.yaml",
            Verdict::DoesNotFit,
            vec![
                "gpu.nvidia.com/xid=79:NoSchedule",
                "tolerations: [{key: gpu.nvidia.com/xid, operator: Exists, effect: NoSchedule}]",
                "2 devices fail only by taint",
            ],
        ),
        (
            "xid-taint-tolerated",
            "variant-xid-taint.yaml",
            "69-tolerate-xid-taint.yaml",
            Verdict::Fits,
            vec![],
        ),
        ("shares", "variant-shares.yaml", "67-share-of-memory.yaml", Verdict::Fits, vec![]),
    ] {
        let case = read(&format!("cases/{case}"));
        let reports = reports(&[INVENTORY, &read(variant), &case]);
        let shown: String = reports.iter().map(text::plain).collect();
        if reports[0].verdict != verdict || words.iter().any(|word| !shown.contains(word)) {
            wrong.push(format!("{name}:\n{shown}"));
        }
        wrong.extend(golden(&format!("variant-{name}"), &shown));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the API server refuses for its shape, before any expression.
#[test]
fn shapes_that_the_api_server_refuses_are_named() {
    let flat = manifests(&[&read("cases/03-v1-flat-request-rejected.yaml")]);
    let [refusal] = flat.refused.as_slice() else { panic!("{:?}", flat.refused) };
    let advice = &refusal.advice;
    assert_eq!(refusal.object.kind, "ResourceClaimTemplate");
    assert!(advice.problem.contains("in v1 these fields live under exactly:"), "{advice:?}");
    let fix = r#"{"exactly":{"count":1,"deviceClassName":"gpu.nvidia.com"},"name":"gpu"}"#;
    assert_eq!(advice.fix.as_deref(), Some(fix));

    let source = manifests(&[&read("cases/04-pod-old-source-syntax.yaml")]);
    let [refusal] = source.refused.as_slice() else { panic!("{:?}", source.refused) };
    let advice = &refusal.advice;
    assert!(advice.problem.contains("unknown field source"), "{advice:?}");
    assert!(advice.fix.as_ref().unwrap().contains("source.X -> X"), "{advice:?}");

    let old = manifests(&[&read("cases/02-v1beta1-flat-request.yaml")]);
    assert!(old.refused.is_empty() && old.warnings.len() == 1);
    assert!(old.warnings[0].problem.contains("v1beta1 is deprecated"), "{:?}", old.warnings);
}

/// The fields that programs read.
#[test]
fn json_has_the_values_seen_beside_those_asked() {
    let reports = reports(&[INVENTORY, &read("cases/10-cel-80gi-on-80gb-card.yaml")]);
    let json = serde_json::to_value(&reports[0]).unwrap();
    assert_eq!(json["verdict"], "doesNotFit");
    assert_eq!(json["considered"], 3);
    assert_eq!(json["nearest"][0]["devices"], 2);
    assert_eq!(json["nearest"][0]["nodes"], 1);
    let request = &json["nodes"][0]["requests"][0];
    assert_eq!(request["wanted"], 1);
    let removed = request["removed"].as_array().unwrap();
    let by_memory = removed.iter().find(|r| r["cause"]["kind"] == "selector").unwrap();
    assert_eq!(by_memory["count"], 2);
    assert_eq!(by_memory["devices"], serde_json::json!(["gpu-0", "gpu-1"]));
    assert_eq!(by_memory["cause"]["wanted"], "memory >= 80Gi");
    assert_eq!(by_memory["cause"]["seen"], serde_json::json!(["81559Mi (79.6Gi)"]));
}

/// Selectors seen in public, with the verdict of a real API server and scheduler.
#[test]
fn public_selectors_have_their_stated_outcome() {
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in read("selectors.tsv").lines().filter(|line| line.starts_with('S')) {
        let [id, class, expression, _, result] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}: want five columns")
        };
        rows += 1;
        let claim = serde_json::json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": class, "selectors": [{"cel": {"expression": expression}}],
            }}]}},
        });
        let reports = reports(&[INVENTORY, &claim.to_string()]);
        let [report] = reports.as_slice() else { panic!("{id}: one claim, one report") };
        let (verdict, says) = if result.starts_with("API rejects") {
            (Verdict::Rejected, "the API server refuses")
        } else if let Some((_, error)) = result.split_once("CEL runtime error: ") {
            (Verdict::Stopped, error)
        } else if result.starts_with("match") {
            (Verdict::Fits, "fits on")
        } else {
            (Verdict::DoesNotFit, "fits on none of 3 nodes")
        };
        let shown = text::plain(report);
        let is_advised =
            verdict == Verdict::Fits || !report.advice.is_empty() || !report.nearest.is_empty();
        if report.verdict != verdict || !shown.contains(says) || !is_advised {
            wrong.push(format!("{id} {result}\n{shown}"));
        }
        wrong.extend(golden(&format!("selector-{id}"), &shown));
    }
    assert_eq!(rows, 20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
