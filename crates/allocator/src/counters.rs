//! Shared counters: what partitions of one device have in common, so that only those that
//! fit together are allocated together.
//!
//! Up to Kubernetes 1.36 accounts go by the pool's name alone: two drivers with counters and
//! equal pool names disturb each other. Numbers that can't be reckoned count as too much.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::Counter;

use crate::Rules;
use crate::candidate::{Consumption, quantity};
use crate::pools::Pool;
use crate::reason::{Fit, Reason};
use crate::state::{Allocated, DeviceId};

/// The counters of one set, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters<'a>(BTreeMap<&'a str, Quantity>);

impl<'a> Counters<'a> {
    pub(crate) fn read(counters: &'a BTreeMap<String, Counter>) -> Result<Self, String> {
        let read = counters.iter().map(|(name, counter)| {
            let value = quantity(&counter.value.0, "counter", name)?;
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

/// What an account of counters goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Account<'a> {
    driver: Option<&'a str>,
    pool: &'a str,
}

impl<'a> Account<'a> {
    pub(crate) fn of(pool: &Pool<'a>, rules: Rules) -> Self {
        let driver = (rules != Rules::UpTo136).then_some(pool.driver);
        Self { driver, pool: pool.name }
    }
}

/// Counter set and counter.
type Key<'a> = (&'a str, &'a str);

/// What allocated devices leave of a pool's counters: negative where they took too much,
/// None where that much can't be reckoned.
#[derive(Debug, Clone)]
pub(crate) struct Available<'a>(BTreeMap<Key<'a>, Option<Quantity>>);

impl<'a> Available<'a> {
    /// Counts the allocated devices of the whole pool, those of other nodes too.
    pub(crate) fn of(pool: &Pool<'a>, allocated: &Allocated) -> Self {
        let mut available: BTreeMap<Key<'a>, Option<Quantity>> = BTreeMap::new();
        for (set, counters) in &pool.counters {
            available.extend(counters.0.iter().map(|(name, value)| ((*set, *name), Some(*value))));
        }
        let taken = pool.consumers.iter().filter(|_| allocated.any_of(pool.driver, pool.name));
        let taken = taken.filter(|(device, _)| {
            let (driver, pool) = (pool.driver.to_owned(), pool.name.to_owned());
            allocated.is_taken(&DeviceId { driver, pool, device: device.name.clone() })
        });
        for (key, value) in taken.flat_map(|(_, consumption)| each(consumption)) {
            if let Some(left) = available.get_mut(&key) {
                *left = left.and_then(|left| left.sub(&value).ok());
            }
        }
        Self(available)
    }
}

/// What the devices of an attempt take of the counters of one account.
#[derive(Debug, Default)]
pub(crate) struct Taken<'a>(BTreeMap<Key<'a>, Quantity>);

impl<'a> Taken<'a> {
    /// Takes what a device consumes, if every counter of the pool then still suffices. One
    /// that is overdrawn already blocks all devices, also those that don't consume it.
    pub(crate) fn take(&mut self, consumption: &Consumption<'a>, available: &Available<'a>) -> Fit {
        let mut sums: BTreeMap<Key<'a>, Option<Quantity>> = BTreeMap::new();
        for (key, value) in each(consumption) {
            let sum = sums.entry(key).or_insert_with(|| Some(self.of(key)));
            *sum = sum.and_then(|sum| sum.add(&value).ok());
        }
        let suffices = |key: Key<'a>, left: Option<Quantity>| {
            let sum = sums.get(&key).copied().unwrap_or_else(|| Some(self.of(key)));
            matches!((sum, left), (Some(sum), Some(left)) if sum <= left)
        };
        let short = available.0.iter().find(|(key, left)| !suffices(**key, **left));
        if let Some((key, left)) = short {
            return Err(self.shortage(*key, *left, consumption));
        }
        // Of a set that the pool's account doesn't know any amount may be taken: an account
        // of another driver's pool of the same name.
        self.0.extend(sums.into_iter().filter_map(|(key, sum)| Some((key, sum?))));
        Ok(())
    }

    /// Gives back what [`Self::take`] took.
    pub(crate) fn give_back(&mut self, consumption: &Consumption<'a>) {
        for (key, value) in each(consumption) {
            if let Some(sum) = self.0.get_mut(&key) {
                // What was added can be taken away again.
                *sum = sum.sub(&value).unwrap_or(*sum);
            }
        }
    }

    fn of(&self, key: Key<'a>) -> Quantity {
        self.0.get(&key).copied().unwrap_or(Quantity::ZERO)
    }

    fn shortage(
        &self,
        (set, counter): Key<'a>,
        left: Option<Quantity>,
        consumption: &Consumption<'a>,
    ) -> Box<Reason> {
        let of_set = consumption.iter().find(|(name, _)| *name == set);
        let wanted = of_set.and_then(|(_, counters)| counters.get(counter));
        let left = left.and_then(|left| left.sub(&self.of((set, counter))).ok());
        Box::new(Reason::Counters {
            set: set.to_owned(),
            counter: counter.to_owned(),
            wanted: wanted.unwrap_or(Quantity::ZERO),
            available: left.unwrap_or(Quantity::ZERO),
        })
    }
}

fn each<'a>(consumption: &Consumption<'a>) -> impl Iterator<Item = (Key<'a>, Quantity)> {
    consumption
        .iter()
        .flat_map(|(set, counters)| counters.0.iter().map(|(name, value)| ((*set, *name), *value)))
}
