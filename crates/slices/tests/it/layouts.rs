//! What a GPU offers in each state that its MIG mode, its instances and the policy can be in.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::inventory::{ComputeCapability, Mig, MigMode};
use gpu_dra_model::{DeviceKind, Gpu, Partition, Shares};
use gpu_dra_slices::{
    Built, Feature, InstanceLeftOut, LeftOut, MigPolicy, Names, Note, OwnInstance, Policy,
    SliceContent, build, plan_writes, validate_pool,
};

use crate::simulated::{add_instance, gpu, node, partition, set_mode, with_mig_on};
use crate::support::{l4, node_with, owner, pool_ref};

fn built(gpus: impl IntoIterator<Item = Gpu>, mig: MigPolicy, own: &[Partition]) -> Built {
    let inventory = node_with(gpus);
    let own = own
        .iter()
        .map(|partition| OwnInstance { gpu: inventory.gpus[0].uuid.clone(), partition: *partition })
        .collect();
    let mut names = Names::default();
    names.assign(&inventory);
    let built = build(&inventory, &names, &Policy { mig, ..Policy::default() }, &own);
    assert_eq!(validate_pool(&built.pool), []);
    assert_eq!(built.devices.len(), built.pool.devices().count());
    built
}

/// How many devices of each kind, with their flags.
fn summary(built: &Built) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in built.devices.values() {
        let kind = match kind {
            DeviceKind::Gpu { mig_may_be_on: false, .. } => "whole",
            DeviceKind::Gpu { mig_may_be_on: true, .. } => "whole (switch)",
            DeviceKind::StaticMig { .. } => "instance",
            DeviceKind::Partition { mode_is_free: false, .. } => "partition",
            DeviceKind::Partition { mode_is_free: true, .. } => "partition (switch)",
            DeviceKind::Monitor { .. } => "monitor",
        };
        *counts.entry(kind).or_default() += 1;
    }
    let words: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    words.join(", ")
}

fn pending(mut gpu: Gpu, mode: MigMode) -> Gpu {
    if let Mig::Supported { pending, .. } = &mut gpu.mig {
        *pending = mode;
    }
    gpu
}

fn with_instance(mut gpu: Gpu, computes: &[u32]) -> Gpu {
    set_mode(&mut gpu, MigMode::Enabled);
    add_instance(&mut gpu, 1, HALF, computes);
    gpu
}

const HALF: Partition = partition(9, 4, 4);
const OTHER_HALF: Partition = partition(9, 0, 4);

#[test]
fn each_state_of_a_gpu() {
    use MigMode::{Disabled, Enabled};
    use MigPolicy::{Dynamic, Off, Static};
    let hopper = || gpu("h100-80", 0);
    let ampere = || gpu("a100-40", 0);
    let guest = |gpu: Gpu| Gpu { vgpu_guest: true, ..gpu };
    let everything = "1 monitor, 25 partition (switch), 1 whole (switch)";
    for (what, gpu, policy, own, expected) in [
        ("Hopper, off", hopper(), Dynamic, &[][..], everything),
        ("Hopper, on", with_mig_on(hopper()), Dynamic, &[], everything),
        ("Hopper, our instance", with_instance(hopper(), &[3]), Dynamic, &[HALF], everything),
        ("Hopper, ours to be", with_mig_on(hopper()), Dynamic, &[HALF], everything),
        (
            "Hopper, foreign beside ours to be",
            with_instance(hopper(), &[3]),
            Dynamic,
            &[OTHER_HALF],
            everything,
        ),
        ("Hopper, foreign alone", with_instance(hopper(), &[3]), Dynamic, &[], "1 instance"),
        ("Hopper, foreign unusable", with_instance(hopper(), &[]), Dynamic, &[], ""),
        ("Hopper, turns on at reset", pending(hopper(), Enabled), Dynamic, &[], "1 whole"),
        (
            "Hopper, turns off at reset",
            pending(with_mig_on(hopper()), Disabled),
            Dynamic,
            &[],
            "1 monitor, 25 partition",
        ),
        ("Hopper guest, off", guest(hopper()), Dynamic, &[], "1 whole"),
        ("Hopper guest, on", guest(with_instance(hopper(), &[1, 2])), Dynamic, &[], "2 instance"),
        ("Hopper guest, on, empty", guest(with_mig_on(hopper())), Dynamic, &[], ""),
        ("Ampere, off", ampere(), Dynamic, &[], "1 whole"),
        ("Ampere, on", with_mig_on(ampere()), Dynamic, &[], "1 monitor, 25 partition"),
        ("Ampere, turns on at reset", pending(ampere(), Enabled), Dynamic, &[], "1 whole"),
        ("Ampere, foreign", with_instance(ampere(), &[1, 1]), Dynamic, &[], "2 instance"),
        ("no MIG", l4(0), Dynamic, &[], "1 whole"),
        ("static, off", hopper(), Static, &[], "1 whole"),
        ("static, on, empty", with_mig_on(hopper()), Static, &[], ""),
        ("static, foreign", with_instance(hopper(), &[3]), Static, &[], "1 instance"),
        ("static, what a claim holds", with_instance(hopper(), &[3]), Static, &[HALF], ""),
        ("off, off", hopper(), Off, &[], "1 whole"),
        ("off, on", with_instance(hopper(), &[3]), Off, &[], ""),
    ] {
        assert_eq!(summary(&built([gpu], policy, own)), expected, "{what}");
    }
}

