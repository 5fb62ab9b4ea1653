//! What the partitions of one GPU share, as counters: two or more partitions fit in the
//! totals together if and only if the GPU can hold them together.
//!
//! All of it is computed from the driver's profiles and placements: memory slices keep
//! placements from overlapping, engines are handed out once, and where a profile has a
//! smaller limit than both allow, its instances are counted too. Memory and multiprocessors
//! are there to be charged (quotas read them); they never limit beyond the slices.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::Quantity;
use gpu_dra_model::inventory::{MigProfile, Placement};
use gpu_dra_model::quantity::Format;
use k8s_openapi::api::resource::v1::{Counter, CounterSet, DeviceCounterConsumption};
use k8s_openapi::apimachinery::pkg::api::resource as api;

use crate::validate::MAX_COUNTERS;

/// One thing that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// In MiB.
    Memory,
    Multiprocessors,
    CopyEngines,
    Decoders,
    Encoders,
    JpegEngines,
    OfaEngines,
    /// The memory slice with this number.
    MemorySlice(u32),
    /// Instances of the profile with this id.
    Instances(u32),
}

type Engine = (Kind, fn(&MigProfile) -> u32);

/// Engines can't be shared by GPU instances.
const ENGINES: [Engine; 5] = [
    (Kind::CopyEngines, |profile| profile.copy_engines),
    (Kind::Decoders, |profile| profile.decoders),
    (Kind::Encoders, |profile| profile.encoders),
    (Kind::JpegEngines, |profile| profile.jpeg_engines),
    (Kind::OfaEngines, |profile| profile.ofa_engines),
];

/// Amounts by what is counted, none of them zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Amounts(BTreeMap<Kind, u64>);

impl Amounts {
    fn set(&mut self, kind: Kind, amount: impl Into<u64>) {
        let amount = amount.into();
        if amount > 0 {
            self.0.insert(kind, amount);
        }
    }

    /// Adds up.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        for (kind, amount) in &other.0 {
            let entry = sum.0.entry(*kind).or_default();
            *entry = entry.saturating_add(*amount);
        }
        sum
    }

    /// Whether there is enough of everything.
    pub(crate) fn fits_in(&self, total: &Self) -> bool {
        self.0.iter().all(|(kind, amount)| total.0.get(kind).is_some_and(|all| amount <= all))
    }

    /// As a device's consumption.
    pub(crate) fn consumption(&self, set: &str) -> DeviceCounterConsumption {
        DeviceCounterConsumption {
            counter_set: set.to_owned(),
            counters: self.counters(),
            ..DeviceCounterConsumption::default()
        }
    }

    /// As the set that devices consume from.
    pub(crate) fn counter_set(&self, name: &str) -> CounterSet {
        CounterSet { name: name.to_owned(), counters: self.counters() }
    }

    fn counters(&self) -> BTreeMap<String, Counter> {
        let counter = |(kind, amount): (&Kind, &u64)| {
            let value = match kind {
                Kind::Memory => Quantity::from_bytes_binary(amount.saturating_mul(1 << 20)),
                _ => Quantity::from_integer(
                    i64::try_from(*amount).unwrap_or(i64::MAX),
                    Format::DecimalSi,
                ),
            };
            (kind.name(), Counter { value: api::Quantity(value.to_string()) })
        };
        self.0.iter().map(counter).collect()
    }
}

impl Kind {
    /// The incumbent's names; quotas refer to them.
    fn name(self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Multiprocessors => "multiprocessors".to_owned(),
            Self::CopyEngines => "copy-engines".to_owned(),
            Self::Decoders => "decoders".to_owned(),
            Self::Encoders => "encoders".to_owned(),
            Self::JpegEngines => "jpeg-engines".to_owned(),
            Self::OfaEngines => "ofa-engines".to_owned(),
            Self::MemorySlice(number) => format!("memory-slice-{number}"),
            Self::Instances(profile) => format!("instances-{profile}"),
        }
    }
}

