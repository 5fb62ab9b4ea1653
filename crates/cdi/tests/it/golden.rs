//! Recorded files: a change of the bytes is a change for every node in the field. After a
//! wanted change, run with `UPDATE_GOLDEN=1` and read the difference.

use std::path::PathBuf;

use gpu_dra_cdi::Spec;

use crate::support::{claim, claim_spec, claim_with_letter, common, driver, gpu};

fn check(name: &str, spec: &Spec<'_>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let bytes = spec.to_bytes().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    let recorded = std::fs::read(&path).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), String::from_utf8(recorded).unwrap());
    assert_eq!(serde_json::from_slice::<Spec>(&spec.to_bytes().unwrap()).unwrap(), *spec);
}

#[test]
fn one_gpu() {
    check("one-gpu.json", &claim_spec(&driver(), &claim(), &[gpu(7)], &common()).unwrap());
}

#[test]
fn two_gpus_from_a_driver_container() {
    let mut devices = [gpu(3), gpu(1)];
    for entry in &mut devices {
        for node in &mut entry.edits.device_nodes {
            node.host_path = Some(format!("/run/nvidia/driver{}", node.path));
        }
    }
    let spec = claim_spec(&driver(), &claim_with_letter(), &devices, &common()).unwrap();
    check("two-gpus-driver-container.json", &spec);
}

#[test]
fn order_of_the_input_does_not_show() {
    let mut reversed = common();
    reversed.mounts.reverse();
    reversed.device_nodes.reverse();
    let one = claim_spec(&driver(), &claim(), &[gpu(0), gpu(1)], &common()).unwrap();
    let two = claim_spec(&driver(), &claim(), &[gpu(1), gpu(0)], &reversed).unwrap();
    assert_eq!(one.to_bytes().unwrap(), two.to_bytes().unwrap());
}