/// A driver that tells of a profile and allows no instance of it.
#[test]
fn what_an_empty_gpu_can_not_hold_is_not_offered() {
    let mut gpu = gpu("h100-80", 0);
    let Mig::Supported { profiles, .. } = &mut gpu.mig else { panic!("an H100 has MIG") };
    let half = profiles.iter_mut().find(|profile| profile.id == HALF.profile_id).unwrap();
    half.max_instances = 0;
    let built = built([gpu], MigPolicy::Dynamic, &[]);
    assert_eq!(summary(&built), "1 monitor, 23 partition (switch), 1 whole (switch)");
}

#[test]
fn the_policy_of_a_gpu_goes_before_that_of_the_node() {
    let inventory = node("h100-80", 2);
    let mut names = Names::default();
    names.assign(&inventory);
    let policy = Policy {
        mig: MigPolicy::Off,
        mig_by_gpu: [(inventory.gpus[1].uuid.clone(), MigPolicy::Dynamic)].into(),
        ..Policy::default()
    };
    let built = build(&inventory, &names, &policy, &BTreeSet::new());
    assert_eq!(summary(&built), "1 monitor, 25 partition (switch), 1 whole, 1 whole (switch)");
}

#[test]
fn notes_say_what_to_do() {
    let notes = |gpu: Gpu, policy| built([gpu], policy, &[]).pool.notes;
    let hopper = || gpu("h100-80", 0);
    let due = notes(pending(hopper(), MigMode::Enabled), MigPolicy::Dynamic);
    assert_eq!(
        due.last().unwrap().to_string(),
        "MIG mode of gpu-0 turns on at the next reset: drain it and run nvidia-smi --gpu-reset \
         -i 0000:1b:00.0, or take it back with nvidia-smi -mig 0 -i 0000:1b:00.0"
    );
    let empty = notes(with_mig_on(hopper()), MigPolicy::Static);
    assert!(matches!(empty.last(), Some(Note::GpuLeftOut { why: LeftOut::NoInstances, .. })));
    let unusable = notes(with_instance(hopper(), &[]), MigPolicy::Dynamic);
    assert!(matches!(
        unusable.last(),
        Some(Note::InstanceLeftOut { why: InstanceLeftOut::NoComputeInstance, .. })
    ));
    let mut unknown = with_mig_on(hopper());
    add_instance(&mut unknown, 5, partition(77, 0, 1), &[1]);
    let unknown = notes(unknown, MigPolicy::Dynamic);
    assert!(matches!(
        unknown.last(),
        Some(Note::InstanceLeftOut { why: InstanceLeftOut::UnknownProfile(77), .. })
    ));
}

