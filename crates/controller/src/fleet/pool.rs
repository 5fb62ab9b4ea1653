//! One pool as its slices have it: its devices by shape, and how many of them a claim could
//! get now, by what claims hold and what is left of the shared counters.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{Counter, Device, ResourceSlice};

use super::held::Hold;
use super::shape::{ShapeId, Shapes};

/// Amounts by counter; the devices of a fleet have few different ones, so that each is kept once.
pub(crate) type Amounts = Arc<Vec<(String, Quantity)>>;

/// Texts and amounts that many devices have in common.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    amounts: HashSet<Amounts>,
    names: HashSet<Arc<str>>,
}

impl Interner {
    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Arc<str> = Arc::from(name);
        self.names.insert(new.clone());
        new
    }

    fn amounts(&mut self, counters: &BTreeMap<String, Counter>) -> Amounts {
        let amount = |(name, counter): (&String, &Counter)| {
            Some((name.clone(), counter.value.0.parse().ok()?))
        };
        let amounts: Vec<_> = counters.iter().filter_map(amount).collect();
        if let Some(known) = self.amounts.get(&amounts) {
            return known.clone();
        }
        let new = Arc::new(amounts);
        self.amounts.insert(new.clone());
        new
    }
}

/// What is kept of a device.
#[derive(Debug)]
struct Kept {
    name: Box<str>,
    shape: ShapeId,
    /// Whether a taint keeps claims without tolerations off it.
    is_tainted: bool,
    /// Counter set, amounts.
    consumes: Box<[(Arc<str>, Amounts)]>,
}

/// What is kept of a slice.
#[derive(Debug)]
struct KeptSlice {
    generation: i64,
    /// Slices that the pool has in this generation.
    want: i64,
    node: Option<Arc<str>>,
    counters: Vec<(Arc<str>, Amounts)>,
    devices: Vec<Kept>,
}

/// Devices of one shape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Number {
    /// Published.
    pub(crate) all: u64,
    /// To be had.
    pub(crate) free: u64,
}

/// What a pool adds to the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Its devices by shape.
    pub(crate) numbers: BTreeMap<ShapeId, Number>,
    /// Whether they are on a node of their own.
    pub(crate) is_on_node: bool,
}

impl Share {
    /// Its shapes.
    pub(crate) fn shapes(&self) -> Vec<ShapeId> {
        self.numbers.keys().copied().collect()
    }
}

/// One pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    slices: BTreeMap<String, KeptSlice>,
    /// What it added when it was last counted.
    pub(crate) share: Share,
}

impl Pool {
    pub(crate) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    pub(crate) fn put(
        &mut self,
        slice: &ResourceSlice,
        shapes: &mut Shapes,
        interner: &mut Interner,
    ) {
        let spec = &slice.spec;
        let sets = spec.shared_counters.iter().flatten();
        let kept = KeptSlice {
            generation: spec.pool.generation,
            want: spec.pool.resource_slice_count,
            node: spec.node_name.as_deref().map(|node| interner.name(node)),
            counters: sets
                .map(|set| (interner.name(&set.name), interner.amounts(&set.counters)))
                .collect(),
            devices: spec
                .devices
                .iter()
                .flatten()
                .map(|device| keep(slice, device, shapes, interner))
                .collect(),
        };
        self.slices.insert(slice.metadata.name.clone().unwrap_or_default(), kept);
    }

