//! What the driver's slices and the claims come to: how many devices a class has on how many
//! nodes, and how many are free. Every change costs one pool's work; a class costs one
//! evaluation a shape of device, and an addition a kind of node. Nothing here asks anyone.

mod held;
mod pool;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gpu_dra_cel::{Comparison, EvalError, Selector};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};

use held::Held;
use pool::{Interner, Number, Pool, Share};
use shape::{ShapeId, Shapes, Verdict};

#[cfg(test)]
pub(crate) use shape::READ;

/// The devices of one driver in the whole cluster.
#[derive(Debug)]
pub struct Fleet {
    driver: String,
    shapes: Shapes,
    interner: Interner,
    pools: HashMap<Arc<str>, Pool>,
    /// The pool of each slice.
    slices: HashMap<String, Arc<str>>,
    held: Held,
    /// The sum of all pools.
    numbers: BTreeMap<ShapeId, Number>,
    /// Nodes with the same shapes, however many of each.
    nodes: HashMap<Vec<ShapeId>, u64>,
    /// Verdicts by expression; shapes are never forgotten, so they stay true.
    verdicts: HashMap<String, Vec<Verdict>>,
}

/// What a class has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Published devices that match.
    pub devices: u64,
    /// Nodes with at least one of them.
    pub nodes: u64,
    /// Those that a claim without tolerations could get now.
    pub free: u64,
    /// An error that stops every pod that asks for the class.
    pub error: Option<EvalError>,
}

impl Fleet {
    /// Nothing yet.
    #[must_use]
    pub fn new(driver: &str) -> Self {
        Self {
            driver: driver.to_owned(),
            shapes: Shapes::default(),
            interner: Interner::default(),
            pools: HashMap::new(),
            slices: HashMap::new(),
            held: Held::default(),
            numbers: BTreeMap::new(),
            nodes: HashMap::new(),
            verdicts: HashMap::new(),
        }
    }

    /// Takes in a slice as it is now. Slices of other drivers are ignored.
    pub fn put_slice(&mut self, slice: &ResourceSlice) {
        if slice.spec.driver != self.driver {
            return;
        }
        let name = slice.metadata.name.clone().unwrap_or_default();
        let pool: Arc<str> = Arc::from(&*slice.spec.pool.name);
        // A slice of this name may have been made anew for another pool.
        if self.slices.get(&name).is_some_and(|known| *known != pool) {
            self.remove_slice(&name);
        }
        self.slices.insert(name, pool.clone());
        let kept = self.pools.entry(pool.clone()).or_default();
        kept.put(slice, &mut self.shapes, &mut self.interner);
        self.recount(&pool);
    }

    /// Forgets a slice.
    pub fn remove_slice(&mut self, name: &str) {
        let Some(pool) = self.slices.remove(name) else { return };
        if let Some(kept) = self.pools.get_mut(&pool) {
            kept.remove(name);
        }
        self.recount(&pool);
    }

    /// Forgets all slices but those that `stays` names.
    pub fn retain_slices(&mut self, stays: impl Fn(&str) -> bool) {
        self.slices.retain(|name, _| stays(name));
        let changed = self
            .pools
            .iter_mut()
            .filter_map(|(name, pool)| pool.retain(&stays).then(|| name.clone()));
        for pool in changed.collect::<Vec<_>>() {
            self.recount(&pool);
        }
    }

    /// Takes in a claim as it is now.
    pub fn put_claim(&mut self, claim: &ResourceClaim) {
        for pool in self.held.put(claim, &self.driver) {
            self.recount(&pool);
        }
    }

    /// Forgets a claim, `namespace/name`.
    pub fn remove_claim(&mut self, claim: &str) {
        for pool in self.held.remove(claim) {
            self.recount(&pool);
        }
    }

    /// Forgets all claims but those that `stays` names.
    pub fn retain_claims(&mut self, stays: impl Fn(&str) -> bool) {
        for pool in self.held.retain(stays) {
            self.recount(&pool);
        }
    }

    /// Puts a pool's new share into the sums in place of its old one.
    fn recount(&mut self, name: &Arc<str>) {
        let Some(pool) = self.pools.get_mut(name) else { return };
        let new = pool.count(self.held.of_pool(name), &self.shapes);
        if new != pool.share {
            let old = std::mem::replace(&mut pool.share, new.clone());
            subtract(&mut self.numbers, &mut self.nodes, &old);
            add(&mut self.numbers, &mut self.nodes, &new);
        }
        if pool.is_empty() {
            self.pools.remove(name);
        }
    }

