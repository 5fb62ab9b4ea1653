//! What is kept over a restart: every past version, and what newer programs add.

use gpu_dra_health::{HealthReading, NvLinks, Policy, RowRemap, StoredError, Tracker};
use gpu_dra_model::{DeviceKind, Partition, Placement};

use crate::support::{Node, boot_id, gpu, instance, shown};

/// As written by version 1.
const V1: &str = include_str!("../cases/v1.json");

fn read(json: &str) -> Node {
    let tracker = Tracker::from_json(Policy::default(), json.as_bytes(), &boot_id(1)).unwrap();
    Node { tracker, now: 2000, instances: Vec::new() }
}

fn everything_of_v1(node: &Node) {
    assert_eq!(
        node.taints(0),
        [
            "gpu-lost:NoExecute",
            "xid=79:NoExecute",
            "recovery-action=reset:NoExecute",
            "row-remap=failure:NoSchedule",
            "ecc=uncorrected:None",
            "retired-pages=pending:None",
            "nvlink-down:None",
            "unmonitored:None",
        ]
    );
    let part = node.tracker.report(&DeviceKind::Partition {
        gpu: gpu(1),
        partition: Partition { profile_id: 19, placement: Placement { start: 2, size: 1 } },
        mode_is_free: true,
    });
    assert_eq!(shown(&part), ["ecc=fatal-poison:NoExecute", "xid=95:NoSchedule"]);
    assert_eq!(part.taints[0].since.0, 1700000010);
}

#[test]
fn version_one_is_read() {
    let node = read(V1);
    everything_of_v1(&node);
    let again = node.tracker.to_json(&boot_id(1)).unwrap();
    let (written, kept): (serde_json::Value, serde_json::Value) =
        (serde_json::from_slice(&again).unwrap(), serde_json::from_str(V1).unwrap());
    assert_eq!(written, kept, "and is still what is written");
}

#[test]
fn what_a_newer_program_adds_is_passed_over() {
    let mut json: serde_json::Value = serde_json::from_str(V1).unwrap();
    json["writtenBy"] = "gpu-dra 9.9".into();
    let gpus = json["gpus"].as_object_mut().unwrap();
    for state in gpus.values_mut() {
        state["temperature"] = 41.into();
        for condition in state["conditions"].as_array_mut().unwrap() {
            condition["ticket"] = "GPU-1".into();
        }
    }
    everything_of_v1(&read(&json.to_string()));
}

#[test]
fn what_is_no_health_is_refused_with_what_to_do() {
    let fail = |json: &str| {
        Tracker::from_json(Policy::default(), json.as_bytes(), &boot_id(1)).map(drop).unwrap_err()
    };
    for json in ["", "{}", "[]", r#"{"version": 1}"#, &V1[..V1.len() / 2], "\u{0}\u{0}"] {
        let error = fail(json);
        assert!(matches!(error, StoredError::Format(_)), "{json:?}: {error:?}");
        assert!(error.to_string().contains("remove it") && error.to_string().len() < 200);
    }
    let error = fail(r#"{"version": 2, "gpus": [], "boot": {}}"#);
    assert!(matches!(error, StoredError::Newer { version: 2 }));
    assert!(error.to_string().contains("upgrade"), "{error}");
}

/// How `cases/v1.json` was made.
#[test]
fn the_case_is_what_the_tracker_would_write() {
    let mut node = read(V1);
    let reading = HealthReading {
        uncorrected_ecc: Some(3),
        row_remap: Some(RowRemap { pending: false, failed: true }),
        retired_pages_pending: Some(true),
        nvlinks: Some(NvLinks { up: 17, down: 1 }),
        ..HealthReading::default()
    };
    node.instances = vec![instance(9, 2, 1, 1)];
    let before = node.tracker.to_json(&boot_id(1)).unwrap();
    node.read(0, &HealthReading { lost: Some(true), ..reading });
    assert_eq!(node.tracker.to_json(&boot_id(1)).unwrap(), before, "still lost, nothing new");
}
