//! From a claim object to a plan, or to the refusal that its owner reads.

use std::collections::BTreeMap;

use gpu_dra_claims::record::{KnownStep, Step};
use gpu_dra_claims::{
    Allocation, GpuFacts, HeldPart, NodeView, Phase, Record, Refusal, check, plan,
};
use gpu_dra_model::config::Interval;
use gpu_dra_model::{
    BootId, CdiDeviceId, ComputeInstanceId, DeviceKind, DeviceName, GpuInstanceId, MigDevice,
    MigUuid, Partition, Placement, PoolName, Shares,
};
use gpu_dra_testkit::{ClaimBuilder, POOL, claim, claim_uid, driver, gpu_uuid, time_slicing};
use serde_json::json;

/// Three whole GPUs, a fourth that can be partitioned, and one with MIG devices of others.
pub(crate) fn node() -> NodeView {
    let named = |name: &str, kind| (DeviceName::new(name).unwrap(), kind);
    let whole = |n, mig_may_be_on| {
        named(
            &format!("gpu-{n}"),
            DeviceKind::Gpu { gpu: gpu_uuid(n), mig_may_be_on, shares: Shares::Off },
        )
    };
    let part = |name: &str, profile_id, start, size| {
        let partition = Partition { profile_id, placement: Placement { start, size } };
        named(name, DeviceKind::Partition { gpu: gpu_uuid(3), partition, mode_is_free: true })
    };
    let fixed = |name: &str, instance, start, compute| {
        let uuid = format!("MIG-22222222-0000-0000-0000-{instance:08x}{compute:04x}");
        let device = MigDevice {
            instance: GpuInstanceId(instance),
            compute: ComputeInstanceId(compute),
            uuid: MigUuid::new(uuid).unwrap(),
        };
        let placement = Placement { start, size: 4 };
        named(name, DeviceKind::StaticMig { gpu: gpu_uuid(4), placement, device })
    };
    NodeView {
        pool: PoolName::new(POOL).unwrap(),
        devices: BTreeMap::from([
            whole(0, false),
            whole(1, false),
            whole(2, false),
            whole(3, true),
            named(
                "gpu-5",
                DeviceKind::Gpu { gpu: gpu_uuid(5), mig_may_be_on: false, shares: Shares::Mps },
            ),
            named("gpu-3-monitor", DeviceKind::Monitor { gpu: gpu_uuid(3) }),
            part("gpu-3-mig-1g10gb-19-6", 19, 6, 1),
            part("gpu-3-mig-1g10gb-19-4", 19, 4, 1),
            part("gpu-3-mig-3g40gb-9-4", 9, 4, 4),
            part("gpu-3-mig-4g40gb-5-0", 5, 0, 4),
            fixed("gpu-4-mig-1c3g40gb-9-0", 2, 0, 0),
            fixed("gpu-4-mig-1c3g40gb-9-0-1", 2, 0, 1),
            fixed("gpu-4-mig-3g40gb-9-4", 1, 4, 0),
        ]),
        gpus: BTreeMap::from([
            (gpu_uuid(2), GpuFacts { before_volta: true, memory_mib: 16_000 }),
            (gpu_uuid(5), GpuFacts { before_volta: false, memory_mib: 24_000 }),
        ]),
        boot_id: BootId::new("11111111-2222-3333-4444-555555555555").unwrap(),
    }
}

pub(crate) fn planned(claim: &ClaimBuilder, held: &[Record]) -> Result<Record, Refusal> {
    planned_on(&node(), claim, held)
}

fn planned_on(node: &NodeView, claim: &ClaimBuilder, held: &[Record]) -> Result<Record, Refusal> {
    let reference = claim.reference();
    let allocation = Allocation::of(&claim.object(), &reference, &driver())?;
    let record = plan(&allocation, node, held, |result| {
        CdiDeviceId::new(format!("k8s.gpu.nvidia.com/claim={}-{}", reference.uid, result.device))
    })?;
    check::plan(&record).expect("every plan obeys its own rules");
    Ok(record)
}

pub(crate) fn prepared(claim: &ClaimBuilder) -> Record {
    Record { phase: Phase::Prepared, ..planned(claim, &[]).unwrap() }
}

fn intervals(record: &Record) -> Vec<Interval> {
    let of = |step: &Step| match step {
        Step::Known(KnownStep::TimeSlice { interval, .. }) => *interval,
        step => panic!("{step:?}"),
    };
    record.steps.iter().map(of).collect()
}

