//! For every model: what the counters allow together is what the simulated hardware accepts
//! together. The hardware's rule is written without counters, from overlap and engines.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::inventory::{Mig, MigMode};
use gpu_dra_model::{DeviceKind, DeviceName, Gpu, Partition, Quantity};
use gpu_dra_sim_data::mig_rules::{Occupied, accepts};
use gpu_dra_sim_data::mig_table;
use gpu_dra_slices::{Built, Names, OwnInstance, Policy, build, validate_pool};
use k8s_openapi::api::resource::v1::{Counter, Device};

use crate::simulated::{add_instance, gpu, models, node, partition, set_mode};
use crate::support::node_with;

type Amounts = BTreeMap<String, i64>;

fn amounts(counters: &BTreeMap<String, Counter>) -> Amounts {
    let number = |counter: &Counter| {
        counter.value.0.parse::<Quantity>().unwrap().as_integer().expect("a whole number")
    };
    counters.iter().map(|(name, counter)| (name.clone(), number(counter))).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

/// As kube-scheduler does: every counter of the set must suffice.
fn allows(totals: &Amounts, taken: &Amounts, more: &Amounts) -> bool {
    let mut sum = taken.clone();
    add(&mut sum, more);
    sum.iter().all(|(name, amount)| amount <= &totals[name])
}

/// The published partitions of a one-GPU node, and its counters.
struct Published {
    built: Built,
    totals: Amounts,
}

impl Published {
    fn new(gpu: Gpu, own: &BTreeSet<OwnInstance>) -> Self {
        let inventory = node_with([gpu]);
        let mut names = Names::default();
        names.assign(&inventory);
        let built = build(&inventory, &names, &Policy::default(), own);
        assert_eq!(validate_pool(&built.pool), []);
        let sets: Vec<_> = built.pool.counter_sets().collect();
        assert_eq!(sets.len(), 1);
        let totals = amounts(&sets[0].counters);
        Self { built, totals }
    }

    fn consumed(device: &Device) -> Amounts {
        let consumed = device.consumes_counters.as_ref().unwrap();
        assert_eq!(consumed.len(), 1);
        let amounts = amounts(&consumed[0].counters);
        assert!(amounts.values().all(|amount| *amount > 0), "zeros are left out");
        amounts
    }

    fn partitions(&self) -> Vec<(Partition, Amounts, &Device)> {
        let partition = |device| match self.kind(device) {
            DeviceKind::Partition { partition, .. } => {
                Some((*partition, Self::consumed(device), device))
            }
            _ => None,
        };
        self.built.pool.devices().filter_map(partition).collect()
    }

    fn kind(&self, device: &Device) -> &DeviceKind {
        &self.built.devices[&DeviceName::new(&device.name).unwrap()]
    }

    fn whole(&self) -> &Device {
        let is_whole = |device: &&Device| matches!(self.kind(device), DeviceKind::Gpu { .. });
        self.built.pool.devices().find(is_whole).unwrap()
    }
}

fn occupied(partition: Partition) -> Occupied {
    let Partition { profile_id, placement } = partition;
    Occupied {
        profile: profile_id,
        placement: mig_table::Placement { start: placement.start, size: placement.size },
    }
}

/// A GPU of the model with mode on and as new as Hopper, so that the whole is there too.
fn free_gpu(model: &str) -> Gpu {
    let mut gpu = gpu(model, 0);
    set_mode(&mut gpu, MigMode::Enabled);
    gpu.compute_capability = crate::support::h100(0).compute_capability;
    gpu
}

#[test]
fn counters_allow_exactly_what_the_hardware_accepts() {
    let mut report = Vec::new();
    for (model, table) in models() {
        let published = Published::new(free_gpu(model), &BTreeSet::new());
        let all = published.partitions();
        let expected: usize = table.profiles.values().map(|profile| profile.starts.len()).sum();
        assert_eq!(all.len(), expected, "{model}: every placement of every profile");
        // Both rules refuse what holds a refused part, so every set that either takes is met
        // here, each once: by adding placements in their order.
        let mut sets = 0_usize;
        let mut open = vec![(Vec::<Occupied>::new(), Amounts::new(), 0_usize)];
        while let Some((taken, sum, from)) = open.pop() {
            sets += 1;
            for (at, (partition, amounts, device)) in all.iter().enumerate() {
                let next = occupied(*partition);
                let by_hardware = accepts(table, &taken, next.profile, next.placement);
                let by_counters = allows(&published.totals, &sum, amounts);
                assert_eq!(by_counters, by_hardware, "{model}: {} beside {taken:?}", device.name);
                if by_hardware && at >= from {
                    let mut more = taken.clone();
                    more.push(next);
                    let mut sum = sum.clone();
                    add(&mut sum, amounts);
                    open.push((more, sum, at + 1));
                }
            }
        }
        report.push(format!("{model}: {} placements, {sets} sets", all.len()));
    }
    println!("{}", report.join("\n"));
    assert!(report.len() >= 8, "all models that can be partitioned: {report:?}");
}

#[test]
fn the_whole_gpu_excludes_every_partition() {
    for (model, _) in models() {
        let published = Published::new(free_gpu(model), &BTreeSet::new());
        let whole = Published::consumed(published.whole());
        assert_eq!(whole, published.totals, "{model}");
        for (_, amounts, device) in published.partitions() {
            assert!(!allows(&published.totals, &whole, &amounts), "{model}: {}", device.name);
        }
    }
}

#[test]
fn counters_stay_within_the_limit_and_have_the_incumbents_names() {
    for (model, table) in models() {
        let published = Published::new(free_gpu(model), &BTreeSet::new());
        let totals = &published.totals;
        assert!(totals.len() <= 32 && totals.values().all(|total| *total > 0), "{model}");
        let slices = totals.keys().filter(|name| name.starts_with("memory-slice-")).count();
        assert_eq!(slices, usize::try_from(table.slices).unwrap(), "{model}");
        let known = [
            "memory",
            "multiprocessors",
            "copy-engines",
            "decoders",
            "encoders",
            "jpeg-engines",
            "ofa-engines",
        ];
        let others: Vec<_> = totals
            .keys()
            .filter(|name| !known.contains(&name.as_str()) && !name.starts_with("memory-slice-"))
            .collect();
        assert_eq!(others, [""; 0], "{model}: no table needs more");
    }
}

#[test]
fn a_partition_charges_the_memory_of_its_profile() {
    // Quotas of Kueue read the counter.
    let published = Published::new(free_gpu("a100-40"), &BTreeSet::new());
    let smallest = published.partitions().into_iter().find(|(p, ..)| p.profile_id == 19).unwrap();
    let consumed = smallest.2.consumes_counters.as_ref().unwrap();
    assert_eq!(consumed[0].counters["memory"].value.0, "4864Mi");
}

#[test]
fn a_limit_that_nothing_else_sets_is_counted() {
    let mut gpu = free_gpu("h100-80");
    let Mig::Supported { profiles, .. } = &mut gpu.mig else { panic!() };
    let profile = profiles.iter_mut().find(|profile| profile.id == 15).unwrap();
    profile.max_instances = 2;
    let published = Published::new(gpu, &BTreeSet::new());
    assert_eq!(published.totals["instances-15"], 2);
    for (partition, amounts, _) in published.partitions() {
        assert_eq!(amounts.contains_key("instances-15"), partition.profile_id == 15);
    }
}

#[test]
fn absurd_tables_are_not_partitioned() {
    let publish = |change: &dyn Fn(&mut gpu_dra_model::inventory::MigProfile)| {
        let mut inventory = node("h100-80", 1);
        let Mig::Supported { profiles, .. } = &mut inventory.gpus[0].mig else { panic!() };
        change(&mut profiles[0]);
        let mut names = Names::default();
        names.assign(&inventory);
        let built = build(&inventory, &names, &Policy::default(), &BTreeSet::new());
        assert_eq!(validate_pool(&built.pool), []);
        built.pool.devices().count()
    };
    assert_eq!(publish(&|profile| profile.placements[0].size = 0), 1);
    assert_eq!(publish(&|profile| profile.placements[0].size = u32::MAX), 1);
    assert_eq!(publish(&|profile| profile.placements[0].start = 99), 1);
    assert!(publish(&|profile| profile.placements.clear()) > 1);
    assert!(publish(&|profile| profile.memory_mib = u64::MAX) > 1, "no overflow");
    assert!(publish(&|profile| profile.max_instances = u32::MAX) > 1, "no overflow");
}

#[test]
fn what_collides_with_a_foreign_instance_is_tainted_and_nothing_else() {
    for (model, table) in models() {
        let placements: Vec<_> = Published::new(free_gpu(model), &BTreeSet::new())
            .partitions()
            .into_iter()
            .map(|(partition, ..)| partition)
            .collect();
        for (at, foreign) in placements.iter().enumerate() {
            let in_the_way = |other: &Partition| {
                let other = occupied(*other);
                !accepts(table, &[occupied(*foreign)], other.profile, other.placement)
            };
            // A claim of ours holds one that fits beside it, if there is one.
            let Some(held) = placements.iter().find(|other| !in_the_way(other)) else { continue };
            let mut gpu = free_gpu(model);
            add_instance(&mut gpu, 3, *foreign, &[1]);
            add_instance(&mut gpu, 4, *held, &[1]);
            let own = OwnInstance { gpu: gpu.uuid.clone(), partition: *held };
            let published = Published::new(gpu, &[own].into());
            for (partition, _, device) in published.partitions() {
                let tainted = device.taints.is_some();
                assert_eq!(tainted, in_the_way(&partition), "{model} {at}: {}", device.name);
            }
            let taints = published.whole().taints.as_ref().unwrap();
            assert_eq!(taints[0].key, "gpu.nvidia.com/foreign-instance");
            assert_eq!(taints[0].effect, "NoSchedule");
            assert_eq!(taints[0].value.as_deref(), Some("3"));
            let note = published.built.pool.notes.iter().map(ToString::to_string);
            let note: Vec<_> = note.filter(|note| note.contains("GPU instance 3")).collect();
            assert_eq!(note.len(), 1, "{note:?}");
        }
    }
}

#[test]
fn foreign_instances_count_together() {
    // Neither takes the last decoders alone, both do.
    let mut gpu = free_gpu("rtx-pro-6000");
    add_instance(&mut gpu, 1, partition(14, 0, 3), &[1]);
    add_instance(&mut gpu, 2, partition(14, 3, 3), &[1]);
    let Mig::Supported { profiles, .. } = &mut gpu.mig else { panic!() };
    let profile = profiles.iter_mut().find(|profile| profile.id == 5).unwrap();
    profile.decoders = 3;
    profile.max_instances = 1;
    let own = OwnInstance { gpu: gpu.uuid.clone(), partition: partition(67, 9, 3) };
    let published = Published::new(gpu, &[own].into());
    let upper = partition(5, 6, 6);
    let (_, _, device) = published.partitions().into_iter().find(|(p, ..)| *p == upper).unwrap();
    assert_eq!(device.taints.as_ref().unwrap()[0].value.as_deref(), Some("1"));
}