    /// What a class with this selector has now. For classes made here: a selector that reads
    /// what these don't is judged by a device that stands for others.
    pub fn tally(&mut self, selector: &Selector) -> Tally {
        let known = match self.verdicts.get_mut(selector.text()) {
            Some(known) => known,
            None => self.verdicts.entry(selector.text().to_owned()).or_default(),
        };
        for (_, shape) in self.shapes.iter().skip(known.len()) {
            known.push(shape.matches(selector));
        }
        let verdict = |id: &ShapeId| known.get(id.index());
        let matches = |id: &ShapeId| matches!(verdict(id), Some(Ok(true)));
        let mut tally = Tally::default();
        for (id, number) in &self.numbers {
            if matches(id) {
                tally.devices += number.all;
                tally.free += number.free;
            } else if let Some(Err(error)) = verdict(id) {
                tally.error.get_or_insert_with(|| error.clone());
            }
        }
        let with_some = self.nodes.iter().filter(|(shapes, _)| shapes.iter().any(matches));
        tally.nodes = with_some.map(|(_, nodes)| nodes).sum();
        tally
    }

    /// Forgets the verdicts of expressions that no class has any more.
    pub fn forget_verdicts_but(&mut self, stays: impl Fn(&str) -> bool) {
        self.verdicts.retain(|expression, _| stays(expression));
    }

    /// What keeps the class from the published devices that come nearest to it: one comparison
    /// each, of the shape with the fewest, and how many devices that is.
    #[must_use]
    pub fn nearest_miss(&self, selector: &Selector) -> Option<(u64, Vec<Comparison>)> {
        let published = self.numbers.iter().filter_map(|(id, number)| {
            let terms = self.shapes.get(*id)?.explain(selector);
            Some((terms, number.all)).filter(|(terms, _)| !terms.is_empty())
        });
        let (terms, devices) =
            published.min_by_key(|(terms, all)| (terms.len(), std::cmp::Reverse(*all)))?;
        let first = |term: gpu_dra_cel::Term| term.comparisons.into_iter().next();
        Some((devices, terms.into_iter().filter_map(first).collect()))
    }

    /// The product names of whole GPUs now published.
    #[must_use]
    pub fn products(&self) -> BTreeSet<&str> {
        self.published("gpu").filter_map(|shape| shape.product.as_deref()).collect()
    }

    /// The profiles of MIG devices now published.
    #[must_use]
    pub fn profiles(&self) -> BTreeSet<&str> {
        self.published("mig").filter_map(|shape| shape.profile.as_deref()).collect()
    }

    /// Published devices without the attribute `type`, or with a value that no selector can
    /// read: they are of no class, and one of them stops pods of classes that aren't guarded.
    #[must_use]
    pub fn strangers(&self) -> u64 {
        let strange = self.numbers.iter().filter(|(id, _)| self.is_strange(**id));
        strange.map(|(_, number)| number.all).sum()
    }

    /// A pool that has such devices.
    #[must_use]
    pub fn pool_of_strangers(&self) -> Option<&str> {
        let has_some = |pool: &Pool| pool.share.numbers.keys().any(|id| self.is_strange(*id));
        self.pools.iter().find(|(_, pool)| has_some(pool)).map(|(name, _)| &**name)
    }

    fn is_strange(&self, id: ShapeId) -> bool {
        self.shapes.get(id).is_some_and(shape::Shape::lacks_contract)
    }

    /// Kinds of device that were ever published.
    #[must_use]
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    fn published(&self, device_type: &'static str) -> impl Iterator<Item = &shape::Shape> {
        let shapes = self.numbers.keys().filter_map(|id| self.shapes.get(*id));
        shapes.filter(move |shape| shape.device_type.as_deref() == Some(device_type))
    }
}

fn add(
    numbers: &mut BTreeMap<ShapeId, Number>,
    nodes: &mut HashMap<Vec<ShapeId>, u64>,
    share: &Share,
) {
    for (id, number) in &share.numbers {
        let sum = numbers.entry(*id).or_default();
        sum.all += number.all;
        sum.free += number.free;
    }
    if share.is_on_node {
        *nodes.entry(share.shapes()).or_default() += 1;
    }
}

fn subtract(
    numbers: &mut BTreeMap<ShapeId, Number>,
    nodes: &mut HashMap<Vec<ShapeId>, u64>,
    share: &Share,
) {
    for (id, number) in &share.numbers {
        if let Some(sum) = numbers.get_mut(id) {
            sum.all = sum.all.saturating_sub(number.all);
            sum.free = sum.free.saturating_sub(number.free);
            if sum.all == 0 {
                numbers.remove(id);
            }
        }
    }
    if share.is_on_node
        && let Some(count) = nodes.get_mut(&share.shapes())
    {
        *count = count.saturating_sub(1);
        if *count == 0 {
            nodes.remove(&share.shapes());
        }
    }
}
