//! Pools as a node sees them: the newest generation, complete or not, valid or not, and their
//! devices in the scheduler's order: driver, pool, slice name, place in the slice. Pools with
//! binding conditions come last. Which device is allocated is not decided here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::discriminant;
use std::rc::Rc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

use crate::candidate::{Candidate, Consumption, consumption, device_location, slice_location};
use crate::counters::Counters;
use crate::node::Location;
use crate::reason::{AllocateError, PoolProblem};
use crate::{Rules, Slices};

/// The pools of a node and their devices.
#[derive(Debug)]
pub(crate) struct Pools<'a> {
    pub(crate) pools: Vec<Pool<'a>>,
    /// Problems of pools that have nothing for this node but counters: such pools are known on
    /// every node. One of each kind stands for all.
    pub(crate) elsewhere: Vec<PoolProblem>,
    /// The devices of all usable pools, in the order in which they are tried.
    pub(crate) candidates: Vec<Candidate<'a>>,
}

impl Pools<'_> {
    /// All that is wrong with pools.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &PoolProblem> {
        self.pools.iter().filter_map(|pool| pool.problem.as_ref()).chain(&self.elsewhere)
    }
}

/// One pool.
#[derive(Debug, Default)]
pub(crate) struct Pool<'a> {
    pub(crate) driver: &'a str,
    pub(crate) name: &'a str,
    /// Why nothing can be allocated from it.
    pub(crate) problem: Option<PoolProblem>,
    /// Counter sets by name.
    pub(crate) counters: BTreeMap<&'a str, Counters<'a>>,
    /// All its devices that take of the counters, also those of other nodes.
    pub(crate) consumers: Vec<(&'a Device, Rc<Consumption<'a>>)>,
}

/// A pool with its devices before it has its place.
struct Built<'a> {
    pool: Pool<'a>,
    candidates: Vec<Candidate<'a>>,
    has_binding_conditions: bool,
}

/// The pools with something for this node.
pub(crate) fn gather<'a>(slices: &Slices<'a>, node: &Node) -> Result<Pools<'a>, AllocateError> {
    let mut newest: BTreeMap<PoolId<'_>, Vec<&'a ResourceSlice>> = BTreeMap::new();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let own = slices.of_node.get(name).into_iter().flatten();
    for &slice in own.chain(&slices.shared) {
        if slices.rules == Rules::UpTo136 && has_counters(slice) {
            continue;
        }
        if reaches(slice, node)? {
            add_newest(newest.entry(id_of_pool(slice)).or_default(), slice);
        }
    }
    if slices.rules == Rules::UpTo136 {
        for (id, pool) in &mut newest {
            for &slice in slices.counters.get(id).into_iter().flatten() {
                add_newest(pool, slice);
            }
        }
    }
    let mut elsewhere: Vec<PoolProblem> = Vec::new();
    let broken = slices.broken.get_or_init(|| broken(slices));
    for (_, problem) in broken.iter().filter(|(id, _)| !newest.contains_key(id)) {
        let same = |known: &PoolProblem| discriminant(known) == discriminant(problem);
        if !elsewhere.iter().any(same) {
            elsewhere.push(problem.clone());
        }
    }
    let built = newest.into_values().filter_map(|relevant| build(relevant, slices));
    let (last, first): (Vec<_>, Vec<_>) = built.partition(|built| built.has_binding_conditions);
    let mut gathered = Pools { pools: Vec::new(), elsewhere, candidates: Vec::new() };
    for mut built in first.into_iter().chain(last) {
        for candidate in &mut built.candidates {
            candidate.pool = gathered.pools.len();
        }
        gathered.candidates.append(&mut built.candidates);
        gathered.pools.push(built.pool);
    }
    Ok(gathered)
}

/// The pools that are unusable as a node sees them that has nothing of them but counters.
/// Found once, where every node knows of all slices with counters.
fn broken<'a>(slices: &Slices<'a>) -> Vec<(PoolId<'a>, PoolProblem)> {
    if slices.rules != Rules::UpTo136 {
        return Vec::new();
    }
    let of_counters = slices.counters.iter().filter_map(|(id, counters)| {
        let mut newest = Vec::new();
        counters.iter().for_each(|slice| add_newest(&mut newest, slice));
        Some((*id, build(newest, slices)?.pool.problem?))
    });
    of_counters.collect()
}

/// Driver and pool.
pub(crate) type PoolId<'a> = (&'a str, &'a str);

pub(crate) fn id_of_pool(slice: &ResourceSlice) -> PoolId<'_> {
    (&slice.spec.driver, &slice.spec.pool.name)
}

/// Adds a slice unless a newer generation is there; an older one goes.
fn add_newest<'a>(pool: &mut Vec<&'a ResourceSlice>, slice: &'a ResourceSlice) {
    let generation = slice.spec.pool.generation;
    let known = pool.first().map_or(generation, |first| first.spec.pool.generation);
    if generation > known {
        pool.clear();
    }
    if generation >= known {
        pool.push(slice);
    }
}

