//! Random sequences of calls, crashes, failing effects and reboots: the named invariants
//! hold after each, and in the end everything can be given back.

use std::io::ErrorKind;

use gpu_dra_host::sim::Fault;
use gpu_dra_testkit::{ClaimBuilder, claim, time_slicing};
use proptest::prelude::*;

use crate::world::{GPUS, World};

#[derive(Debug, Clone)]
enum Event {
    Prepare { claim: u32, gpu: u32, part: Option<(u32, u32)>, long: bool, admin: bool },
    Unprepare { claim: u32 },
    CrashIn { effect: u64 },
    FailIn { effect: u64 },
    Restart,
    Reboot,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..5_u32, 0..GPUS, part(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(claim, gpu, part, long, admin)| Event::Prepare { claim, gpu, part, long, admin }
        ),
        4 => (0..5_u32).prop_map(|claim| Event::Unprepare { claim }),
        3 => (1..16_u64).prop_map(|effect| Event::CrashIn { effect }),
        2 => (1..16_u64).prop_map(|effect| Event::FailIn { effect }),
        2 => Just(Event::Restart),
        1 => Just(Event::Reboot),
    ]
}

fn mps(kind: &str) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind,
        "sharing": {"strategy": "MPS", "mpsConfig": {}},
    })
}

fn part() -> impl Strategy<Value = Option<(u32, u32)>> {
    prop_oneof![
        Just(None),
        Just(Some((0, 4))),
        (0..2_u32).prop_map(|n| Some((n * 2, 2))),
        (0..4_u32).prop_map(|start| Some((start, 1))),
    ]
}

fn built(n: u32, gpu: u32, part: Option<(u32, u32)>, long: bool, admin: bool) -> ClaimBuilder {
    let device = match part {
        None => format!("gpu-{gpu}"),
        Some((start, size)) => format!("gpu-{gpu}-mig-{size}-{start}"),
    };
    let claim = claim(&format!("claim-{n}")).uid(n);
    let claim = if admin { claim.watches("gpu", &device) } else { claim.gets("gpu", &device) };
    match (long, part.is_some()) {
        (false, _) => claim,
        (true, false) if n.is_multiple_of(2) => claim.with_config(&[], time_slicing("Long")),
        (true, false) => claim.with_config(&[], mps("GpuConfig")),
        (true, true) => claim.with_config(&[], mps("MigDeviceConfig")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn invariants_hold_after_every_event(events in prop::collection::vec(event(), 1..40)) {
        let mut world = World::new();
        let mut boot = 1;
        for event in events {
            match event {
                Event::Prepare { claim, gpu, part, long, admin } => {
                    drop(world.prepare(&built(claim, gpu, part, long, admin)));
                }
                Event::Unprepare { claim } => {
                    drop(world.unprepare(&built(claim, 0, None, false, false)));
                }
                Event::CrashIn { effect } => world.files.arm(effect, Fault::Die),
                Event::FailIn { effect } => {
                    world.files.arm(effect, Fault::Fail(ErrorKind::StorageFull));
                }
                Event::Restart => world.restart(),
                Event::Reboot => {
                    boot += 1;
                    world.reboot(boot);
                }
            }
            if world.files.is_dead() {
                world.restart();
            }
            world.check_invariants();
        }
        world.restart();
        for claim in 0..5 {
            world.unprepare(&built(claim, 0, None, false, false)).unwrap();
        }
        let (files, slices, mig) = world.outside();
        prop_assert!(files.is_empty() && slices.is_empty(), "left over: {files:?} {slices:?}");
        prop_assert_eq!(mig, crate::world::Mig::default());
    }
}
