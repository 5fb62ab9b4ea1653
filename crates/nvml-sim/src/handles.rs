//! Handles: addresses of leaked blocks, as callers may look behind them.
//!
//! The same thing always has the same handle, over shutdowns too. A handle that was never
//! given is refused without being looked at. Things of the same ids follow each other, and
//! each has a handle of its own; long after a thing is gone, its block serves a later one, so
//! that a process that makes partitions for years doesn't grow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a handle stands for. GPUs are positions in the node; a change of its MIG mode gives a
/// GPU a new handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    /// A whole GPU after so many changes of its MIG mode.
    Gpu { gpu: usize, mode_changes: u64 },
    /// A MIG device, which is a compute instance; `birth` tells it from a later one of the
    /// same ids.
    MigDevice { gpu: usize, instance: u32, compute: u32, birth: u64 },
    /// A GPU instance.
    GpuInstance { gpu: usize, instance: u32, birth: u64 },
    /// A compute instance.
    ComputeInstance { gpu: usize, instance: u32, compute: u32, birth: u64 },
    /// An event set, by its number, which serves again once the set is freed.
    EventSet(u64),
}

impl Thing {
    /// The GPU that it's on.
    pub(crate) fn gpu(self) -> Option<usize> {
        match self {
            Self::Gpu { gpu, .. }
            | Self::MigDevice { gpu, .. }
            | Self::GpuInstance { gpu, .. }
            | Self::ComputeInstance { gpu, .. } => Some(gpu),
            Self::EventSet(_) => None,
        }
    }

    /// The first of all things that follow each other under these ids.
    fn first(self) -> Self {
        match self {
            Self::Gpu { gpu, .. } => Self::Gpu { gpu, mode_changes: 0 },
            Self::MigDevice { gpu, instance, compute, .. } => {
                Self::MigDevice { gpu, instance, compute, birth: 0 }
            }
            Self::GpuInstance { gpu, instance, .. } => {
                Self::GpuInstance { gpu, instance, birth: 0 }
            }
            Self::ComputeInstance { gpu, instance, compute, .. } => {
                Self::ComputeInstance { gpu, instance, compute, birth: 0 }
            }
            Self::EventSet(_) => self,
        }
    }
}

/// So many things that followed each other are told apart.
const REMEMBERED: usize = 64;

#[derive(Default)]
struct Registry {
    /// By the first of its kind: the latest things and their addresses, the eldest first.
    lines: BTreeMap<Thing, VecDeque<(Thing, usize)>>,
    things: BTreeMap<usize, Thing>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn registry() -> MutexGuard<'static, Option<Registry>> {
    // Nothing in here can panic half-way.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of a thing, as the pointer type that is wanted.
pub(crate) fn handle<T>(thing: Thing) -> *mut T {
    let mut registry = registry();
    let registry = registry.get_or_insert_default();
    let line = registry.lines.entry(thing.first()).or_default();
    let known = line.iter().find(|(of, _)| *of == thing).map(|(_, address)| *address);
    let address = known.unwrap_or_else(|| {
        let eldest = if line.len() < REMEMBERED { None } else { line.pop_front() };
        let address = eldest.map_or_else(block, |(_, address)| address);
        line.push_back((thing, address));
        registry.things.insert(address, thing);
        address
    });
    std::ptr::with_exposed_provenance_mut(address)
}

/// Some programs read the memory behind a handle: it is there, with nothing in it.
fn block() -> usize {
    let block: &'static mut [u64; 32] = Box::leak(Box::new([0; 32]));
    std::ptr::from_mut(block).expose_provenance()
}

/// What a handle stands for, if it's one.
pub(crate) fn thing(address: usize) -> Option<Thing> {
    registry().as_ref()?.things.get(&address).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_thing_keeps_its_handle_and_strangers_have_none() {
        let gpu = |gpu, mode_changes| Thing::Gpu { gpu, mode_changes };
        let one: *mut u8 = handle(gpu(0, 0));
        assert_eq!(one, handle(gpu(0, 0)));
        assert_ne!(one, handle(gpu(1, 0)));
        assert_ne!(one, handle(gpu(0, 1)));
        assert_eq!(thing(one.addr()), Some(gpu(0, 0)));
        assert_eq!(thing(1), None);
    }

    #[test]
    fn things_that_follow_each_other_for_years_need_no_more_memory() {
        let born = |birth| Thing::GpuInstance { gpu: 7, instance: 1, birth };
        let addresses: BTreeSet<usize> =
            (0..10_000).map(|birth| handle::<u8>(born(birth)).addr()).collect();
        assert_eq!(addresses.len(), REMEMBERED);
        let latest: *mut u8 = handle(born(9_999));
        assert_eq!(thing(latest.addr()), Some(born(9_999)));
        let before: *mut u8 = handle(born(9_998));
        assert_eq!(thing(before.addr()), Some(born(9_998)));
    }
}