/// The account of one GPU.
#[derive(Debug)]
pub(crate) struct Account {
    /// What there is, and what the whole GPU takes.
    pub(crate) totals: Amounts,
    counted_profiles: BTreeSet<u32>,
}

impl Account {
    /// From the profiles of a GPU. None where there are none, or where they are too many to
    /// be counted in one set of at most 32 counters.
    pub(crate) fn of(profiles: &[MigProfile]) -> Option<Self> {
        let placements = || profiles.iter().flat_map(|profile| &profile.placements);
        let slices = placements().map(|placement| placement.slices().end).max()?;
        if usize::try_from(slices).ok()? > MAX_COUNTERS || placements().any(|p| p.size == 0) {
            return None;
        }
        let mut totals = Amounts::default();
        totals.set(Kind::Memory, most(profiles, slices, |profile| profile.memory_mib));
        totals.set(
            Kind::Multiprocessors,
            most(profiles, slices, |profile| profile.multiprocessors.into()),
        );
        for (kind, engines) in ENGINES {
            // As many instances as the driver says fit in an empty GPU, so do their engines.
            let of = |profile: &MigProfile| {
                u64::from(engines(profile)) * u64::from(profile.max_instances.max(1))
            };
            totals.set(kind, profiles.iter().map(of).max().unwrap_or(0));
        }
        (0..slices).for_each(|slice| totals.set(Kind::MemorySlice(slice), 1_u32));

        let mut counted_profiles = BTreeSet::new();
        for profile in profiles {
            if is_limited_otherwise(profile, &totals) {
                counted_profiles.insert(profile.id);
                totals.set(Kind::Instances(profile.id), profile.max_instances);
            }
        }
        (totals.0.len() <= MAX_COUNTERS).then_some(Self { totals, counted_profiles })
    }

    /// What an instance of the profile takes there.
    pub(crate) fn amounts(&self, profile: &MigProfile, placement: Placement) -> Amounts {
        let mut amounts = Self::place_alone(placement);
        amounts.set(Kind::Memory, profile.memory_mib);
        amounts.set(Kind::Multiprocessors, profile.multiprocessors);
        for (kind, engines) in ENGINES {
            amounts.set(kind, engines(profile));
        }
        if self.counted_profiles.contains(&profile.id) {
            amounts.set(Kind::Instances(profile.id), 1_u32);
        }
        amounts
    }

    /// What an instance takes of which only the place is known.
    pub(crate) fn place_alone(placement: Placement) -> Amounts {
        let mut amounts = Amounts::default();
        placement.slices().for_each(|slice| amounts.set(Kind::MemorySlice(slice), 1_u32));
        amounts
    }
}

/// The most that any placements side by side have of a value.
fn most(profiles: &[MigProfile], slices: u32, value: impl Fn(&MigProfile) -> u64) -> u64 {
    let mut best: BTreeMap<u32, u64> = BTreeMap::from([(0, 0)]);
    for end in 1..=slices {
        let before = |at: u32| best.get(&at).copied().unwrap_or(0);
        let ending = profiles.iter().flat_map(|profile| {
            let at_end = profile.placements.iter().filter(|p| p.slices().end == end);
            at_end.map(|placement| before(placement.start).saturating_add(value(profile)))
        });
        let here = ending.max().unwrap_or(0).max(before(end - 1));
        best.insert(end, here);
    }
    best.get(&slices).copied().unwrap_or(0)
}

/// Whether slices and engines alone would let more instances of the profile coexist than
/// the driver does.
fn is_limited_otherwise(profile: &MigProfile, totals: &Amounts) -> bool {
    let end = profile.placements.iter().map(|placement| placement.slices().end).max();
    let by_place = most(std::slice::from_ref(profile), end.unwrap_or(0), |_| 1);
    let one_more = u64::from(profile.max_instances) + 1;
    let by_engine = ENGINES.iter().any(|(kind, engines)| {
        let total = totals.0.get(kind).copied().unwrap_or(0);
        u64::from(engines(profile)) * one_more > total
    });
    by_place > u64::from(profile.max_instances) && !by_engine
}