#[test]
fn a_claim_holds_what_it_was_given_and_nothing_of_other_drivers() {
    let record = planned(
        &claim("train")
            .gets_of("dra.net", "nic", "Not a name of ours")
            .gets("gpu", "gpu-1")
            .with_config_of("dra.net", json!({"kind": "Whatever"})),
        &[],
    )
    .unwrap();
    assert_eq!(record.phase, Phase::Preparing);
    assert_eq!(record.devices.len(), 1);
    assert_eq!(record.devices[0].gpu, gpu_uuid(1));
    assert_eq!(record.steps, []);
}

#[test]
fn a_device_is_one_cdi_device_for_all_its_requests() {
    // Two admin requests of one claim may pick the same device (kubernetes#131269).
    let record = planned(&claim("watch").watches("a", "gpu-0").watches("b", "gpu-0"), &[]).unwrap();
    assert_eq!(record.devices.len(), 1);
    let requests: Vec<_> = record.devices[0].requests.iter().map(|r| r.as_str()).collect();
    assert_eq!(requests, ["a", "b"]);
}

#[test]
fn precedence_of_configs() {
    let one = |claim: ClaimBuilder| intervals(&planned(&claim, &[]).unwrap());
    let gpu = || claim("train").gets("gpu", "gpu-0");
    assert_eq!(one(gpu()), [], "nobody asked");
    assert_eq!(one(gpu().with_config(&[], time_slicing("Long"))), [Interval::Long]);
    assert_eq!(
        one(gpu()
            .with_config(&[], time_slicing("Long"))
            .with_class_config(&[], time_slicing("Short"))),
        [Interval::Long],
        "the claim beats the class, in whatever order they are listed"
    );
    assert_eq!(
        one(gpu()
            .with_config(&["gpu"], time_slicing("Long"))
            .with_config(&[], time_slicing("Short"))),
        [Interval::Short],
        "later beats earlier"
    );
    assert_eq!(one(gpu().with_config(&["other"], time_slicing("Long"))), [], "another request's");
    assert_eq!(
        one(gpu().with_config(&[], time_slicing("Default"))),
        [],
        "the default is what the GPU has: the knob is not touched"
    );
    assert_eq!(
        one(claim("t")
            .gets("a", "gpu-0")
            .gets("b", "gpu-1")
            .with_config(&["b"], time_slicing("Long"))),
        [Interval::Long],
    );
}

#[test]
fn a_config_that_names_the_parent_applies_to_the_chosen_subrequest() {
    let claim = claim("t").gets("gpu/l4", "gpu-0");
    for requests in [&["gpu"][..], &["gpu/l4"], &[]] {
        let record = planned(&claim.clone().with_config(requests, time_slicing("Short")), &[]);
        assert_eq!(intervals(&record.unwrap()), [Interval::Short], "{requests:?}");
    }
    let other = claim.with_config(&["gpu/h100"], time_slicing("Short"));
    assert_eq!(intervals(&planned(&other, &[]).unwrap()), []);
}

#[test]
fn observers_change_nothing_and_hinder_nobody() {
    let owner = prepared(&claim("owner").uid(2).gets("gpu", "gpu-0"));
    let watcher = claim("watch").watches("all", "gpu-0").with_config(&[], time_slicing("Long"));
    let record = planned(&watcher, std::slice::from_ref(&owner)).unwrap();
    assert_eq!(record.steps, []);
    planned(&claim("owner-2").uid(3).gets("gpu", "gpu-1"), &[record, owner]).unwrap();
}

#[test]
fn a_held_device_is_refused_with_its_holders_name() {
    let holder = prepared(&claim("old").uid(2).gets("gpu", "gpu-0"));
    for phase in [Phase::Preparing, Phase::Prepared, Phase::Unpreparing] {
        let holder = Record { phase, ..holder.clone() };
        let refusal = planned(&claim("new").gets("gpu", "gpu-0"), &[holder]).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::InUse { holder_uid, .. } if *holder_uid == claim_uid(2)),
            "{refusal}"
        );
        assert!(refusal.to_string().contains("team-a/old"), "{refusal}");
    }
    // Its own record is no hindrance: the kubelet repeats calls.
    planned(&claim("old").uid(2).gets("gpu", "gpu-0"), &[holder]).unwrap();
}

