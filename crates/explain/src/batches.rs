//! A cluster's nodes a few at a time, each time with all slices that have a say about them:
//! so that the slices of a whole cluster are never there as objects at once. What a verdict
//! on a node can rest on is in its batch; that nothing else does is the allocator's contract,
//! and a test compares.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use gpu_dra_allocator::{Allocated, Allocator};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    AllocationResult, CounterSet, Device, ResourceClaim, ResourceSlice,
};

use crate::slices::{Kept, Slices};

/// Driver and pool.
type PoolId<'a> = (&'a str, &'a str);

/// Which slices and claims concern which node.
#[derive(Debug)]
pub(crate) struct Batches<'a> {
    slices: &'a [Kept],
    of_node: HashMap<&'a str, Vec<usize>>,
    of_pool: HashMap<PoolId<'a>, Vec<usize>>,
    /// Slices that concern every node.
    of_all: BTreeSet<usize>,
    /// Whether the nodes can't be told apart: they are one batch then.
    is_one: bool,
    claims: &'a [ResourceClaim],
    holders: HashMap<PoolId<'a>, Vec<usize>>,
}

/// Some nodes with what concerns them.
pub(crate) struct Batch<'a> {
    pub(crate) nodes: &'a [Node],
    pub(crate) slices: Vec<ResourceSlice>,
    pub(crate) allocated: Allocated,
}

impl<'a> Batches<'a> {
    pub(crate) fn new(slices: &'a Slices, claims: &'a [ResourceClaim]) -> Self {
        let slices = slices.kept();
        let mut of_node: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut of_pool: HashMap<PoolId<'_>, Vec<usize>> = HashMap::new();
        let mut of_all_nodes = BTreeSet::new();
        for (place, slice) in slices.iter().enumerate() {
            of_pool.entry(pool_of(slice)).or_default().push(place);
            match slice.frame.spec.node_name.as_deref().filter(|node| !node.is_empty()) {
                Some(node) => of_node.entry(node).or_default().push(place),
                None => drop(of_all_nodes.insert(pool_of(slice))),
            }
        }
        of_all_nodes.extend(broken(slices, &of_pool));
        let of_all = of_all_nodes.iter().filter_map(|pool| of_pool.get(pool)).flatten();
        let of_all = of_all.copied().collect();
        let mut holders: HashMap<PoolId<'_>, Vec<usize>> = HashMap::new();
        for (place, claim) in claims.iter().enumerate() {
            let pools: BTreeSet<_> = results(claim).collect();
            pools.into_iter().for_each(|pool| holders.entry(pool).or_default().push(place));
        }
        let is_one = is_scattered(slices);
        Self { slices, of_node, of_pool, of_all, is_one, claims, holders }
    }

    /// All batches, in the order of the nodes, of so many devices at most unless one node has
    /// more.
    pub(crate) fn of(&self, nodes: &'a [Node], devices: usize) -> impl Iterator<Item = Batch<'a>> {
        let mut left = nodes;
        std::iter::from_fn(move || {
            let (nodes, rest) = left.split_at_checked(self.fitting(left, devices))?;
            left = rest;
            (!nodes.is_empty()).then(|| self.batch(nodes))
        })
    }

    /// How many of the first nodes make a batch.
    fn fitting(&self, nodes: &[Node], most: usize) -> usize {
        let mut devices = 0;
        let fits = nodes.iter().take_while(|node| {
            if self.is_one {
                return true;
            }
            let before = devices;
            devices += self.own(node).map(|place| self.devices(place)).sum::<usize>();
            before == 0 || devices <= most
        });
        fits.count()
    }

    fn batch(&self, nodes: &'a [Node]) -> Batch<'a> {
        let own = nodes.iter().flat_map(|node| self.own(node));
        let pools: BTreeSet<_> =
            own.filter_map(|place| self.slices.get(place)).map(pool_of).collect();
        let in_pools = pools.iter().filter_map(|pool| self.of_pool.get(pool)).flatten();
        let places: BTreeSet<usize> = in_pools.chain(&self.of_all).copied().collect();
        let kept = || places.iter().filter_map(|place| self.slices.get(*place));
        let pools: BTreeSet<_> = kept().map(pool_of).collect();
        let holders = pools.iter().filter_map(|pool| self.holders.get(pool)).flatten();
        let holders: BTreeSet<usize> = holders.copied().collect();
        let claims = holders.into_iter().filter_map(|place| self.claims.get(place));
        Batch {
            nodes,
            slices: kept().map(Kept::whole).collect(),
            allocated: Allocated::from_claims(claims),
        }
    }

    /// The slices that name the node.
    fn own(&self, node: &Node) -> impl Iterator<Item = usize> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.of_node.get(name).into_iter().flatten().copied()
    }

    fn devices(&self, place: usize) -> usize {
        self.slices.get(place).map_or(0, Kept::len)
    }
}

fn pool_of(slice: &Kept) -> PoolId<'_> {
    let spec = &slice.frame.spec;
    (&spec.driver, &spec.pool.name)
}

