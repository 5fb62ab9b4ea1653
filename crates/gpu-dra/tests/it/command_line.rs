//! The program as people and scripts call it: its name as a plugin of kubectl, and the exit
//! codes of `lint`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::world::PROGRAM;

/// Exit code, stdout, stderr.
fn call(program: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(program).args(args).env_remove("KUBECONFIG").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn request(fields: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: c}}\nspec: \
         {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com, \
         {fields}}}}}]}}}}\n"
    )
}

/// kubectl calls `kubectl-gpu explain ...` for `kubectl gpu explain ...`.
#[test]
fn it_is_a_plugin_of_kubectl() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-gpu");
    std::os::unix::fs::symlink(PROGRAM, &plugin).unwrap();
    let slices = dir.path().join("slices.yaml");
    let claim = dir.path().join("claim.yaml");
    std::fs::write(&claim, request("count: 3")).unwrap();
    std::fs::write(
        &slices,
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n  \
         driver: gpu.nvidia.com\n  nodeName: a\n  \
         pool: {name: a, generation: 1, resourceSliceCount: 1}\n  \
         devices: [{name: gpu-0, attributes: {type: {string: gpu}}}]\n",
    )
    .unwrap();
    let [claim, slices] = [&claim, &slices].map(|path| path.to_str().unwrap());
    let (code, text, errors) = call(&plugin, &["explain", "-f", claim, "--slices", slices]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(text.contains("wants 3 devices on one node, it has 1"), "{text}");

    let (code, usage, _) = call(&plugin, &["explain", "--help"]);
    assert_eq!(code, Some(0));
    assert!(usage.contains("Usage: kubectl gpu explain "), "{usage}");
    let (code, _, errors) = call(&plugin, &["explain"]);
    assert_eq!(code, Some(2), "{errors}");
    let (_, usage, _) = call(Path::new(PROGRAM), &["explain", "--help"]);
    assert!(usage.contains("Usage: gpu-dra explain "), "{usage}");
}

/// What docs/authoring.md promises to CI.
#[test]
fn each_exit_code_of_lint_has_its_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let clean = file("clean.yaml", &request("count: 1"));
    let hint = file("hint.yaml", "a: value of a chart\n");
    let warning = file("warning.yaml", &request("tolerations: [{operator: Exists}]"));
    let error = file("error.yaml", &request("count: 0"));
    let broken = file("broken.yaml", "kind: [");
    let missing = dir.path().join("missing.yaml").to_str().unwrap().to_owned();
    let table: [(i32, &[&str], &str); 13] = [
        (0, &[&clean], "0 errors, 0 warnings, 0 hints in 1 document"),
        (0, &[&hint, "--deny-warnings"], "0 errors, 0 warnings, 1 hint in 1 document"),
        (0, &[&warning], "0 errors, 1 warning, 0 hints in 1 document"),
        (0, &[&clean, "--node", "2xl4"], "0 errors, 0 warnings, 0 hints in 1 document"),
        (1, &[&warning, "--deny-warnings"], "0 errors, 1 warning, 0 hints in 1 document"),
        (1, &[&error], "1 error, 0 warnings, 0 hints in 1 document"),
        (1, &[&error, "-o", "json"], "\"severity\": \"error\""),
        (2, &[&broken], "not YAML or JSON"),
        (2, &[&missing], "can't read"),
        (2, &[&clean, &missing], "can't read"),
        (2, &[&clean, "--node", "8xh1000"], "h1000"),
        (2, &[&clean, "--kubeconfig", &missing], "missing.yaml"),
        (2, &["--no-such-flag"], "--no-such-flag"),
    ];
    for (want, args, says) in table {
        let args: Vec<&str> = ["lint"].iter().chain(args).copied().collect();
        let (code, text, errors) = call(Path::new(PROGRAM), &args);
        assert_eq!(code, Some(want), "{args:?}\n{text}\n{errors}");
        assert!(format!("{text}{errors}").contains(says), "{args:?}\n{text}\n{errors}");
    }
}

/// A GpuClass is checked as the controller does, and the class it makes as any.
#[test]
fn gpuclasses_are_linted() {
    let dir = tempfile::tempdir().unwrap();
    let lint = |spec: &str, more: &[&str]| {
        let path = dir.path().join("class.yaml");
        let text = format!(
            "apiVersion: gpu-dra.io/v1alpha1\nkind: GpuClass\nmetadata:\n  name: big\n{spec}"
        );
        std::fs::write(&path, text).unwrap();
        let args: Vec<&str> =
            ["lint", path.to_str().unwrap()].iter().chain(more).copied().collect();
        let (code, text, errors) = call(Path::new(PROGRAM), &args);
        (code, format!("{text}{errors}"))
    };
    let good = "spec:\n  model:\n    contains: [H100]\n  memoryAtLeast: 79Gi\n";
    let (code, text) = lint(good, &["--deny-warnings"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = lint(good, &["--node", "2xl4", "--deny-warnings"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("class.yaml:5: warning: ") && text.contains("matches-nothing"), "{text}");
    for (spec, line, says) in [
        ("spec:\n  profile: MIG-1g.10gb\n", 6, "did you mean 1g.10gb?"),
        ("spec:\n  model:\n    contain: [H100]\n", 7, "unknown field `contain`"),
        ("spec:\n  memoryAtLeast: 80GB\n", 6, "spec.memoryAtLeast"),
        (
            "spec:\n  sharing:\n    strategy: MPS\n    mpsConfig:\n      defaultActiveThreadPercentage: 150\n",
            5,
            "150 is not allowed",
        ),
        ("spec:\n  extendedResourceName: h100\n", 6, "has no domain"),
    ] {
        let (code, text) = lint(spec, &[]);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains(&format!("class.yaml:{line}: error: ")) && text.contains(says),
            "{spec}{text}"
        );
        assert!(text.contains("[gpu-class]"), "{text}");
    }
}

/// Thousands of devices in seconds, and in what a laptop has.
/// The times bound a build for tests on a busy machine.
#[test]
fn a_large_cluster_is_explained_in_bounds() {
    let program = Path::new(PROGRAM);
    let (code, said, errors) = call(program, &["bench", "explain", "--nodes", "400", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["devices"], 3200);
    assert!(said["peakKib"].as_u64().unwrap() < 128 << 10, "{said}");
    let questions = said["questions"].as_array().unwrap();
    let verdicts: Vec<&Value> = questions.iter().map(|question| &question["verdict"]).collect();
    assert_eq!(
        verdicts,
        ["doesNotFit", "doesNotFit", "doesNotFit", "doesNotFit", "stopped", "fits"]
    );
    assert!(
        questions.iter().all(|question| question["groups"] == 1),
        "equal nodes are one: {said}"
    );
    let seconds = questions.iter().map(|question| question["seconds"].as_f64().unwrap());
    assert!(seconds.sum::<f64>() < 120.0, "{said}");

    let (code, said, errors) = call(program, &["bench", "cel", "--millis", "20", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let said: Value = serde_json::from_str(&said).unwrap();
    for selector in said.as_array().unwrap() {
        assert!(selector["evaluatedPerSecond"].as_f64().unwrap() > 1000.0, "{selector}");
    }
}
