//! Every version of the journal's format that was ever written is kept as a file, and read.

use std::path::{Path, PathBuf};

use gpu_dra_claims::record::{Adopted, AdoptedMps, KnownStep, Step, VERSION};
use gpu_dra_claims::{HeldPart, HeldShare, Phase, Record};
use gpu_dra_model::config::{Interval, MemoryLimit, MpsConfig, MpsDevice};
use gpu_dra_model::{
    BootId, CdiDeviceId, ComputeInstanceId, ComputeMode, DeviceName, GpuInstanceId, MigDevice,
    MigUuid, Partition, Placement, PoolName, RequestName,
};
use gpu_dra_testkit::{claim, claim_uid, gpu_uuid};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journal")
}

fn file(version: u32) -> PathBuf {
    folder().join(format!("v{version}.json"))
}

/// A record that has everything that a record can have.
fn everything() -> Record {
    let name = |text: &str| DeviceName::new(text).unwrap();
    let placement = Placement { start: 6, size: 1 };
    let partition = Partition { profile_id: 19, placement };
    let mig = |n: u32| MigDevice {
        instance: GpuInstanceId(n),
        compute: ComputeInstanceId(0),
        uuid: MigUuid::new(format!("MIG-22222222-0000-0000-0000-{n:012x}")).unwrap(),
    };
    let device = |n: u32, device: &str, part| gpu_dra_claims::HeldDevice {
        requests: vec![RequestName::new("gpu").unwrap(), RequestName::new("wish/first").unwrap()],
        pool: PoolName::new("node-a").unwrap(),
        device: name(device),
        gpu: gpu_uuid(n),
        part,
        admin: false,
        share_id: None,
        share: None,
        cdi_device: CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim=x-{device}")).unwrap(),
    };
    let mut share = device(3, "gpu-3", None);
    share.share_id = Some("a671734a-e8e5-11e4-8fde-42010af09301".into());
    share.share = Some(HeldShare { memory_mib: 4096, compute_percent: Some(25) });
    let mut monitor = device(4, "gpu-4-monitor", None);
    monitor.admin = true;
    let gpu = gpu_uuid;
    let limit = |text: &str| MemoryLimit::new(&text.parse().unwrap());
    let mps = MpsConfig {
        default_active_thread_percentage: Some(50),
        default_pinned_device_memory_limit: limit("10Gi"),
        default_per_device_pinned_memory_limit: [(MpsDevice::Index(0), limit("5Gi").unwrap())]
            .into(),
        multi_user: true,
    };
    let steps = [
        KnownStep::CreatePartition {
            gpu: gpu(1),
            partition,
            switch_mode: true,
            made: Some(mig(9)),
        },
        KnownStep::MigModeOff { gpu: gpu(0) },
        KnownStep::TimeSlice { gpu: gpu(0), interval: Interval::Medium },
        KnownStep::ExclusiveProcess { gpu: gpu(5), before: ComputeMode::Prohibited },
        KnownStep::MpsDaemon { daemon: "x-0".into(), devices: vec![name("gpu-5")], config: mps },
        KnownStep::ShareDaemon { gpu: gpu(3), before: ComputeMode::ExclusiveThread },
    ];
    Record {
        version: VERSION,
        claim: claim("train").reference(),
        phase: Phase::Prepared,
        boot_id: BootId::new("11111111-2222-3333-4444-555555555555").unwrap(),
        devices: vec![
            device(0, "gpu-0", None),
            device(1, "gpu-1-mig-1g10gb-19-6", Some(HeldPart::Partition(partition))),
            device(
                2,
                "gpu-2-mig-1g10gb-19-6",
                Some(HeldPart::Static { placement, device: mig(8) }),
            ),
            share,
            monitor,
            device(5, "gpu-5", None),
        ],
        steps: steps.into_iter().map(Step::Known).collect(),
        adopted: Some(Adopted {
            mps: vec![AdoptedMps { daemon: "x-0a1b2".into(), devices: vec![name("gpu-5")] }],
        }),
        other: serde_json::Map::new(),
    }
}

/// Whoever changes what is written has to raise `VERSION` if an older agent would do harm by
/// it, and to keep the new format as a file: run with UPDATE_GOLDEN=1, which never touches the
/// file of a version that has been released.
#[test]
fn the_current_format_is_kept_as_a_file() {
    let mut written: serde_json::Value =
        serde_json::from_slice(&everything().encode().unwrap()).unwrap();
    let path = file(VERSION);
    if !path.exists() && std::env::var_os("UPDATE_GOLDEN").is_some() {
        let mut text = serde_json::to_string_pretty(&written).unwrap();
        text.push('\n');
        std::fs::write(&path, text).unwrap();
    }
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        written, kept,
        "the journal's format has changed: raise VERSION in record.rs and keep the new format as a file"
    );
    // The file's order of fields is of no account.
    assert_eq!(written["version"].take(), VERSION);
}

#[test]
fn every_version_is_read_into_the_same_record() {
    for version in 1..=VERSION {
        let record = Record::decode(&std::fs::read(file(version)).unwrap()).unwrap();
        assert!(record.known_steps().is_some(), "version {version}");
        assert_eq!(Record { version: VERSION, ..record }, everything(), "version {version}");
    }
    let files = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(files, VERSION as usize, "a file of no version");
}

#[test]
fn fields_of_a_newer_version_are_tolerated_everywhere_in_the_kept_files() {
    let mut newer: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file(VERSION)).unwrap()).unwrap();
    for at in [
        "",
        "/claim",
        "/devices/0",
        "/devices/1/part",
        "/devices/3/share",
        "/steps/0",
        "/adopted",
        "/adopted/mps/0",
    ] {
        let object = newer.pointer_mut(at).unwrap().as_object_mut().unwrap();
        object.insert("colour".into(), "green".into());
    }
    let read = Record::decode(newer.to_string().as_bytes()).unwrap();
    assert_eq!(read.other["colour"], "green");
    assert_eq!(Record { other: serde_json::Map::new(), ..read }, everything());
}

/// What it means is unknown; which GPUs are taken is plain.
#[test]
fn a_newer_version_that_can_not_be_read_still_holds_its_gpus() {
    let newer = serde_json::json!({
        "version": 7, "bootId": "11111111-2222-3333-4444-555555555555",
        "claim": {"namespace": "team-a", "name": "train", "id": [1]},
        "held": {"gpus": {gpu_uuid(3).as_str(): 1}, "more": [[gpu_uuid(4)], gpu_uuid(3)]},
    });
    let bytes = newer.to_string();
    assert!(Record::decode(bytes.as_bytes()).is_err());
    let record = Record::stand_in(&claim_uid(1), bytes.as_bytes()).unwrap();
    assert_eq!(record.claim.to_string(), "team-a/train");
    assert_eq!(record.gpus(), [&gpu_uuid(3), &gpu_uuid(4)]);
    assert!(record.devices.iter().all(|device| device.part.is_none() && !device.admin));
    assert_eq!(record.known_steps(), None);
    for no_newer in ["", "{}", r#"{"version":1}"#, r#"{"version":"9"}"#, r#"{"version":9}"#] {
        assert_eq!(Record::stand_in(&claim_uid(1), no_newer.as_bytes()), None, "{no_newer}");
    }
}