    pub(crate) fn remove(&mut self, slice: &str) {
        self.slices.remove(slice);
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&str) -> bool) -> bool {
        let before = self.slices.len();
        self.slices.retain(|name, _| stays(name));
        before != self.slices.len()
    }

    /// Counts anew. A pool whose newest generation isn't there completely has nothing that
    /// could be allocated, so it counts for nothing.
    pub(crate) fn count<'h>(&self, held: impl Iterator<Item = &'h Hold>, shapes: &Shapes) -> Share {
        let newest = self.slices.values().map(|slice| slice.generation).max();
        let slices: Vec<_> =
            self.slices.values().filter(|slice| Some(slice.generation) == newest).collect();
        let mut share = Share::default();
        let is_complete = |slice: &&KeptSlice| i64::try_from(slices.len()) == Ok(slice.want);
        if !slices.first().is_some_and(is_complete) {
            return share;
        }
        share.is_on_node = slices.iter().any(|slice| slice.node.is_some());
        let taken = Taken::new(held, &slices);
        for device in slices.iter().flat_map(|slice| &slice.devices) {
            let number = share.numbers.entry(device.shape).or_default();
            number.all += 1;
            number.free += u64::from(taken.leaves(device, shapes));
        }
        share
    }
}

fn keep(
    slice: &ResourceSlice,
    device: &Device,
    shapes: &mut Shapes,
    interner: &mut Interner,
) -> Kept {
    let repels = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
    let consumed = device.consumes_counters.iter().flatten();
    Kept {
        name: Box::from(&*device.name),
        shape: shapes.of(slice, device),
        is_tainted: device.taints.iter().flatten().any(|taint| repels(&taint.effect)),
        consumes: consumed
            .map(|c| (interner.name(&c.counter_set), interner.amounts(&c.counters)))
            .collect(),
    }
}

/// What the claims take of a pool.
struct Taken<'a> {
    whole: BTreeSet<&'a str>,
    shares: BTreeMap<&'a str, BTreeMap<&'a str, Quantity>>,
    /// What is left of the counters; None: more is taken than can be reckoned.
    left: HashMap<(&'a str, &'a str), Option<Quantity>>,
}

impl<'a> Taken<'a> {
    fn new<'h: 'a>(held: impl Iterator<Item = &'h Hold>, slices: &[&'a KeptSlice]) -> Self {
        let mut taken =
            Self { whole: BTreeSet::new(), shares: BTreeMap::new(), left: HashMap::new() };
        for hold in held {
            let Some(share) = &hold.share else {
                taken.whole.insert(&hold.device);
                continue;
            };
            let sums = taken.shares.entry(&hold.device).or_default();
            for (name, quantity) in share {
                let sum = sums.entry(name).or_insert(Quantity::ZERO);
                // More than can be reckoned is more than any device has.
                *sum = sum.add(quantity).unwrap_or(*quantity);
            }
        }
        if taken.whole.is_empty() && taken.shares.is_empty() {
            return taken;
        }
        for (set, amounts) in slices.iter().flat_map(|slice| &slice.counters) {
            for (counter, value) in amounts.iter() {
                taken.left.insert((set, counter), Some(*value));
            }
        }
        for device in slices.iter().flat_map(|slice| &slice.devices) {
            let name = &*device.name;
            if !taken.whole.contains(name) && !taken.shares.contains_key(name) {
                continue;
            }
            for (set, amounts) in &device.consumes {
                for (counter, value) in amounts.iter() {
                    if let Some(left) = taken.left.get_mut(&(&**set, counter.as_str())) {
                        *left = left.and_then(|left| left.sub(value).ok());
                    }
                }
            }
        }
        taken
    }

    /// Whether a claim could get the device, or a share of it.
    fn leaves(&self, device: &Kept, shapes: &Shapes) -> bool {
        if device.is_tainted || self.whole.contains(&*device.name) {
            return false;
        }
        if let Some(sums) = self.shares.get(&*device.name) {
            // The first share has taken the counters for all of them.
            return shapes.get(device.shape).is_some_and(|shape| {
                sums.iter().all(|(name, sum)| {
                    shape.capacity.get(*name).is_none_or(|capacity| sum < capacity)
                })
            });
        }
        if self.left.is_empty() {
            return true;
        }
        device.consumes.iter().all(|(set, amounts)| {
            amounts.iter().all(|(counter, value)| {
                let left = self.left.get(&(&**set, counter.as_str()));
                left.is_some_and(|left| left.is_some_and(|left| left >= *value))
            })
        })
    }
}