#[test]
fn with_partitioning_off_the_slices_are_those_of_a_plain_node() {
    let bytes = |built: &Built| {
        let writes = plan_writes(&[], &built.pool, &pool_ref(), &owner());
        format!("{writes:?}")
    };
    let plain = |number| Gpu { mig: Mig::Unsupported, ..gpu("h100-80", number) };
    let off = built([gpu("h100-80", 0), gpu("h100-80", 1)], MigPolicy::Off, &[]);
    let without = built([plain(0), plain(1)], MigPolicy::Dynamic, &[]);
    assert_eq!(bytes(&off), bytes(&without));
}

#[test]
fn a_node_of_both_kinds_has_sets_for_what_is_partitioned_alone() {
    let built = built([with_mig_on(gpu("a100-40", 0)), l4(1)], MigPolicy::Dynamic, &[]);
    assert_eq!(summary(&built), "1 monitor, 25 partition, 1 whole");
    let sets: Vec<_> = built.pool.counter_sets().map(|set| set.name.as_str()).collect();
    assert_eq!(sets, ["gpu-0-counter-set"]);
}

#[test]
fn without_counters_whole_gpus_and_existing_instances_remain() {
    let remaining = |built: Built| -> Vec<String> {
        let pool = built.pool.without(Feature::SharedCounters);
        assert!(pool.devices().all(|device| device.consumes_counters.is_none()));
        let truth = |device: &k8s_openapi::api::resource::v1::Device| {
            device.attributes.as_ref()?.get("hasMonitor")?.bool
        };
        assert!(pool.devices().all(|device| truth(device) != Some(true)), "no monitor is left");
        assert_eq!(pool.counter_sets().count(), 0);
        pool.devices().map(|device| device.name.clone()).collect()
    };
    let dynamic = |gpus: Vec<Gpu>| remaining(built(gpus, MigPolicy::Dynamic, &[]));
    assert_eq!(dynamic(vec![gpu("h100-80", 0), gpu("h100-80", 1)]), ["gpu-0", "gpu-1"]);
    assert_eq!(dynamic(vec![with_mig_on(gpu("a100-40", 0)), l4(1)]), ["gpu-1"]);
    assert_eq!(dynamic(vec![with_mig_on(gpu("a100-40", 0))]), [""; 0]);
    assert_eq!(
        dynamic(vec![with_instance(gpu("a100-40", 0), &[1, 1]), gpu("h100-80", 1)]),
        ["gpu-1", "gpu-0-mig-1c3g20gb-9-4-0", "gpu-0-mig-1c3g20gb-9-4-1"]
    );
}

#[test]
fn without_taints_nothing_is_offered_that_a_foreign_instance_blocks() {
    let gpu = with_instance(gpu("h100-80", 0), &[3]);
    let pool = built([gpu], MigPolicy::Dynamic, &[OTHER_HALF]).pool.without(Feature::Taints);
    let of_upper_half = ["gpu-0", "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-1g10gb-19-6"];
    assert!(pool.devices().all(|device| !of_upper_half.contains(&device.name.as_str())));
    assert!(pool.devices().any(|device| device.name == "gpu-0-mig-3g40gb-9-0"));
}

#[test]
fn every_mig_device_can_be_found_again_and_has_the_same_keys() {
    let mut foreign = with_instance(gpu("rtx-pro-6000", 1), &[]);
    if let Mig::Supported { instances, .. } = &mut foreign.mig {
        instances.clear();
    }
    add_instance(&mut foreign, 0, partition(0, 0, 12), &[4]);
    let built = built([gpu("h100-80", 0), foreign], MigPolicy::Dynamic, &[]);
    let mut keys = BTreeSet::new();
    let mut capacities = BTreeSet::new();
    for device in built.pool.devices() {
        let attributes = device.attributes.as_ref().unwrap();
        if attributes["type"].string.as_deref() != Some("mig") {
            continue;
        }
        // What an exporter of metrics needs: the UUID, or GPU, profile and place.
        assert!(attributes.contains_key("parentUUID") && attributes.contains_key("profile"));
        assert!(attributes["placementStart"].int.is_some());
        let own = attributes.keys().filter(|key| !key.contains('/') && *key != "uuid");
        keys.insert(own.cloned().collect::<Vec<_>>());
        capacities.insert(device.capacity.as_ref().unwrap().keys().cloned().collect::<Vec<_>>());
    }
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys.first().unwrap().len(), 12);
    assert_eq!(capacities.len(), 1, "twelve slices have no room beside the rest: {capacities:?}");
}

