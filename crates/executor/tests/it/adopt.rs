//! Taking over what another driver prepared: killed at any point and started again, the end
//! is the same, and at no moment is a running pod's CDI device unknown or there twice.

use std::path::{Path, PathBuf};

use gpu_dra_claims::record::{Adopted, KnownStep, Step};
use gpu_dra_claims::{HeldPart, Phase, Record};
use gpu_dra_host::Files as _;
use gpu_dra_host::sim::Fault;
use gpu_dra_model::Partition;
use gpu_dra_testkit::{ClaimBuilder, claim, time_slicing};

use crate::world::{World, partition};

const AT: Partition =
    Partition { profile_id: 19, placement: gpu_dra_model::Placement { start: 3, size: 1 } };

fn running() -> ClaimBuilder {
    claim("running").gets("gpu", "gpu-0")
}

fn begun() -> ClaimBuilder {
    claim("begun").uid(2).gets("mig", "gpu-1-mig-1-3")
}

/// What a plan of ours would be, as the other driver's work.
fn record(claim: &ClaimBuilder, phase: Phase) -> Record {
    let elsewhere = World::new();
    let planned = elsewhere.prepare(claim).unwrap();
    let steps = planned.steps.into_iter().filter_map(|step| match step {
        Step::Known(KnownStep::CreatePartition { gpu, partition, switch_mode, .. }) => {
            Some(KnownStep::CreatePartition { gpu, partition, switch_mode, made: None })
        }
        _ => None,
    });
    let steps = steps.map(Step::Known).collect();
    Record { phase, steps, adopted: Some(Adopted::default()), ..planned }
}

fn records() -> Vec<Record> {
    vec![record(&running(), Phase::Prepared), record(&begun(), Phase::Unpreparing)]
}

fn theirs(claim: &ClaimBuilder) -> PathBuf {
    format!("/cdi/k8s.gpu.nvidia.com-claim_{}.yaml", claim.reference().uid).into()
}

fn ours(claim: &ClaimBuilder) -> PathBuf {
    theirs(claim).with_extension("json")
}

/// A node of the other driver: its state, a running claim's spec, a half-prepared claim's GPU
/// instance, and an instance that somebody made by hand.
fn theirs_node() -> World {
    let world = World::new();
    world.files.replace(Path::new("/plugin/checkpoint.json"), b"state", 0o600).unwrap();
    world.files.replace(&theirs(&running()), b"their spec", 0o644).unwrap();
    world.make_theirs(1, AT);
    world.make_foreign(2, partition(0, 2));
    world
}

fn take_over(world: &mut World) {
    if world.files.contents().contains_key(Path::new("/plugin/checkpoint.json")) {
        drop(world.adopt(&records(), "/plugin/checkpoint.json"));
    }
    if !world.files.is_dead() {
        drop(world.recover());
    }
}

#[test]
fn killed_at_any_point_the_next_start_ends_the_same() {
    let mut undisturbed = theirs_node();
    take_over(&mut undisturbed);
    undisturbed.check_invariants();
    let (files, _, mig) = undisturbed.outside();
    let names: Vec<_> = files.keys().map(|path| path.to_string_lossy().into_owned()).collect();
    let uid = running().reference().uid;
    assert_eq!(
        names,
        [
            format!("/cdi/k8s.gpu.nvidia.com-claim_{uid}.json"),
            format!("/journal/{uid}.json"),
            "/plugin/checkpoint.json.bak".to_owned(),
        ]
    );
    assert_eq!(files[Path::new("/plugin/checkpoint.json.bak")], b"state");
    assert_eq!(mig.instances.len(), 1, "the half-made instance is gone, the administrator's isn't");

    let mut points = 0;
    for n in 1.. {
        let mut world = theirs_node();
        world.files.arm(n, Fault::Die);
        take_over(&mut world);
        let struck = world.files.is_dead();
        let files = world.files.contents();
        let specs = [theirs(&running()), ours(&running())];
        let there = specs.iter().filter(|path| files.contains_key(*path)).count();
        assert_eq!(there, 1, "specs of a running pod after effect {n}");
        world.files.restart();
        assert!(struck || world.files.contents() == undisturbed.files.contents());
        take_over(&mut world);
        assert_eq!(world.outside(), undisturbed.outside(), "killed at effect {n}");
        if !struck {
            break;
        }
        points += 1;
    }
    assert!(points >= 15, "only {points} points");
}