#[test]
fn two_shares_of_a_device_are_no_double_use_and_one_share_twice_is() {
    let share = |n: u32, id: &str| {
        let claim = claim("share").uid(n);
        claim.gets_share("gpu", "gpu-5", id, &[("memory", "4Gi")])
    };
    let (id, other) =
        ("5b0e1e3e-8b5d-4a8e-9e53-0c7f5f1a2b3c", "5b0e1e3e-8b5d-4a8e-9e53-0c7f5f1a2b3d");
    let held = prepared(&share(2, id));
    planned(&share(1, other), std::slice::from_ref(&held)).unwrap();
    let refusal = planned(&share(1, id), &[held]).unwrap_err();
    assert!(matches!(refusal, Refusal::InUse { .. }), "{refusal}");
}

#[test]
fn refusals_name_the_object_and_the_remedy() {
    let mig = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "MigDeviceConfig"});
    let habit = json!({"sharing": {"strategy": "TimeSlicing", "timeSlicing": {"replicas": 4}}});
    let gpu = || claim("train").gets("gpu", "gpu-0");
    for (claim, says) in [
        (gpu().not_allocated(), "not allocated"),
        (claim("train").gets("gpu", "gpu-9"), "gpu-9"),
        (claim("train").gets("gpu", "GPU_0"), "malformed"),
        (claim("train").gets_from("node-b", "gpu", "gpu-0"), "node-b"),
        (gpu().with_config(&["gpu"], mig.clone()), "MigDeviceConfig doesn't fit device gpu-0"),
        (gpu().with_config(&[], habit), "apiVersion"),
        (
            gpu().with_config(&[], time_slicing("Eternal")).with_config(&[], time_slicing("Long")),
            "Eternal",
        ),
        (
            claim("t")
                .gets("a", "gpu-0")
                .gets("b", "gpu-0")
                .with_config(&["b"], time_slicing("Long")),
            "two different sharing settings",
        ),
    ] {
        let text = planned(&claim, &[]).unwrap_err().to_string();
        assert!(text.contains(says), "{text:?} should contain {says:?}");
        assert!(text.len() < 300, "{text}");
        assert_eq!(text.matches("failed").count(), 0, "{text}");
    }
    // For another type of device a config for all requests is meant for others.
    planned(&gpu().with_config(&[], mig), &[]).unwrap();

    let recreated = gpu().object();
    let refusal = Allocation::of(&recreated, &gpu().uid(7).reference(), &driver()).unwrap_err();
    assert!(refusal.to_string().contains("re-created"), "{refusal}");
}

pub(crate) fn known(record: &Record) -> Vec<&KnownStep> {
    record.known_steps().unwrap()
}

