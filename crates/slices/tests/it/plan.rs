//! The least writes, right generations, and no harm from a crash between two of them.

use gpu_dra_slices::{DesiredPool, SliceContent, Write, generate_name, index_of, plan_writes};
use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceTaint, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use crate::support::{h100, node_with, owner, pool_of, pool_ref};

/// As much of an API server as a plan needs.
#[derive(Debug, Clone, Default)]
struct Server {
    slices: Vec<ResourceSlice>,
    version: u64,
}

impl Server {
    fn apply(&mut self, write: &Write) {
        self.version += 1;
        let version = Some(self.version.to_string());
        match write {
            Write::Create(slice) => {
                let mut slice = (**slice).clone();
                let base = slice.metadata.generate_name.clone().unwrap();
                slice.metadata.name = Some(format!("{base}{:05}", self.version));
                slice.metadata.uid = Some(format!("uid-{}", self.version));
                slice.metadata.resource_version = version;
                self.store(slice);
            }
            Write::Update(slice) => {
                let mut slice = (**slice).clone();
                let at = self.position(slice.metadata.name.as_deref().unwrap());
                let old = &self.slices[at].metadata;
                assert_eq!(old.resource_version, slice.metadata.resource_version, "no lost race");
                slice.metadata.resource_version = version;
                self.slices.remove(at);
                self.store(slice);
            }
            Write::Delete { name, uid, .. } => {
                let at = self.position(name);
                assert_eq!(self.slices.remove(at).metadata.uid, *uid);
            }
        }
    }

    /// The server fills in `timeAdded`.
    fn store(&mut self, mut slice: ResourceSlice) {
        for device in slice.spec.devices.iter_mut().flatten() {
            for taint in device.taints.iter_mut().flatten() {
                taint.time_added.get_or_insert(Time(Timestamp::UNIX_EPOCH));
            }
        }
        self.slices.push(slice);
    }

    fn position(&self, name: &str) -> usize {
        self.slices.iter().position(|s| s.metadata.name.as_deref() == Some(name)).unwrap()
    }

    fn plan(&self, desired: &DesiredPool) -> Vec<Write> {
        plan_writes(&self.slices, desired, &pool_ref(), &owner())
    }

    fn settle(&mut self, desired: &DesiredPool) -> usize {
        let writes = self.plan(desired);
        writes.iter().for_each(|write| self.apply(write));
        writes.len()
    }

    /// The slices of our pool's highest generation if the scheduler could take them for
    /// complete, by the count in any of them (which one it reads depends on their names).
    fn complete(&self) -> Option<Vec<&ResourceSlice>> {
        let ours = || self.slices.iter().filter(|s| s.spec.pool.name == "node-1");
        let highest = ours().map(|slice| slice.spec.pool.generation).max()?;
        let mut slices: Vec<_> =
            ours().filter(|slice| slice.spec.pool.generation == highest).collect();
        slices.sort_by_key(|slice| slice.metadata.name.clone());
        let count = i64::try_from(slices.len()).unwrap();
        slices.iter().any(|s| s.spec.pool.resource_slice_count == count).then_some(slices)
    }

    fn generations(&self) -> Vec<i64> {
        self.slices.iter().map(|slice| slice.spec.pool.generation).collect()
    }
}

fn kinds(writes: &[Write]) -> String {
    let kind = |write: &Write| match write {
        Write::Create(_) => 'c',
        Write::Update(_) => 'u',
        Write::Delete { .. } => 'd',
    };
    writes.iter().map(kind).collect()
}

fn device(name: &str) -> Device {
    Device { name: name.to_owned(), ..Device::default() }
}

/// A pool of so many slices; each one's content says which it is.
fn pool_of_slices(contents: &[u8]) -> DesiredPool {
    let slices = contents
        .iter()
        .enumerate()
        .map(|(at, content)| SliceContent::Devices(vec![device(&format!("d-{at}-{content}"))]))
        .collect();
    DesiredPool { slices, notes: Vec::new() }
}

#[test]
fn first_publish_then_silence() {
    let pool = pool_of(&node_with([h100(0), h100(1)]));
    let mut server = Server::default();
    assert_eq!(kinds(&server.plan(&pool)), "c");
    server.settle(&pool);
    assert_eq!(server.generations(), [1]);
    assert_eq!(server.plan(&pool), [], "after a restart the slice is adopted as it is");
}

#[test]
fn one_changed_slice_keeps_the_generation() {
    let mut server = Server::default();
    server.settle(&pool_of_slices(&[1, 1]));
    assert_eq!(kinds(&server.plan(&pool_of_slices(&[1, 2]))), "u");
    server.settle(&pool_of_slices(&[1, 2]));
    assert_eq!(server.generations(), [1, 1]);
    assert_eq!(kinds(&server.plan(&pool_of_slices(&[3, 3]))), "uu");
    server.settle(&pool_of_slices(&[3, 3]));
    assert_eq!(server.generations(), [2, 2]);
}

