//! Every boundary between two effects, one after the other: the host dies there or an effect
//! fails there, and the end is as if nothing had happened.

use std::io::ErrorKind;

use gpu_dra_host::sim::Fault;

use crate::world::{World, id, spec};

/// A machine with another claim's daemon and its client, which no crash may touch.
fn inhabited() -> World {
    let world = World::new();
    world.ensure(&id(9), &spec(9, 90)).unwrap();
    world.serve_someone(&id(9));
    world
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scene {
    /// The daemon was never there.
    Start,
    /// It serves, and is stopped.
    Stop,
    /// It was killed, and its server lives.
    Restart,
    /// It serves, and is asked for again by the next life.
    Adopt,
}

impl Scene {
    fn set(self, world: &World) {
        if self != Self::Start {
            world.ensure(&id(1), &spec(1, 50)).unwrap();
            world.serve_someone(&id(1));
        }
        if self == Self::Restart {
            world.kill_daemon(&id(1));
        }
    }

    fn play(self, world: &World) -> bool {
        match self {
            Self::Stop => world.stop(&id(1)).is_ok(),
            _ => world.ensure(&id(1), &spec(1, 50)).is_ok(),
        }
    }

    fn effects(self) -> u64 {
        let world = inhabited();
        self.set(&world);
        let before = world.machine.files.effects();
        assert!(self.play(&world));
        world.machine.files.effects() - before
    }
}

/// Calls `then` with a world that was struck, for every scene and every effect of it.
fn at_every_effect(fault: Fault, mut then: impl FnMut(Scene, u64, World)) {
    for scene in [Scene::Start, Scene::Stop, Scene::Restart, Scene::Adopt] {
        let effects = scene.effects();
        assert!(effects >= 6, "{scene:?} has only {effects} effects: the faults don't strike");
        for n in 1..=effects {
            let world = inhabited();
            scene.set(&world);
            world.machine.files.arm(n, fault);
            let done = scene.play(&world);
            assert!(!done || !world.machine.files.is_dead(), "{scene:?} {n}");
            then(scene, n, world);
        }
    }
}

#[test]
fn killed_anywhere_the_repeated_call_ends_the_same() {
    at_every_effect(Fault::Die, |scene, n, mut world| {
        world.restart();
        world.check_invariants();
        assert!(scene.play(&world), "{scene:?} {n}");
        let undisturbed = inhabited();
        scene.set(&undisturbed);
        assert!(scene.play(&undisturbed));
        let (files, dirs, mounts, processes) = world.outside();
        let (expected, expected_dirs, expected_mounts, expected_processes) = undisturbed.outside();
        assert_eq!(files, expected, "{scene:?} {n}");
        assert_eq!((dirs, mounts), (expected_dirs, expected_mounts), "{scene:?} {n}");
        let controls = |mut all: Vec<crate::world::Running>| {
            all.retain(|process| process.limits.is_some());
            all.sort_by(|a, b| a.pipe.cmp(&b.pipe));
            all
        };
        assert_eq!(controls(processes), controls(expected_processes), "{scene:?} {n}");
    });
}

#[test]
fn killed_anywhere_and_stopped_nothing_stays() {
    let untouched = inhabited().outside();
    at_every_effect(Fault::Die, |scene, n, mut world| {
        world.restart();
        world.stop(&id(1)).unwrap();
        assert_eq!(world.outside(), untouched, "{scene:?} {n}");
    });
}

#[test]
fn killed_anywhere_and_booted_the_journal_is_followed() {
    at_every_effect(Fault::Die, |scene, n, mut world| {
        world.reboot();
        world.check_invariants();
        let wanted = world.lifecycle.journal.get(&id(1)).unwrap().is_some();
        let (_, _, mounts, processes) = world.outside();
        let expected = 1 + usize::from(wanted);
        assert_eq!((mounts.len(), processes.len()), (2 * expected, expected), "{scene:?} {n}");
    });
}

#[test]
fn one_failing_effect_leaves_nothing_that_a_stop_does_not_remove() {
    let untouched = inhabited().outside();
    for fault in [Fault::Fail(ErrorKind::Other), Fault::FailFrom(ErrorKind::StorageFull)] {
        at_every_effect(fault, |scene, n, world| {
            // Room again, and the process did not even restart.
            world.machine.files.restart();
            world.stop(&id(1)).unwrap();
            assert_eq!(world.outside(), untouched, "{scene:?} {n} {fault:?}");
        });
    }
}

#[test]
fn a_daemon_that_lives_is_adopted_and_not_counted() {
    let mut world = inhabited();
    world.ensure(&id(1), &spec(1, 50)).unwrap();
    world.serve_someone(&id(1));
    let before = world.outside();
    assert!(world.restart(), "both are adopted");
    assert_eq!(world.outside(), before);
    assert_eq!(world.starts(&id(1)), 1);
    world.kill_daemon(&id(1));
    assert!(!world.restart());
    assert_eq!(world.starts(&id(1)), 2, "its clients were lost");
}