#[test]
fn a_gpu_with_partitions_is_watched_through_its_monitor() {
    let built = built([gpu("h100-80", 0), l4(1)], MigPolicy::Dynamic, &[]);
    let device = |name: &str| built.pool.devices().find(|device| device.name == name).unwrap();
    let truth = |name: &str| device(name).attributes.as_ref().unwrap()["hasMonitor"].bool;
    assert_eq!((truth("gpu-0"), truth("gpu-1")), (Some(true), Some(false)));
    let monitor = device("gpu-0-monitor");
    assert!(monitor.consumes_counters.is_none(), "so that it is there whatever is in use");
    assert_eq!(monitor.taints.as_ref().unwrap()[0].key, "gpu.nvidia.com/monitoring");
    let mut attributes = monitor.attributes.clone().unwrap();
    assert_eq!(attributes.insert("type".into(), string("gpu")).unwrap(), string("monitor"));
    assert_eq!(&attributes, device("gpu-0").attributes.as_ref().unwrap());
}

fn string(text: &str) -> k8s_openapi::api::resource::v1::DeviceAttribute {
    k8s_openapi::api::resource::v1::DeviceAttribute {
        string: Some(text.to_owned()),
        ..Default::default()
    }
}

#[test]
fn a_gpu_in_shares_is_whole_by_default_and_watched_through_its_monitor() {
    let policy = Policy { shares: Shares::Mps, ..Policy::default() };
    let mut names = Names::default();
    let node = node_with([gpu("h100-80", 0), l4(1)]);
    names.assign(&node);
    let built = build(&node, &names, &policy, &BTreeSet::new());
    let devices: Vec<_> = built.pool.devices().map(|device| device.name.clone()).collect();
    assert_eq!(devices, ["gpu-0", "gpu-1", "gpu-0-monitor", "gpu-1-monitor"], "no partitions");
    for device in built.pool.devices().take(2) {
        assert_eq!(device.allow_multiple_allocations, Some(true));
        let memory = &device.capacity.as_ref().unwrap()["memory"];
        assert_eq!(memory.request_policy.as_ref().unwrap().default.as_ref(), Some(&memory.value));
        assert!(device.consumes_counters.is_none());
    }
    assert_eq!(built.pool.counter_sets().count(), 0);
    for content in &built.pool.slices {
        let SliceContent::Devices(devices) = content else { panic!("{content:?}") };
        assert!(
            devices
                .iter()
                .all(|device| device.attributes.as_ref().unwrap()["hasMonitor"].bool == Some(true))
        );
    }
    // Before Volta MPS has no limits: the GPU is whole, and a note says so.
    let mut old = l4(0);
    old.compute_capability = Some(ComputeCapability { major: 6, minor: 1 });
    let node = node_with([old]);
    let built = build(&node, &names, &policy, &BTreeSet::new());
    assert!(built.pool.devices().all(|device| device.allow_multiple_allocations.is_none()));
    assert!(
        built.pool.notes.iter().any(|note| note.to_string().contains("no limits before Volta"))
    );
}

/// Exporters find the hardware of a device by what is published of it.
#[test]
fn what_is_published_of_a_device_names_one_piece_of_hardware() {
    let built = built([gpu("h100-80", 0), l4(1)], MigPolicy::Dynamic, &[]);
    let mut seen = BTreeSet::new();
    for device in built.pool.devices().filter(|device| !device.name.ends_with("-monitor")) {
        let own = device.attributes.as_ref().unwrap();
        let text = |key: &str| own.get(key).and_then(|value| value.string.clone());
        let start = own.get("placementStart").and_then(|value| value.int);
        let hardware = match text("type").as_deref() {
            Some("gpu") => (text("uuid"), None, None),
            _ => (text("parentUUID"), text("profile"), start),
        };
        assert!(hardware.0.is_some() && seen.insert(hardware), "{}", device.name);
    }
    assert!(seen.len() > 20, "{seen:?}");
}
