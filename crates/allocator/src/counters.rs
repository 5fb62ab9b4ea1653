//! Shared counters: what partitions of one device have in common, so that only those that
//! fit together are allocated together.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::Counter;

use crate::candidate::{Consumption, quantity};
use crate::pools::Pool;
use crate::reason::{Fit, Reason};
use crate::state::Allocated;

/// The counters of one set, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters<'a>(BTreeMap<&'a str, Quantity>);

impl<'a> Counters<'a> {
    pub(crate) fn read(counters: &'a BTreeMap<String, Counter>) -> Result<Self, String> {
        let read = counters.iter().map(|(name, counter)| {
            let value = quantity(&counter.value.0, &format!("counter {name}"))?;
            Ok((name.as_str(), value))
        });
        read.collect::<Result<_, String>>().map(Self)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.0.keys().copied()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }
}

/// Counter set and counter.
type Key<'a> = (&'a str, &'a str);

/// The account of one pool during an attempt.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    /// What allocated devices leave, negative where they took too much.
    available: BTreeMap<Key<'a>, Quantity>,
    /// What the devices of this attempt take.
    taken: BTreeMap<Key<'a>, Quantity>,
}

impl<'a> Account<'a> {
    /// Counts the allocated devices of the whole pool, those of other nodes too.
    pub(crate) fn open(pool: &Pool<'a>, allocated: &Allocated) -> Self {
        let mut available: BTreeMap<Key<'a>, Quantity> = BTreeMap::new();
        for (set, counters) in &pool.counters {
            available.extend(counters.0.iter().map(|(name, value)| ((*set, *name), *value)));
        }
        let taken = pool.consumers.iter().filter(|(id, _)| allocated.is_taken(id));
        for (_, consumption) in taken {
            each(consumption, |key, value| {
                if let Some(left) = available.get_mut(&key) {
                    *left = left.sub(value).unwrap_or(*left);
                }
            });
        }
        Self { available, taken: BTreeMap::new() }
    }

    fn taken(&self, key: Key<'a>) -> Quantity {
        self.taken.get(&key).copied().unwrap_or(Quantity::ZERO)
    }

    /// Takes what a device consumes, if every counter of the pool then still suffices. One
    /// that is overdrawn already blocks all devices, also those that don't consume it.
    pub(crate) fn take(&mut self, consumption: &Consumption<'a>) -> Fit {
        self.change(consumption, |sum, value| sum.add(value).unwrap_or(*sum));
        let short = self.available.iter().find(|(key, available)| self.taken(**key) > **available);
        let Some(((set, counter), available)) = short.map(|(key, available)| (*key, *available))
        else {
            return Ok(());
        };
        self.give_back(consumption);
        let of_set = consumption.iter().find(|(name, _)| *name == set);
        let wanted = of_set.and_then(|(_, counters)| counters.get(counter));
        let already = self.taken((set, counter));
        Err(Box::new(Reason::Counters {
            set: set.to_owned(),
            counter: counter.to_owned(),
            wanted: wanted.unwrap_or(Quantity::ZERO),
            available: available.sub(&already).unwrap_or(available),
        }))
    }

    /// Gives back what [`Self::take`] took.
    pub(crate) fn give_back(&mut self, consumption: &Consumption<'a>) {
        self.change(consumption, |sum, value| sum.sub(value).unwrap_or(*sum));
    }

    fn change(
        &mut self,
        consumption: &Consumption<'a>,
        by: impl Fn(&Quantity, &Quantity) -> Quantity,
    ) {
        each(consumption, |key, value| {
            let sum = self.taken.entry(key).or_insert(Quantity::ZERO);
            *sum = by(sum, value);
        });
    }
}

fn each<'a>(consumption: &Consumption<'a>, mut visit: impl FnMut(Key<'a>, &Quantity)) {
    for (set, counters) in consumption {
        for (name, value) in &counters.0 {
            visit((*set, *name), value);
        }
    }
}
