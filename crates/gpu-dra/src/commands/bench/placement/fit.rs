//! kube-scheduler's choice, as far as it matters here: the first device in the order of the
//! slices that matches, that nobody has, and whose counters suffice. A test holds it against
//! the real search.

use std::collections::BTreeMap;

use anyhow::Context as _;
use gpu_dra_model::Quantity;
use gpu_dra_slices::DesiredPool;
use k8s_openapi::api::resource::v1::{Counter, Device};

use super::day::{WHOLE, Wanted};

/// In which order the devices are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As `build` orders them.
    Ours,
    /// GPU by GPU, by name: the incumbent's.
    ByName,
}

/// A device as the scheduler's bookkeeping sees it.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// Its name.
    #[cfg(test)]
    name: String,
    /// What it takes, by number of the counter.
    takes: Vec<(usize, i64)>,
    /// How many memory slices that is.
    memory_slices: u64,
}

/// A device that was taken, by its place among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taken {
    pub(super) wanted: Wanted,
    pub(super) at: usize,
}

/// All devices and what is left for them.
#[derive(Debug, Clone)]
pub(super) struct Node {
    by_kind: BTreeMap<String, Vec<Slot>>,
    left: Vec<i64>,
}

impl Node {
    /// Nothing is taken yet.
    pub(super) fn new(pool: &DesiredPool, order: Order) -> anyhow::Result<Self> {
        let mut numbers = BTreeMap::new();
        let mut left = Vec::new();
        for set in pool.counter_sets() {
            for (name, counter) in &set.counters {
                numbers.insert((set.name.as_str(), name.as_str()), left.len());
                left.push(amount(counter)?);
            }
        }
        // A tainted device is for nobody who doesn't tolerate it, such as a monitor.
        let untainted = |device: &&Device| device.taints.as_ref().is_none_or(Vec::is_empty);
        let mut devices: Vec<_> = pool.devices().filter(untainted).collect();
        if order == Order::ByName {
            devices.sort_by_key(|device| (gpu_number(device), device.name.as_str()));
        }
        let mut by_kind: BTreeMap<String, Vec<Slot>> = BTreeMap::new();
        for device in devices {
            let mut takes = Vec::new();
            let mut memory_slices = 0;
            for consumed in device.consumes_counters.iter().flatten() {
                for (name, counter) in &consumed.counters {
                    let number = numbers.get(&(consumed.counter_set.as_str(), name.as_str()));
                    memory_slices += u64::from(name.starts_with("memory-slice-"));
                    takes.push((*number.context("no such counter")?, amount(counter)?));
                }
            }
            let slot = Slot {
                #[cfg(test)]
                name: device.name.clone(),
                takes,
                memory_slices,
            };
            by_kind.entry(kind(device)).or_default().push(slot);
        }
        Ok(Self { by_kind, left })
    }

    /// Takes the first device of the kind that fits; None where none does.
    pub(super) fn take(&mut self, wanted: Wanted) -> Option<Taken> {
        let fits = |slot: &Slot| self.fits(slot);
        let at = self.slots(wanted).iter().position(fits)?;
        let taken = Taken { wanted, at };
        self.change(taken, -1);
        Some(taken)
    }

    /// Takes this device if it fits.
    pub(super) fn take_this(&mut self, taken: Taken) -> bool {
        let fits = self.slots(taken.wanted).get(taken.at).is_some_and(|slot| self.fits(slot));
        if fits {
            self.change(taken, -1);
        }
        fits
    }

    fn fits(&self, slot: &Slot) -> bool {
        let suffices =
            |(number, take): &(usize, i64)| self.left.get(*number).is_some_and(|left| take <= left);
        slot.takes.iter().all(suffices)
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, taken: Taken) {
        self.change(taken, 1);
    }

    fn change(&mut self, Taken { wanted, at }: Taken, sign: i64) {
        let Some(slot) = self.by_kind.get(wanted).and_then(|slots| slots.get(at)) else { return };
        for (number, take) in &slot.takes {
            if let Some(left) = self.left.get_mut(*number) {
                *left += sign * take;
            }
        }
    }

    /// How many memory slices a device of the kind takes.
    pub(super) fn memory_slices(&self, wanted: Wanted) -> u64 {
        self.slots(wanted).first().map_or(0, |slot| slot.memory_slices)
    }

    /// The devices of a kind, in their order.
    pub(super) fn slots(&self, kind: &str) -> &[Slot] {
        self.by_kind.get(kind).map_or(&[], Vec::as_slice)
    }
}

