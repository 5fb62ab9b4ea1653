//! Any order of calls, deaths and boots: nothing without a record, and nothing left at the end.

use std::io::ErrorKind;

use gpu_dra_host::sim::Fault;
use proptest::prelude::*;

use crate::world::{World, id, spec};

#[derive(Debug, Clone)]
enum Event {
    Ensure { daemon: u32, percentage: u8 },
    Stop { daemon: u32 },
    Client { daemon: u32 },
    DaemonDies { daemon: u32 },
    CrashIn { effect: u64 },
    FailIn { effect: u64 },
    Restart,
    Reboot,
}

fn event() -> impl Strategy<Value = Event> {
    let daemon = 0..4_u32;
    prop_oneof![
        6 => (daemon.clone(), prop_oneof![Just(25), Just(50)])
            .prop_map(|(daemon, percentage)| Event::Ensure { daemon, percentage }),
        4 => daemon.clone().prop_map(|daemon| Event::Stop { daemon }),
        2 => daemon.clone().prop_map(|daemon| Event::Client { daemon }),
        2 => daemon.prop_map(|daemon| Event::DaemonDies { daemon }),
        4 => (1..24_u64).prop_map(|effect| Event::CrashIn { effect }),
        2 => (1..24_u64).prop_map(|effect| Event::FailIn { effect }),
        2 => Just(Event::Restart),
        1 => Just(Event::Reboot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn everything_has_a_record_after_every_event(events in prop::collection::vec(event(), 1..40)) {
        let mut world = World::new();
        for event in events {
            match event {
                Event::Ensure { daemon, percentage } => {
                    drop(world.ensure(&id(daemon), &spec(daemon, percentage)));
                }
                Event::Stop { daemon } => drop(world.stop(&id(daemon))),
                Event::Client { daemon } => world.serve_someone(&id(daemon)),
                Event::DaemonDies { daemon } => world.kill_daemon(&id(daemon)),
                Event::CrashIn { effect } => world.machine.files.arm(effect, Fault::Die),
                Event::FailIn { effect } => {
                    world.machine.files.arm(effect, Fault::Fail(ErrorKind::StorageFull));
                }
                Event::Restart => drop(world.restart()),
                Event::Reboot => world.reboot(),
            }
            if world.machine.files.is_dead() {
                world.restart();
            }
            world.check_invariants();
        }
        world.restart();
        for daemon in 0..4 {
            world.stop(&id(daemon)).unwrap();
        }
        let (files, dirs, mounts, processes) = world.outside();
        prop_assert!(files.is_empty(), "left over: {files:?}");
        prop_assert!(dirs.is_empty() && mounts.is_empty(), "left over: {dirs:?} {mounts:?}");
        prop_assert!(processes.is_empty(), "left over: {processes:?}");
    }
}