#[test]
fn a_partition_is_made_large_ones_first_and_only_once() {
    let record = planned(
        &claim("mixed")
            .gets("small", "gpu-3-mig-1g10gb-19-6")
            .gets("large", "gpu-3-mig-4g40gb-5-0")
            .gets("whole", "gpu-0"),
        &[],
    )
    .unwrap();
    let made: Vec<_> = known(&record)
        .into_iter()
        .map(|step| match step {
            KnownStep::CreatePartition { partition, switch_mode: true, made: None, .. } => {
                (partition.profile_id, partition.placement.start)
            }
            step => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(made, [(5, 0), (19, 6)]);
    let small = &record.devices[0];
    let placement = Placement { start: 6, size: 1 };
    assert_eq!(small.part, Some(HeldPart::Partition(Partition { profile_id: 19, placement })));
    assert_eq!(small.gpu, gpu_uuid(3));
}

#[test]
fn a_whole_gpu_that_may_be_in_mig_mode_leaves_it_first() {
    let record = planned(&claim("whole").gets("gpu", "gpu-3"), &[]).unwrap();
    assert_eq!(known(&record), [&KnownStep::MigModeOff { gpu: gpu_uuid(3) }]);
    assert!(!known(&record)[0].has_undo(), "so that giving it back costs no journal write");
}

#[test]
fn static_mig_devices_are_used_and_never_made() {
    let record = planned(&claim("fixed").gets("gpu", "gpu-4-mig-3g40gb-9-4"), &[]).unwrap();
    assert!(record.steps.is_empty());
    assert!(matches!(record.devices[0].part, Some(HeldPart::Static { .. })));
}

#[test]
fn what_has_a_memory_slice_in_common_excludes_each_other() {
    let hold = |device: &str| prepared(&claim("first").uid(9).gets("gpu", device));
    for (held, wanted, free) in [
        ("gpu-3", "gpu-3-mig-1g10gb-19-6", false),
        ("gpu-3-mig-1g10gb-19-6", "gpu-3", false),
        ("gpu-3-mig-3g40gb-9-4", "gpu-3-mig-1g10gb-19-6", false),
        ("gpu-3-mig-1g10gb-19-6", "gpu-3-mig-1g10gb-19-6", false),
        ("gpu-3-mig-3g40gb-9-4", "gpu-3-mig-4g40gb-5-0", true),
        ("gpu-3-mig-1g10gb-19-6", "gpu-3-mig-1g10gb-19-4", true),
        ("gpu-3-mig-3g40gb-9-4", "gpu-0", true),
        ("gpu-4-mig-1c3g40gb-9-0", "gpu-4-mig-1c3g40gb-9-0-1", true),
        ("gpu-4-mig-1c3g40gb-9-0", "gpu-4-mig-1c3g40gb-9-0", false),
        ("gpu-4-mig-1c3g40gb-9-0", "gpu-4-mig-3g40gb-9-4", true),
    ] {
        let late = claim("second").uid(2).gets("gpu", wanted);
        let answer = planned(&late, &[hold(held)]);
        assert_eq!(answer.is_ok(), free, "{wanted} beside {held}");
        if let Err(refusal) = answer {
            assert!(matches!(refusal, Refusal::InUse { .. }), "{refusal}");
        }
        let watcher = claim("second").uid(2).watches("gpu", wanted);
        assert!(known(&planned(&watcher, &[hold(held)]).unwrap()).is_empty());
    }
}

#[test]
fn a_mig_config_fits_mig_devices_alone() {
    let mig = json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "MigDeviceConfig",
        "sharing": { "strategy": "TimeSlicing" },
    });
    let on = |device: &str, config: &serde_json::Value| {
        planned(&claim("c").gets("gpu", device).with_config(&["gpu"], config.clone()), &[])
    };
    for device in ["gpu-3-mig-1g10gb-19-6", "gpu-4-mig-3g40gb-9-4"] {
        on(device, &mig).unwrap();
        let refused = on(device, &time_slicing("Long")).unwrap_err().to_string();
        assert!(refused.ends_with("which is a mig"), "{refused}");
    }
    let refused = on("gpu-0", &mig).unwrap_err().to_string();
    assert!(refused.contains("MigDeviceConfig doesn't fit device gpu-0"), "{refused}");
}

#[test]
fn passthrough_is_refused_wherever_it_is_asked_for() {
    let vfio = |iommu: &str| {
        json!({
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "VfioDeviceConfig",
            "iommu": { "backendPolicy": iommu },
        })
    };
    let (good, bad) = (vfio("PreferIommuFD"), vfio("Both"));
    let gpu = || claim("vm").gets("gpu", "gpu-0");
    let either = || claim("vm").gets("gpu/shared", "gpu-0");
    // What the incumbent gave out before: the config is told of, not the device.
    let passed = || claim("vm").gets("gpu", "gpu-vfio-1");
    let mixed = || gpu().gets_of("dra.net", "nic", "nic-0");
    let from_class = |claim: ClaimBuilder| claim.with_class_config(&["gpu"], good.clone());
    for (what, claim) in [
        ("names the request", gpu().with_config(&["gpu"], good.clone())),
        ("names no request", gpu().with_config(&[], good.clone())),
        ("of a class", from_class(gpu())),
        ("of a class, for a device of others", from_class(passed())),
        ("the parent of what was chosen", either().with_config(&["gpu"], good.clone())),
        ("what was chosen", either().with_config(&["gpu/vm", "gpu/shared"], good.clone())),
        ("what another driver serves", mixed().with_config(&["nic"], good.clone())),
        ("a MIG device", {
            claim("vm").gets("gpu", "gpu-3-mig-1g10gb-19-6").with_config(&[], good.clone())
        }),
        ("watching", claim("vm").watches("gpu", "gpu-0").with_config(&[], good.clone())),
        ("overridden", {
            gpu().with_config(&[], good.clone()).with_config(&["gpu"], time_slicing("Long"))
        }),
    ] {
        let text = planned(&claim, &[]).unwrap_err().to_string();
        assert!(text.contains("claim team-a/vm: VfioDeviceConfig asks for passthrough"), "{what}");
        assert!(text.ends_with("remove the config and use class gpu.nvidia.com"), "{what}: {text}");
        assert!(text.len() < 220, "{text}");
    }
    for claim in [
        gpu().with_config(&["gpu"], bad.clone()),
        gpu().with_config(&[], bad.clone()),
        mixed().with_config(&["nic"], bad),
    ] {
        let text = planned(&claim, &[]).unwrap_err().to_string();
        assert!(text.contains("\"Both\" is not allowed, use LegacyOnly"), "{text}");
    }
    // The scheduler chose the other alternative.
    planned(&either().with_config(&["gpu/vm"], good.clone()), &[]).unwrap();
    planned(&gpu().with_config_of("dra.net", good), &[]).unwrap();
}