/// What a request must ask for to get it.
fn kind(device: &Device) -> String {
    let profile = device.attributes.as_ref().and_then(|attributes| attributes.get("profile"));
    profile.and_then(|profile| profile.string.clone()).unwrap_or_else(|| WHOLE.to_owned())
}

/// The n of `gpu-<n>` and `gpu-<n>-mig-...`: gpu-2 comes before gpu-10.
fn gpu_number(device: &Device) -> Option<u32> {
    device.name.split('-').nth(1)?.parse().ok()
}

fn amount(counter: &Counter) -> anyhow::Result<i64> {
    let quantity: Quantity = counter.value.0.parse()?;
    quantity.as_integer().context("a counter is no whole number")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gpu_dra_allocator::{Allocated, Allocator, Outcome};
    use gpu_dra_slices::{Owner, PoolRef, Write, plan_writes};
    use k8s_openapi::api::resource::v1::{
        AllocationResult, DeviceClass, ResourceClaim, ResourceSlice,
    };
    use serde_json::json;

    use super::super::{day, pool};
    use super::*;

    fn slices(pool: &DesiredPool) -> Vec<ResourceSlice> {
        let of = PoolRef {
            driver: "gpu.nvidia.com".parse().unwrap(),
            node: "node-1".parse().unwrap(),
            pool: "node-1".parse().unwrap(),
        };
        let writes = plan_writes(&[], pool, &of, &Owner { uid: "1".to_owned() });
        let mut slices = Vec::new();
        for write in writes {
            let Write::Create(mut slice) = write else { panic!("{write:?}") };
            slice.metadata.name =
                slice.metadata.generate_name.as_ref().map(|name| format!("{name}abcde"));
            slices.push(*slice);
        }
        slices
    }

    fn claim(wanted: Wanted) -> ResourceClaim {
        let attributes = "device.attributes['gpu.nvidia.com']";
        let selector = if wanted == WHOLE {
            format!("{attributes}.type == 'gpu'")
        } else {
            format!("{attributes}.type == 'mig' && {attributes}.profile == '{wanted}'")
        };
        serde_json::from_value(json!({
            "metadata": {"name": "claim", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu", "selectors": [{"cel": {"expression": selector}}],
            }}]}},
        }))
        .unwrap()
    }

    /// The scheduler's choice, beside what these claims hold.
    fn scheduler(
        slices: &[ResourceSlice],
        held: &BTreeMap<usize, (u64, AllocationResult)>,
        wanted: Wanted,
    ) -> Option<AllocationResult> {
        let class: DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
        }))
        .unwrap();
        let node = serde_json::from_value(json!({"metadata": {"name": "node-1"}})).unwrap();
        let mut allocated = Allocated::default();
        for (at, (_, result)) in held {
            allocated.add(&format!("default/{at}"), result);
        }
        let mut allocator = Allocator::new(slices, [&class], allocated);
        match allocator.allocate(&node, &[&claim(wanted)], &mut String::new) {
            Outcome::Allocated(results) => results.into_iter().next(),
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.error, None);
                None
            }
        }
    }

    #[test]
    fn the_choice_is_the_schedulers() {
        let pool = pool::pool(2).unwrap();
        let slices = slices(&pool);
        let mut node = Node::new(&pool, Order::Ours).unwrap();
        let arrivals = day::day(5, &day::MIXES[1], 90, 16, |wanted| node.memory_slices(wanted));
        let mut held: BTreeMap<usize, (u64, AllocationResult)> = BTreeMap::new();
        let mut taken = BTreeMap::new();
        let mut refused = 0;
        for (at, arrival) in arrivals.iter().enumerate() {
            let gone: Vec<_> = held
                .iter()
                .filter(|(_, (until, _))| *until <= arrival.at)
                .map(|(at, _)| *at)
                .collect();
            for at in gone {
                held.remove(&at);
                node.give_back(taken.remove(&at).unwrap());
            }
            let result = scheduler(&slices, &held, arrival.wanted);
            let device = result.as_ref().map(|result| {
                result.devices.as_ref().unwrap().results.as_ref().unwrap()[0].device.clone()
            });
            let ours = node.take(arrival.wanted);
            let name = ours.map(|taken| node.slots(taken.wanted)[taken.at].name.clone());
            assert_eq!(name, device, "{arrival:?} is number {at}");
            refused += usize::from(ours.is_none());
            if let (Some(ours), Some(result)) = (ours, result) {
                taken.insert(at, ours);
                held.insert(at, (arrival.until, result));
            }
        }
        assert!(arrivals.len() > 30 && refused > 5, "{refused} of {}", arrivals.len());
    }
}
