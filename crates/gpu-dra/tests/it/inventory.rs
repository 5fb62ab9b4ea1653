//! `gpu-dra inventory` as a person runs it.

use std::process::Command;

use gpu_dra_sim_data::Artifacts;

use crate::world::PROGRAM;

fn inventory(args: &[&str]) -> (bool, String) {
    Artifacts::build_for_tests().unwrap();
    let output = Command::new(PROGRAM).arg("inventory").args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_simulated_node_is_shown_in_every_format() {
    let (ok, table) = inventory(&["--node", "2xh100+1xgb10"]);
    assert!(ok, "{table}");
    assert_eq!(table.matches("NVIDIA H100 80GB HBM3").count(), 2, "{table}");
    assert_eq!(table.matches("NVIDIA GB10").count(), 1, "{table}");

    let (ok, json) = inventory(&["--node", "2xl4", "-o", "json"]);
    assert!(ok, "{json}");
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["gpus"].as_array().unwrap().len(), 2);

    let (ok, yaml) = inventory(&["--node", "1xl4", "-o", "yaml", "--slices"]);
    assert!(ok && yaml.contains("productName") && yaml.contains("NVIDIA L4"), "{yaml}");
}

#[test]
fn what_is_wrong_has_a_sentence_with_a_remedy() {
    let empty = tempfile::tempdir().unwrap();
    let root = empty.path().to_str().unwrap();
    let (ok, text) = inventory(&["--driver-root", root, "--sysfs", root, "--proc", root]);
    assert!(!ok && text.starts_with("gpu-dra: ") && text.lines().count() == 1, "{text}");
    let (ok, text) = inventory(&["--node", "8xh1000"]);
    assert!(!ok && text.contains("h100"), "names the known types: {text}");
}