#[test]
fn what_came_of_a_plan_does_not_make_it_another() {
    let planned = planned(&claim("one").gets("gpu", "gpu-3-mig-1g10gb-19-6"), &[]).unwrap();
    let mut done = planned.clone();
    let Step::Known(KnownStep::CreatePartition { made, gpu, partition, .. }) = &mut done.steps[0]
    else {
        panic!("{:?}", done.steps)
    };
    let device = MigDevice {
        instance: GpuInstanceId(13),
        compute: ComputeInstanceId(0),
        uuid: MigUuid::new("MIG-22222222-0000-0000-0000-000000000000").unwrap(),
    };
    *made = Some(device.clone());
    let (gpu, partition) = (gpu.clone(), *partition);
    assert!(done.plans_the_same(&planned) && planned.plans_the_same(&done));
    assert_eq!(done.made(&gpu, partition), Some(&device));
    assert_eq!(Record::decode(&done.encode().unwrap()).unwrap(), done);
}

#[test]
fn a_monitor_device_is_for_looking_alone() {
    let owner = prepared(&claim("owner").uid(9).gets("gpu", "gpu-3"));
    let watching =
        planned(&claim("watch").watches("all", "gpu-3-monitor"), std::slice::from_ref(&owner));
    let watching = watching.unwrap();
    assert!(known(&watching).is_empty() && watching.devices[0].admin);
    let refused = planned(&claim("thief").gets("gpu", "gpu-3-monitor"), &[]).unwrap_err();
    assert!(refused.to_string().contains("is for monitoring: ask with adminAccess"), "{refused}");
}

/// Field report K20: the scheduler may forget counters of devices that it gives out in shares.
#[test]
fn k20_a_share_and_a_part_of_one_gpu_exclude_each_other() {
    // The policy of gpu-5 changed between the two.
    let mut both = node();
    let partition = Partition { profile_id: 19, placement: Placement { start: 6, size: 1 } };
    let part = DeviceKind::Partition { gpu: gpu_uuid(5), partition, mode_is_free: true };
    both.devices.insert(DeviceName::new("gpu-5-mig-1g10gb-19-6").unwrap(), part);
    let monitor = DeviceKind::Monitor { gpu: gpu_uuid(5) };
    both.devices.insert(DeviceName::new("gpu-5-monitor").unwrap(), monitor);
    let on_both = |claim: &ClaimBuilder, held: &[Record]| planned_on(&both, claim, held);

    let share = |n: u32| {
        let (name, id) = (format!("share-{n}"), format!("{n:08}-0000-4000-8000-000000000000"));
        claim(&name).uid(n).gets_share("gpu", "gpu-5", &id, &[("memory", "4Gi")])
    };
    let of = |name: &str, n: u32, device: &str| claim(name).uid(n).gets("gpu", device);
    let (part, whole) = (of("part", 8, "gpu-5-mig-1g10gb-19-6"), of("whole", 9, "gpu-5"));
    let monitor = claim("watch").uid(7).watches("gpu", "gpu-5-monitor");
    for (a, b, free) in [
        (share(1), part.clone(), false),
        (share(1), whole.clone(), false),
        (part.clone(), whole.clone(), false),
        (share(1), share(2), true),
        (share(1), monitor.clone(), true),
        (part, monitor.clone(), true),
        (whole, monitor, true),
    ] {
        for (first, second) in [(&a, &b), (&b, &a)] {
            let held = on_both(first, &[]).unwrap();
            let answer = on_both(second, std::slice::from_ref(&held));
            // The journal's own rule says the same.
            let records = [held, on_both(second, &[]).unwrap()];
            let rule = check::no_device_in_two_exclusive_claims(&records);
            assert_eq!(rule.is_ok(), free, "{rule:?}");
            let (first, second) = (first.reference(), second.reference());
            match &answer {
                Err(Refusal::InUse { holder, .. }) => {
                    assert!(!free && *holder == first, "{second} beside {first}");
                }
                _ => assert!(free && answer.is_ok(), "{second} beside {first}: {answer:?}"),
            }
        }
    }
}