/// Whether a slice is for the node. One that says nothing known is skipped:
/// it may be of a kind that comes later.
fn reaches(slice: &ResourceSlice, node: &Node) -> Result<bool, AllocateError> {
    let reaches = |location: Location<'_>| {
        location.reaches(node).map_err(|reason| AllocateError::NodeSelector {
            slice: slice.metadata.name.clone().unwrap_or_default(),
            reason,
        })
    };
    if slice_location(slice).is_given() {
        return reaches(slice_location(slice));
    }
    if slice.spec.per_device_node_selection == Some(true) {
        for device in slice.spec.devices.iter().flatten() {
            if reaches(device_location(device))? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

pub(crate) fn has_counters(slice: &ResourceSlice) -> bool {
    slice.spec.shared_counters.as_ref().is_some_and(|sets| !sets.is_empty())
}

/// None where a newer generation exists that has nothing for this node: the pool is on its
/// way out.
fn build<'a>(mut relevant: Vec<&'a ResourceSlice>, slices: &Slices<'a>) -> Option<Built<'a>> {
    let spec = &relevant.first()?.spec;
    let (generation, want) = (spec.pool.generation, spec.pool.resource_slice_count);
    let pool = format!("{}/{}", spec.driver, spec.pool.name);
    let is_complete = |have: &[&ResourceSlice]| i64::try_from(have.len()) == Ok(want);
    let mut all = relevant.clone();
    if !is_complete(&all) {
        let of_pool = slices.of_pool.get(&(spec.driver.as_str(), spec.pool.name.as_str()));
        let known = of_pool.into_iter().flatten().copied();
        let (same, other): (Vec<_>, Vec<_>) =
            known.partition(|slice| slice.spec.pool.generation == generation);
        if other.iter().any(|slice| slice.spec.pool.generation > generation) {
            return None;
        }
        all = same;
    }
    let mut built =
        Built { pool: Pool::default(), candidates: Vec::new(), has_binding_conditions: false };
    (built.pool.driver, built.pool.name) = (&spec.driver, &spec.pool.name);
    if !is_complete(&all) {
        built.pool.problem = Some(PoolProblem::Incomplete { pool, have: all.len(), want });
        return Some(built);
    }
    relevant.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    if let Err(reason) = fill(&mut built, &relevant, &all, slices.rules) {
        built.candidates.clear();
        built.has_binding_conditions = false;
        built.pool.problem = Some(PoolProblem::Invalid { pool, reason });
    }
    Some(built)
}

/// Reads counters and devices; what makes the pool invalid is the error.
fn fill<'a>(
    built: &mut Built<'a>,
    relevant: &[&'a ResourceSlice],
    all: &[&'a ResourceSlice],
    rules: Rules,
) -> Result<(), String> {
    let with_counters = match rules {
        Rules::UpTo136 => relevant,
        Rules::From137 => all,
    };
    for set in with_counters.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten()) {
        let counters = Counters::read(&set.counters)?;
        if built.pool.counters.insert(&set.name, counters).is_some() {
            return Err(format!("duplicate counter set name {}", set.name));
        }
    }
    let none = Rc::new(Consumption::new());
    // By address: a device of another slice may have the same name.
    let mut consumed: HashMap<*const Device, Rc<Consumption<'a>>> = HashMap::new();
    for (_, device) in devices(all).filter(|(_, device)| device.consumes_counters.is_some()) {
        let consumption = Rc::new(consumption(device)?);
        consumed.insert(std::ptr::from_ref(device), Rc::clone(&consumption));
        built.pool.consumers.push((device, consumption));
    }
    let mut names = HashSet::new();
    for (slice, device) in devices(relevant).filter(|(slice, _)| !has_counters(slice)) {
        if !names.insert(device.name.as_str()) {
            return Err(format!("duplicate device name {}", device.name));
        }
        built.has_binding_conditions |= device.binding_conditions.is_some();
        let consumes = consumed.get(&std::ptr::from_ref(device)).unwrap_or(&none);
        built.candidates.push(Candidate::read(slice, device, Rc::clone(consumes), rules)?);
    }
    let mut consumers = built.pool.consumers.iter();
    consumers.try_for_each(|(_, consumption)| check(&built.pool.counters, consumption))
}

fn devices<'a>(
    slices: &[&'a ResourceSlice],
) -> impl Iterator<Item = (&'a ResourceSlice, &'a Device)> {
    let devices_of = |slice: &&'a ResourceSlice| {
        let slice = *slice;
        slice.spec.devices.iter().flatten().map(move |device| (slice, device))
    };
    slices.iter().flat_map(devices_of)
}

/// A device may only take of counters that its pool has.
fn check(sets: &BTreeMap<&str, Counters<'_>>, consumption: &Consumption<'_>) -> Result<(), String> {
    for (set, counters) in consumption {
        let known = sets.get(set).ok_or_else(|| format!("counter set {set} not found"))?;
        if let Some(missing) = counters.names().find(|name| known.get(name).is_none()) {
            return Err(format!("counter {missing} not found in counter set {set}"));
        }
    }
    Ok(())
}
