//! Every boundary between two effects, one after the other: the process dies there, starts
//! again, the kubelet repeats its call, and the end is as if nothing had happened.

use std::io::ErrorKind;

use gpu_dra_host::Files as _;
use gpu_dra_host::sim::Fault;
use gpu_dra_testkit::{ClaimBuilder, claim, time_slicing};

use crate::world::{World, partition};

fn neighbour() -> ClaimBuilder {
    claim("neighbour").uid(9).gets("gpu", "gpu-2").with_config(&[], time_slicing("Short"))
}

/// A whole GPU with MPS, and two partitions of another, one of them with MPS.
fn train() -> ClaimBuilder {
    let mps = |kind: &str| {
        serde_json::json!({
            "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind,
            "sharing": {"strategy": "MPS", "mpsConfig": {}},
        })
    };
    claim("train")
        .gets("a", "gpu-0")
        .gets("b", "gpu-1-mig-1-3")
        .gets("c", "gpu-1-mig-2-0")
        .with_config(&["a"], mps("GpuConfig"))
        .with_config(&["b"], mps("MigDeviceConfig"))
}

/// A node on which another claim lives and somebody's own GPU instance beside the claim's,
/// neither of which a crash may touch.
fn inhabited() -> World {
    let world = World::new();
    world.prepare(&neighbour()).unwrap();
    world.make_foreign(1, partition(2, 1));
    world
}

/// Runs `call` with a fault at each effect in turn, until a run has no such effect.
fn at_every_effect(fault: Fault, mut scenario: impl FnMut(&mut World, &mut dyn FnMut(&World))) {
    let mut points = 0;
    for n in 1.. {
        let mut world = inhabited();
        let mut struck = true;
        scenario(&mut world, &mut |world| {
            world.files.arm(n, fault);
            struck = n <= effects_of(world);
        });
        world.check_invariants();
        if !struck {
            break;
        }
        points += 1;
        assert!(points < 200, "a call with more effects than anyone planned");
    }
    assert!(points >= 8, "only {points} points: the faults don't strike");
}

/// How many effects preparing (or unpreparing) `train` has on an undisturbed node.
fn effects_of(world: &World) -> u64 {
    let prepared = world.records().len() > 1;
    let reference = inhabited();
    if prepared {
        reference.prepare(&train()).unwrap();
    }
    let before = reference.files.effects();
    if prepared {
        reference.unprepare(&train()).unwrap();
    } else {
        reference.prepare(&train()).unwrap();
    }
    reference.files.effects() - before
}

#[test]
fn killed_at_any_point_of_prepare_the_repeated_call_ends_the_same() {
    let undisturbed = inhabited();
    undisturbed.prepare(&train()).unwrap();
    at_every_effect(Fault::Die, |world, arm| {
        arm(world);
        let first = world.prepare(&train());
        assert!(first.is_err() || !world.files.is_dead());
        world.restart();
        world.check_invariants();
        world.prepare(&train()).unwrap();
        assert_eq!(world.outside(), undisturbed.outside());
    });
}

#[test]
fn killed_at_any_point_of_prepare_and_never_asked_again_nothing_stays() {
    let untouched = inhabited();
    at_every_effect(Fault::Die, |world, arm| {
        arm(world);
        drop(world.prepare(&train()));
        world.restart();
        // The pod was deleted meanwhile.
        world.unprepare(&train()).unwrap();
        assert_eq!(world.outside(), untouched.outside());
    });
}

#[test]
fn killed_at_any_point_of_unprepare_the_repeated_call_ends_the_same() {
    let untouched = inhabited();
    at_every_effect(Fault::Die, |world, arm| {
        world.prepare(&train()).unwrap();
        arm(world);
        drop(world.unprepare(&train()));
        world.restart();
        world.check_invariants();
        world.unprepare(&train()).unwrap();
        assert_eq!(world.outside(), untouched.outside());
    });
}

#[test]
fn one_failing_effect_of_prepare_is_undone_at_once() {
    let untouched = inhabited();
    at_every_effect(Fault::Fail(ErrorKind::Other), |world, arm| {
        arm(world);
        if world.prepare(&train()).is_err() {
            assert!(world.outside() == untouched.outside(), "left over: {:?}", world.records());
        }
        world.prepare(&train()).unwrap();
    });
}

#[test]
fn a_full_disk_loses_nothing_and_names_the_file() {
    let untouched = inhabited();
    at_every_effect(Fault::FailFrom(ErrorKind::StorageFull), |world, arm| {
        arm(world);
        if let Err(error) = world.prepare(&train()) {
            let text = error.to_string();
            assert!(text.contains("space") || text.contains("full"), "{text}");
        }
        // The disk has room again; the process did not even restart.
        world.files.disarm();
        world.unprepare(&train()).unwrap();
        assert_eq!(world.outside(), untouched.outside());
    });
}

