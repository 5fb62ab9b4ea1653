//! From a claim that shares GPUs to a plan: MPS daemons, and shares of a GPU.

use gpu_dra_claims::record::KnownStep;
use gpu_dra_claims::{Allocation, HeldShare, Record, Refusal, check, plan};
use gpu_dra_model::{CdiDeviceId, ComputeMode};
use gpu_dra_testkit::{claim, driver, gpu_uuid, time_slicing};
use serde_json::json;

use crate::planning::{known, node, planned, prepared};

fn mps(kind: &str, config: serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind,
        "sharing": {"strategy": "MPS", "mpsConfig": config},
    })
}

/// The daemons of a plan: how many devices each serves.
fn daemons(record: &Record) -> Vec<(String, usize)> {
    known(record)
        .into_iter()
        .filter_map(|step| match step {
            KnownStep::MpsDaemon { daemon, devices, .. } => Some((daemon.clone(), devices.len())),
            _ => None,
        })
        .collect()
}

#[test]
fn mps_takes_a_daemon_and_the_compute_mode_of_whole_gpus() {
    let claim = claim("shared")
        .gets("a", "gpu-0")
        .gets("a", "gpu-1")
        .gets("b", "gpu-3-mig-1g10gb-19-6")
        .with_config(&["a"], mps("GpuConfig", json!({"defaultActiveThreadPercentage": 50})))
        .with_config(&["b"], mps("MigDeviceConfig", json!({})));
    let record = planned(&claim, &[]).unwrap();
    let kinds: Vec<_> = known(&record)
        .into_iter()
        .map(|step| match step {
            KnownStep::CreatePartition { .. } => "partition",
            KnownStep::ExclusiveProcess { before: ComputeMode::Default, .. } => "mode",
            KnownStep::MpsDaemon { .. } => "daemon",
            step => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(kinds, ["partition", "mode", "mode", "daemon", "daemon"]);
    let uid = claim.reference().uid;
    assert_eq!(daemons(&record), [(format!("{uid}-0"), 2), (format!("{uid}-1"), 1)]);
    let of = |index: usize| record.mps_daemon(&record.devices[index]);
    assert_eq!([of(0), of(1), of(2)], [0, 0, 1].map(|n| Some(format!("{uid}-{n}"))));
}

#[test]
fn configs_that_say_the_same_share_a_daemon_unless_they_count_devices() {
    let on = |config: serde_json::Value| {
        let claim = claim("shared")
            .gets("a", "gpu-0")
            .gets("b", "gpu-1")
            .with_config(&["a"], mps("GpuConfig", config.clone()))
            .with_config(&["b"], mps("GpuConfig", config));
        daemons(&planned(&claim, &[]).unwrap()).into_iter().map(|(_, n)| n).collect::<Vec<_>>()
    };
    assert_eq!(on(json!({"defaultPinnedDeviceMemoryLimit": "10Gi"})), [2]);
    assert_eq!(on(json!({"defaultPerDevicePinnedMemoryLimit": {"0": "10Gi"}})), [1, 1]);
}

#[test]
fn what_mps_cannot_is_refused_with_the_reason() {
    let on = |device: &str, config: serde_json::Value| {
        let claim = claim("shared").gets("gpu", device);
        planned(&claim.with_config(&[], mps("GpuConfig", config)), &[])
    };
    let limits = json!({"defaultActiveThreadPercentage": 50});
    on("gpu-0", limits.clone()).unwrap();
    on("gpu-2", json!({})).unwrap();
    let old = on("gpu-2", limits).unwrap_err().to_string();
    assert!(old.contains("older than Volta") && old.contains("no limits"), "{old}");
    let old = on("gpu-2", json!({"multiUser": true})).unwrap_err().to_string();
    assert!(old.contains("no multiUser"), "{old}");
    // MPS beside time-slicing on one GPU: an admin can force two requests onto one device.
    let both = claim("both")
        .gets("a", "gpu-0")
        .gets("b", "gpu-0")
        .with_config(&["a"], mps("GpuConfig", json!({})))
        .with_config(&["b"], time_slicing("Long"));
    let both = planned(&both, &[]).unwrap_err();
    assert!(matches!(both, Refusal::Contradiction { .. }), "{both}");
}

#[test]
fn an_observer_of_an_mps_gpu_runs_no_daemon() {
    let claim = claim("watch").watches("gpu", "gpu-0");
    let record = planned(&claim.with_config(&[], mps("GpuConfig", json!({}))), &[]).unwrap();
    assert!(record.steps.is_empty());
}

#[test]
fn shares_of_a_gpu_are_served_by_one_daemon_and_never_more_than_it_has() {
    let share = |n: u32, memory: &str, percent: &str| {
        let consumed = [("memory", memory), ("computePercent", percent)];
        claim(&format!("share-{n}")).uid(n).gets_share(
            "gpu",
            "gpu-5",
            &format!("{n:08}-0000-4000-8000-000000000000"),
            &consumed,
        )
    };
    let first = prepared(&share(1, "10Gi", "0"));
    let gpu = gpu_uuid(5);
    assert_eq!(known(&first), [&KnownStep::ShareDaemon { gpu, before: ComputeMode::Default }]);
    assert_eq!(
        first.devices[0].share,
        Some(HeldShare { memory_mib: 10_240, compute_percent: None })
    );
    assert_eq!(first.mps_daemon(&first.devices[0]).unwrap(), gpu_uuid(5).as_str().to_lowercase());

    let second = prepared(&share(2, "12Gi", "60"));
    assert_eq!(second.devices[0].share.unwrap().compute_percent, Some(60));
    planned(&share(2, "12Gi", "60"), std::slice::from_ref(&first)).unwrap();
    let held = [first, second];
    let over = planned(&share(3, "2Gi", "0"), &held).unwrap_err().to_string();
    assert!(over.contains("24576 of 24000 MiB"), "{over}");
    let over = planned(&share(3, "1Gi", "50"), &held).unwrap_err().to_string();
    assert!(over.contains("110 percent"), "{over}");
    planned(&share(3, "1Gi", "40"), &held).unwrap();
    // Who asks for no share has all of it, and so nobody else beside.
    let whole = share(4, "24000Mi", "0");
    let refused = planned(&whole, &held).unwrap_err();
    assert!(matches!(refused, Refusal::InUse { .. }), "{refused}");
    let alone = planned(&whole, &[]).unwrap();
    assert!(alone.steps.is_empty() && alone.devices[0].share.is_none());
    let refused = planned(&share(5, "1Gi", "0"), &[prepared(&whole)]).unwrap_err();
    assert!(matches!(refused, Refusal::InUse { .. }), "{refused}");
}

/// Field report K21: one claim, two shares of one GPU.
#[test]
fn k21_two_shares_of_a_gpu_in_one_claim_are_two_devices_of_one_daemon() {
    let ids = [1, 2].map(|n| format!("{n:08}-0000-4000-8000-000000000000"));
    let two = claim("two").gets_share("a", "gpu-5", &ids[0], &[("memory", "1Gi")]).gets_share(
        "b",
        "gpu-5",
        &ids[1],
        &[("memory", "2Gi")],
    );
    let allocation = Allocation::of(&two.object(), &two.reference(), &driver()).unwrap();
    let record = plan(&allocation, &node(), [], |result| {
        let share = result.share_id.as_deref().unwrap();
        CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={}-{share}", result.device))
    });
    let record = record.unwrap();
    check::plan(&record).unwrap();
    let of = |n: usize| {
        let device = &record.devices[n];
        let memory = device.share.unwrap().memory_mib;
        (device.requests[0].as_str(), device.share_id.as_deref().unwrap(), memory)
    };
    assert_eq!([of(0), of(1)], [("a", ids[0].as_str(), 1024), ("b", ids[1].as_str(), 2048)]);
    assert_eq!(known(&record).len(), 1, "one daemon");
    assert_eq!(record.mps_daemon(&record.devices[0]), record.mps_daemon(&record.devices[1]));
}

#[test]
fn shares_are_refused_where_they_make_no_sense() {
    let consumed = [("memory", "1Gi")];
    let id = "00000001-0000-4000-8000-000000000000";
    let share = |device: &str| claim("s").gets_share("gpu", device, id, &consumed);
    let refused = planned(&share("gpu-5").with_config(&[], time_slicing("Long")), &[]);
    assert!(matches!(refused, Err(Refusal::ConfigOnShare { .. })), "{refused:?}");
    // The node's policy changed since: gpu-2 is given out whole.
    let refused = planned(&share("gpu-2"), &[]).unwrap_err().to_string();
    assert!(refused.contains("doesn't give out in shares now"), "{refused}");
    let config = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"});
    planned(&share("gpu-5").with_config(&[], config), &[]).unwrap();
}