#[test]
fn growing_and_shrinking_raise_the_generation_and_delete_last() {
    let mut server = Server::default();
    server.settle(&pool_of_slices(&[1]));
    assert_eq!(kinds(&server.plan(&pool_of_slices(&[1, 1]))), "uc");
    server.settle(&pool_of_slices(&[1, 1]));
    assert_eq!(server.generations(), [2, 2]);
    assert_eq!(kinds(&server.plan(&pool_of_slices(&[1]))), "ud");
    server.settle(&pool_of_slices(&[1]));
    assert_eq!(server.generations(), [3]);
}

#[test]
fn a_slice_deleted_by_hand_is_one_create() {
    let desired = pool_of_slices(&[1, 2, 3]);
    let mut server = Server::default();
    server.settle(&desired);
    server.slices.remove(1);
    assert_eq!(kinds(&server.plan(&desired)), "c");
    server.settle(&desired);
    assert_eq!(server.generations(), [1, 1, 1]);
    server.slices.clear();
    assert_eq!(kinds(&server.plan(&desired)), "ccc", "the kubelet wiped them all");
}

#[test]
fn another_pool_name_goes_first_since_it_offers_the_same_cards() {
    let mut server = Server::default();
    server.settle(&pool_of_slices(&[1]));
    server.slices[0].spec.pool.name = "old-name".to_owned();
    assert_eq!(kinds(&server.plan(&pool_of_slices(&[1]))), "dc");
}

#[test]
fn the_incumbents_slices_are_taken_over() {
    let desired = pool_of(&node_with([h100(0)]));
    let mut server = Server::default();
    server.settle(&pool_of_slices(&[7]));
    assert_eq!(kinds(&server.plan(&desired)), "u", "its names since 1.36 carry the index");
    server.slices[0].metadata.name = Some("node-1-gpu.nvidia.com-x7k2p".to_owned());
    assert_eq!(kinds(&server.plan(&desired)), "cd", "older ones don't; no gap meanwhile");
    server.settle(&desired);
    assert_eq!(server.generations(), [2]);
}

#[test]
fn slices_of_others_are_not_touched() {
    let mut server = Server::default();
    server.settle(&pool_of_slices(&[1]));
    let mut other = server.slices[0].clone();
    other.spec.driver = "dra.net".to_owned();
    let mut remote = server.slices[0].clone();
    remote.spec.node_name = None;
    remote.spec.all_nodes = Some(true);
    server.slices = vec![other, remote];
    assert_eq!(kinds(&server.plan(&pool_of_slices(&[1]))), "c");
}

#[test]
fn a_new_node_object_becomes_the_owner() {
    let desired = pool_of_slices(&[1]);
    let mut server = Server::default();
    server.settle(&desired);
    for reference in server.slices[0].metadata.owner_references.as_mut().unwrap() {
        reference.uid = "the-old-node".to_owned();
    }
    assert_eq!(kinds(&server.plan(&desired)), "u");
    server.settle(&desired);
    assert_eq!(server.plan(&desired), []);
    let owners = server.slices[0].metadata.owner_references.as_ref().unwrap();
    assert_eq!(owners.len(), 1, "the gone node owns it no more");
}

