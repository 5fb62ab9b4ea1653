//! Handles: addresses of leaked blocks, as callers may look behind them.
//!
//! The same thing always has the same handle, over shutdowns too. A handle that was never
//! given is refused without being looked at.

use std::collections::BTreeMap;
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
    /// An event set, by number.
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
}

#[derive(Default)]
struct Registry {
    addresses: BTreeMap<Thing, usize>,
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
    let address = *registry.addresses.entry(thing).or_insert_with(|| {
        // Some programs read the memory behind a handle: it is there, with nothing in it.
        let block: &'static mut [u64; 32] = Box::leak(Box::new([0; 32]));
        std::ptr::from_mut(block).expose_provenance()
    });
    registry.things.insert(address, thing);
    std::ptr::with_exposed_provenance_mut(address)
}

/// What a handle stands for, if it's one.
pub(crate) fn thing(address: usize) -> Option<Thing> {
    registry().as_ref()?.things.get(&address).copied()
}

#[cfg(test)]
mod tests {
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
}