#[test]
fn a_failing_effect_of_unprepare_keeps_the_claim_until_it_works() {
    let untouched = inhabited();
    at_every_effect(Fault::Fail(ErrorKind::Other), |world, arm| {
        world.prepare(&train()).unwrap();
        arm(world);
        if world.unprepare(&train()).is_err() {
            let refused = claim("next").uid(3).gets("gpu", "gpu-0");
            let gone = world.records().len() == 1;
            assert!(gone || world.prepare(&refused).is_err(), "the device is still held");
            world.unprepare(&train()).unwrap();
            world.unprepare(&refused).unwrap();
        }
        assert_eq!(world.outside(), untouched.outside());
    });
}

#[test]
fn after_a_reboot_nothing_of_the_hardware_is_assumed() {
    let mut world = inhabited();
    let before = world.prepare(&train()).unwrap();
    let running = world.outside();
    world.reboot(2);
    assert!(world.outside().1.is_empty());
    let after = world.prepare(&train()).unwrap();
    world.prepare(&neighbour()).unwrap();
    assert_eq!(before.devices, after.devices, "the ids stay the same");
    assert_eq!(world.outside().1, running.1, "the settings are back");
    assert_eq!(
        running.0.keys().collect::<Vec<_>>(),
        world.outside().0.keys().collect::<Vec<_>>(),
        "the CDI specs are back"
    );
    // Or the claim is not needed any more: the old settings are not undone on the new boot.
    world.reboot(3);
    world.unprepare(&train()).unwrap();
    assert_eq!(world.records().len(), 1);
}

#[test]
fn a_repeated_prepare_brings_the_spec_back_and_does_nothing_else() {
    let world = inhabited();
    let first = world.prepare(&train()).unwrap();
    let running = world.outside();
    let spec = running.0.keys().find(|path| {
        path.starts_with("/cdi") && path.to_string_lossy().contains(first.claim.uid.as_str())
    });
    world.files.remove(spec.unwrap()).unwrap();
    assert_eq!(world.prepare(&train()).unwrap(), first);
    assert_eq!(world.outside(), running);
    let before = world.files.effects();
    world.prepare(&train()).unwrap();
    assert_eq!(world.files.effects(), before, "nothing to do, nothing done");
}

#[test]
fn a_claim_that_was_allocated_anew_gives_up_its_old_device() {
    let world = inhabited();
    world.prepare(&train()).unwrap();
    // Force-deleted pod: deallocated without an unprepare, allocated again elsewhere.
    world.prepare(&claim("train").gets("a", "gpu-1-mig-2-0")).unwrap();
    world.check_invariants();
    world.prepare(&claim("next").uid(3).gets("gpu", "gpu-0")).unwrap();
    world.check_invariants();
}

#[test]
fn garbage_in_the_journal_is_moved_aside_and_others_are_unaffected() {
    let mut world = inhabited();
    let whole = claim("train").gets("a", "gpu-0");
    world.prepare(&whole).unwrap();
    let file = format!("/journal/{}.json", whole.reference().uid);
    for garbage in [&b""[..], b"{", b"\0\0\0", b"[1]"] {
        world.files.replace(file.as_ref(), garbage, 0o600).unwrap();
        world.restart();
        assert_eq!(world.records().len(), 1, "the neighbour's");
        let moved = world.moved_aside();
        assert!(moved.iter().all(|m| m.path.to_string_lossy().ends_with(".bad")), "{moved:?}");
        assert_eq!(moved.len(), 1);
        world.prepare(&whole).unwrap();
        assert_eq!(world.records().len(), 2);
    }
}

#[test]
fn a_foreign_instance_in_the_way_is_named_and_stays() {
    let world = inhabited();
    let before = world.outside();
    for device in ["gpu-1-mig-1-2", "gpu-1-mig-2-2", "gpu-1-mig-4-0", "gpu-1"] {
        let error = world.prepare(&claim("late").uid(3).gets("gpu", device)).unwrap_err();
        assert!(error.to_string().contains("GPU instance 2 at memory slices 2-2"), "{error}");
        assert_eq!(world.outside(), before, "refused before anything was done");
    }
    world.prepare(&claim("beside").uid(4).gets("gpu", "gpu-1-mig-2-0")).unwrap();
}

#[test]
fn a_partition_that_somebody_destroyed_is_made_again() {
    let world = inhabited();
    world.prepare(&train()).unwrap();
    let running = world.outside();
    world.destroy(1, partition(3, 1));
    world.prepare(&train()).unwrap();
    assert_eq!(world.outside(), running);
}

#[test]
fn mig_mode_goes_with_the_last_partition_and_before_a_whole_gpu() {
    let world = World::new();
    let small = |n: u32| claim("small").uid(n).gets("gpu", &format!("gpu-0-mig-1-{n}"));
    world.prepare(&small(2)).unwrap();
    world.prepare(&small(3)).unwrap();
    let whole = claim("whole").uid(9).gets("gpu", "gpu-0");
    let refused = world.prepare(&whole).unwrap_err().to_string();
    assert!(refused.contains("still in use by claim team-a/small"), "{refused}");
    world.unprepare(&small(2)).unwrap();
    assert!(!world.outside().2.on.is_empty(), "the other partition needs the mode");
    world.unprepare(&small(3)).unwrap();
    assert!(world.outside().2.on.is_empty());
    world.prepare(&whole).unwrap();
    world.prepare(&small(2)).unwrap_err();
}