/// Whether pools of one name are on several nodes and have counters. Accounts of counters go by
/// the pool's name, so that the node that is looked at first has a say about the others.
fn is_scattered(slices: &[Kept]) -> bool {
    let mut nodes: HashMap<&str, Option<&str>> = HashMap::new();
    let mut scattered = HashSet::new();
    for slice in slices {
        let (_, name) = pool_of(slice);
        let node = slice.frame.spec.node_name.as_deref();
        if *nodes.entry(name).or_insert(node) != node {
            scattered.insert(name);
        }
    }
    let mut with_counters = slices.iter().filter(|slice| slice.counters.is_some());
    with_counters.any(|slice| scattered.contains(pool_of(slice).1))
}

/// The pools that a claim has devices of.
fn results(claim: &ResourceClaim) -> impl Iterator<Item = PoolId<'_>> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    allocation.into_iter().flat_map(pools)
}

fn pools(allocation: &AllocationResult) -> impl Iterator<Item = PoolId<'_>> {
    let devices = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    devices.map(|result| (result.driver.as_str(), result.pool.as_str()))
}

/// What of a slice decides whether its pool is broken. Equal parts have equal addresses.
#[derive(PartialEq, Eq, Hash)]
struct Pattern {
    generation: i64,
    of: i64,
    counters: Option<*const Vec<CounterSet>>,
    devices: Vec<*const Device>,
}

impl Pattern {
    fn of(slice: &Kept) -> Self {
        let pool = &slice.frame.spec.pool;
        let devices = slice.devices.iter().flatten();
        Self {
            generation: pool.generation,
            of: pool.resource_slice_count,
            counters: slice.counters.as_ref().map(Rc::as_ptr),
            devices: devices.map(|device| Rc::as_ptr(&device.plain)).collect(),
        }
    }
}

/// Pools with counters that can't be used: the scheduler knows of them on every node.
fn broken<'a>(slices: &'a [Kept], of_pool: &HashMap<PoolId<'a>, Vec<usize>>) -> Vec<PoolId<'a>> {
    // Nodes of one kind have pools of one pattern, so that few have to be asked about.
    let mut sound: HashSet<Vec<Pattern>> = HashSet::new();
    let mut broken = Vec::new();
    for (id, places) in of_pool {
        let kept = || places.iter().filter_map(|place| slices.get(*place));
        if kept().all(|slice| slice.counters.is_none()) {
            continue;
        }
        let pattern: Vec<Pattern> = kept().map(Pattern::of).collect();
        if sound.contains(&pattern) {
            continue;
        }
        let whole: Vec<ResourceSlice> = kept().map(Kept::whole).collect();
        let nowhere = Node::default();
        let survey = Allocator::new(&whole, &[], Allocated::default()).survey(&nowhere, &[]).ok();
        if survey.is_some_and(|survey| survey.pools.is_empty()) {
            sound.insert(pattern);
        } else {
            broken.push(*id);
        }
    }
    broken
}