#[test]
fn a_second_start_adopts_nothing_and_what_is_in_the_journal_stays() {
    let mut world = theirs_node();
    take_over(&mut world);
    let before = world.outside();
    take_over(&mut world);
    assert_eq!(world.outside(), before);
    // The file comes back with an older idea of a claim that is ours by now.
    world.files.replace(Path::new("/plugin/checkpoint.json"), b"state", 0o600).unwrap();
    let other =
        Record { devices: record(&begun(), Phase::Prepared).devices, ..records().remove(0) };
    world.adopt(&[other], "/plugin/checkpoint.json").unwrap();
    assert_eq!(world.outside(), before);
}

#[test]
fn an_adopted_claim_is_answered_as_it_is_and_unprepared_to_nothing() {
    let mut world = theirs_node();
    take_over(&mut world);
    let before = world.outside();
    let answer = world.prepare(&running()).unwrap();
    assert_eq!(answer.devices[0].device.as_str(), "gpu-0");
    assert_eq!(world.outside(), before, "another pod, or the kubelet after its restart");
    // Its config would be done otherwise by us: it stays as it is all the same.
    world.prepare(&running().with_config(&[], time_slicing("Long"))).unwrap();
    assert_eq!(world.outside(), before);
    let thief = claim("thief").uid(3).gets("gpu", "gpu-0");
    let refused = world.prepare(&thief).unwrap_err().to_string();
    assert!(refused.contains("still in use by claim team-a/running"), "{refused}");
    world.unprepare(&running()).unwrap();
    world.check_invariants();
    world.prepare(&thief).unwrap();
    world.unprepare(&thief).unwrap();
    let (files, ..) = world.outside();
    assert_eq!(files.len(), 1, "the state that was put aside: {files:?}");
}

#[test]
fn a_device_that_the_other_driver_made_goes_with_its_claim() {
    let mut world = theirs_node();
    let made = record(&begun(), Phase::Prepared);
    assert!(matches!(made.devices[0].part, Some(HeldPart::Partition(at)) if at == AT));
    let both = [record(&running(), Phase::Prepared), made];
    world.adopt(&both, "/plugin/checkpoint.json").unwrap();
    world.recover().unwrap();
    world.check_invariants();
    assert_eq!(world.outside().2.instances.len(), 2);
    world.prepare(&begun()).unwrap();
    assert_eq!(world.outside().2.instances.len(), 2, "not made anew under a running pod");
    world.unprepare(&begun()).unwrap();
    assert_eq!(world.outside().2.instances.len(), 1);
}

#[test]
fn a_spec_of_the_other_driver_never_stands_beside_ours() {
    let world = World::new();
    world.files.replace(&theirs(&running()), b"from an earlier life", 0o644).unwrap();
    world.prepare(&running()).unwrap();
    assert!(!world.files.contents().contains_key(&theirs(&running())));
    assert!(world.files.contents().contains_key(&ours(&running())));
    // And an unknown claim's goes when the kubelet says that it is over.
    world.files.replace(&theirs(&begun()), b"never taken over", 0o644).unwrap();
    world.unprepare(&begun()).unwrap();
    assert!(!world.files.contents().contains_key(&theirs(&begun())));
}

#[test]
fn a_journal_file_of_a_newer_version_stays_and_holds_its_gpus() {
    let mut world = World::new();
    let claim = running();
    let newer = serde_json::json!({
        "version": 9, "bootId": world.node.boot_id, "claim": {"namespace": "team-a", "name": "new"},
        "holds": [gpu_dra_testkit::gpu_uuid(0)],
    });
    let path = PathBuf::from(format!("/journal/{}.json", claim.reference().uid));
    world.files.replace(&path, newer.to_string().as_bytes(), 0o600).unwrap();
    world.files.replace(&ours(&claim), b"a newer spec", 0o644).unwrap();
    let before = world.files.contents();
    world.restart();
    let thief = ClaimBuilder::uid(gpu_dra_testkit::claim("thief"), 3).gets("gpu", "gpu-0");
    let refused = world.prepare(&thief).unwrap_err().to_string();
    assert!(refused.contains("team-a/new"), "{refused}");
    for refused in [world.prepare(&claim).map(drop), world.unprepare(&claim)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("newer version") && refused.contains("update"), "{refused}");
    }
    world.prepare(&gpu_dra_testkit::claim("other").uid(4).gets("gpu", "gpu-2")).unwrap();
    world.unprepare(&gpu_dra_testkit::claim("other").uid(4)).unwrap();
    assert_eq!(world.files.contents(), before);
    assert!(world.moved_aside().is_empty());
}
