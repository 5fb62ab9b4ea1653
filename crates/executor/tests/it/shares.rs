//! Two hundred shares on eight GPUs come and go in random order: no GPU is ever given out
//! beyond itself, one daemon a GPU serves from the first share to the last, and in the end
//! nothing is left.

use std::collections::BTreeMap;

use gpu_dra_host::sim::Fault;
use gpu_dra_testkit::{ClaimBuilder, claim};

use crate::world::{MEMORY_MIB, Mig, SHARED, SHARED_FROM, World};

const CLAIMS: u32 = 200;
const STEPS: u32 = 10_000;

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn share(n: u32, gpu: u32, memory_mib: u64) -> ClaimBuilder {
    let (memory, id) = (format!("{memory_mib}Mi"), format!("{n:08x}-0000-4000-8000-000000000000"));
    let device = format!("gpu-{gpu}");
    claim(&format!("share-{n}")).uid(n).gets_share("gpu", &device, &id, &[("memory", &memory)])
}

#[test]
fn shares_churned_in_random_order_never_overcommit_and_leave_nothing() {
    let mut world = World::new();
    let empty = world.outside();
    let mut random = Random(0x5eed);
    // What the scheduler believes; now and then it is wrong.
    let mut held: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    let (mut prepared, mut refused, mut crashed) = (0, 0, 0);
    for step in 0..STEPS {
        let n = u32::try_from(random.below(CLAIMS.into())).unwrap();
        if let Some((gpu, memory)) = held.get(&n).copied() {
            world.unprepare(&share(n, gpu, memory)).unwrap();
            held.remove(&n);
        } else {
            let gpu = SHARED_FROM + u32::try_from(random.below(SHARED.into())).unwrap();
            let memory = 1 + random.below(12_000);
            let taken: u64 = held.values().filter(|(on, _)| *on == gpu).map(|(_, m)| m).sum();
            let crash = random.below(50) == 0;
            if crash {
                world.files.arm(1 + random.below(20), Fault::Die);
            }
            match world.prepare(&share(n, gpu, memory)) {
                Ok(_) => {
                    assert!(taken + memory <= MEMORY_MIB, "given out beyond itself");
                    held.insert(n, (gpu, memory));
                    prepared += 1;
                }
                Err(_) if world.files.is_dead() => crashed += 1,
                Err(error) => {
                    assert!(taken + memory > MEMORY_MIB, "{error}");
                    assert!(error.to_string().contains("beyond itself"), "{error}");
                    refused += 1;
                }
            }
            if world.files.is_dead() {
                world.restart();
                // The kubelet asks again, or the pod is gone.
                let claim = share(n, gpu, memory);
                if taken + memory <= MEMORY_MIB && step % 2 == 0 {
                    world.prepare(&claim).unwrap();
                    held.insert(n, (gpu, memory));
                } else {
                    world.unprepare(&claim).unwrap();
                    held.remove(&n);
                }
            } else {
                world.files.restart();
            }
        }
        let used: std::collections::BTreeSet<_> = held.values().map(|(gpu, _)| *gpu).collect();
        assert_eq!(world.outside().2.daemons.len(), used.len(), "one daemon a shared GPU");
        if step % 100 == 0 {
            world.check_invariants();
        }
    }
    assert!(prepared > 1000 && refused > 50 && crashed > 20, "{prepared} {refused} {crashed}");
    for (n, (gpu, memory)) in held {
        world.unprepare(&share(n, gpu, memory)).unwrap();
    }
    assert_eq!(world.outside(), empty);
    assert_eq!(world.outside().2, Mig::default());
}