#[test]
fn taints_keep_their_time_and_are_no_change() {
    let taint = DeviceTaint {
        key: "gpu.nvidia.com/xid".to_owned(),
        value: Some("79".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let mut sick = device("gpu-0");
    sick.taints = Some(vec![taint]);
    let pool = |more: &[Device]| {
        let devices = [std::slice::from_ref(&sick), more].concat();
        DesiredPool::new(devices, Vec::new(), Vec::new())
    };
    let mut server = Server::default();
    server.settle(&pool(&[]));
    assert_eq!(server.plan(&pool(&[])), []);
    let writes = server.plan(&pool(&[device("gpu-1")]));
    let [Write::Update(slice)] = writes.as_slice() else { panic!("{writes:?}") };
    let kept = &slice.spec.devices.as_ref().unwrap()[0].taints.as_ref().unwrap()[0];
    assert_eq!(kept.time_added, Some(Time(Timestamp::UNIX_EPOCH)));
}

#[test]
fn order_of_devices_is_a_change() {
    let pool =
        |names: [&str; 2]| DesiredPool::new(names.map(device).to_vec(), Vec::new(), Vec::new());
    let mut server = Server::default();
    server.settle(&pool(["a", "b"]));
    assert_eq!(kinds(&server.plan(&pool(["b", "a"]))), "u");
}

#[test]
fn split_at_64_devices_and_8_counter_sets() {
    let devices = |n: usize| (0..n).map(|at| device(&format!("d-{at}"))).collect::<Vec<_>>();
    let sets = |n: usize| {
        (0..n)
            .map(|at| CounterSet { name: format!("s-{at}"), ..CounterSet::default() })
            .collect::<Vec<_>>()
    };
    for (n_devices, n_sets, slices) in
        [(0, 0, 1), (1, 0, 1), (64, 0, 1), (65, 0, 2), (200, 8, 5), (200, 9, 6), (0, 1, 2)]
    {
        let pool = DesiredPool::new(devices(n_devices), sets(n_sets), Vec::new());
        assert_eq!(pool.slices.len(), slices, "{n_devices} devices, {n_sets} sets");
        assert_eq!(pool.devices().count(), n_devices);
    }
}

/// A slice as an earlier run, the incumbent or a stranger may have left it.
fn leftover() -> impl Strategy<Value = (usize, u8, i64, i64, bool)> {
    (0_usize..5, 0_u8..3, 1_i64..4, 1_i64..5, any::<bool>())
}

fn server_with(leftovers: &[(usize, u8, i64, i64, bool)]) -> Server {
    let mut server = Server::default();
    for (index, content, generation, count, named_like_ours) in leftovers {
        let fresh = pool_of_slices(&[*content]);
        let writes = plan_writes(&[], &fresh, &pool_ref(), &owner());
        let [Write::Create(slice)] = writes.as_slice() else { panic!("{writes:?}") };
        let mut slice = slice.clone();
        let base = generate_name(*index, &pool_ref().driver, &pool_ref().node);
        let base = if *named_like_ours { base } else { "stranger-".to_owned() };
        slice.metadata.generate_name = Some(base);
        slice.spec.pool.generation = *generation;
        slice.spec.pool.resource_slice_count = *count;
        slice.spec.devices = Some(vec![device(&format!("d-{index}-{content}"))]);
        server.apply(&Write::Create(slice));
    }
    server
}

/// Complete means right, or not touched yet.
fn assert_no_mixture(server: &Server, desired: &DesiredPool, before: &[ResourceSlice]) {
    let Some(slices) = server.complete() else { return };
    let contents: Vec<_> = slices.iter().map(|s| s.spec.devices.clone().unwrap()).collect();
    let wanted: Vec<_> = desired
        .slices
        .iter()
        .map(|content| match content {
            SliceContent::Devices(devices) => devices.clone(),
            SliceContent::Counters(_) => Vec::new(),
        })
        .collect();
    let old = Server { slices: before.to_vec(), version: 0 };
    let untouched = old.complete().as_ref() == Some(&slices);
    assert!(contents == wanted || untouched, "complete but wrong: {slices:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// From whatever was left behind, through any changes of mind, with a crash after any
    /// write: the next plan converges, the one after is empty, and the scheduler never
    /// sees a complete pool that is neither the old nor the new one.
    #[test]
    fn converges_from_anywhere_with_a_crash_anywhere(
        leftovers in prop::collection::vec(leftover(), 0..6),
        wishes in prop::collection::vec(prop::collection::vec(0_u8..3, 1..5), 1..4),
        crash_after in prop::collection::vec(0_usize..6, 4),
    ) {
        let mut server = server_with(&leftovers);
        for (wish, crash_after) in wishes.iter().zip(crash_after) {
            let desired = pool_of_slices(wish);
            let before = server.slices.clone();
            for write in server.plan(&desired).iter().take(crash_after) {
                server.apply(write);
                assert_no_mixture(&server, &desired, &before);
            }
            // The process starts again and wants the same.
            let before = server.slices.clone();
            for write in &server.plan(&desired) {
                server.apply(write);
                assert_no_mixture(&server, &desired, &before);
            }
            prop_assert_eq!(server.plan(&desired), []);
            prop_assert_eq!(server.slices.len(), wish.len());
            let complete = server.complete();
            prop_assert_eq!(complete.map(|slices| slices.len()), Some(wish.len()));
            for (at, slice) in server.complete().unwrap().iter().enumerate() {
                let name = slice.metadata.name.as_deref().unwrap();
                let index = index_of(name, &pool_ref().driver, &pool_ref().node);
                prop_assert_eq!(index, Some(at));
            }
        }
    }

    /// Slices deleted by others come back without a change of those that stayed.
    #[test]
    fn deleted_slices_come_back_alone(
        wish in prop::collection::vec(0_u8..3, 1..6),
        kept in prop::collection::vec(any::<bool>(), 6),
    ) {
        let desired = pool_of_slices(&wish);
        let mut server = Server::default();
        server.settle(&desired);
        let mut kept = kept.into_iter();
        server.slices.retain(|_| kept.next().unwrap_or(true));
        let missing = wish.len() - server.slices.len();
        prop_assert_eq!(kinds(&server.plan(&desired)), "c".repeat(missing));
    }
}
