//! A name never moves to another card.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::{DeviceName, GpuUuid, Inventory, Minor};
use gpu_dra_slices::Names;
use proptest::prelude::*;

use crate::support::{h100, lose, node_with, uuid};

fn name_of(names: &Names, number: u32) -> String {
    names.name(&uuid(number)).unwrap().to_string()
}

/// GPUs by number, each with the minor that the driver gave it in this boot.
fn boot(gpus: &[(u32, u32)]) -> Inventory {
    node_with(gpus.iter().map(|(number, minor)| {
        let mut gpu = h100(*number);
        gpu.minor = Minor(*minor);
        gpu
    }))
}

#[test]
fn first_seen_a_gpu_is_called_by_its_minor() {
    let mut names = Names::default();
    assert!(names.assign(&boot(&[(5, 0), (6, 1), (7, 3)])));
    assert_eq!((name_of(&names, 5), name_of(&names, 7)), ("gpu-0".into(), "gpu-3".into()));
    assert_eq!(names.uuid(&DeviceName::new("gpu-3").unwrap()), Some(&uuid(7)));
    assert!(!names.assign(&boot(&[(5, 0), (6, 1), (7, 3)])), "nothing new, nothing to save");
}

#[test]
fn permuted_minors_after_a_reboot_change_nothing() {
    let mut names = Names::default();
    names.assign(&boot(&[(0, 0), (1, 1), (2, 2)]));
    let before = names.clone();
    assert!(!names.assign(&boot(&[(0, 2), (1, 0), (2, 1)])));
    assert_eq!(names, before);
}

#[test]
fn a_lost_gpu_keeps_its_name_and_its_successor_gets_another() {
    let mut names = Names::default();
    let mut node = boot(&[(0, 0), (1, 1), (2, 2)]);
    names.assign(&node);
    lose(&mut node, 0);
    assert!(!names.assign(&node));
    // The card is replaced: the new one has minor 0 and gets the next free number.
    names.assign(&boot(&[(9, 0), (1, 1), (2, 2)]));
    assert_eq!((name_of(&names, 9), name_of(&names, 0)), ("gpu-3".into(), "gpu-0".into()));
}

#[test]
fn a_free_minor_is_not_taken_from_a_newcomer_that_has_it() {
    let mut names = Names::default();
    names.assign(&boot(&[(0, 0), (1, 1)]));
    names.assign(&boot(&[(10, 0), (1, 1), (11, 2)]));
    assert_eq!((name_of(&names, 11), name_of(&names, 10)), ("gpu-2".into(), "gpu-3".into()));
}

#[test]
fn names_survive_the_file_and_refuse_a_contradicting_one() {
    let mut names = Names::default();
    names.assign(&boot(&[(0, 0), (1, 11)]));
    let json = serde_json::to_string(&names).unwrap();
    assert_eq!(
        json,
        r#"{"gpus":{"GPU-00000000-0000-0000-0000-000000000000":"gpu-0","GPU-00000001-0000-0000-0000-000000000000":"gpu-11"}}"#
    );
    assert_eq!(serde_json::from_str::<Names>(&json).unwrap(), names);
    let newer = json.replacen('{', r#"{"since":"1.0","#, 1);
    assert_eq!(serde_json::from_str::<Names>(&newer).unwrap(), names);
    for bad in [
        json.replace("gpu-11", "gpu-0"),
        json.replace("gpu-11", "gpu-011"),
        json.replace("gpu-11", "card"),
        json.replace("GPU-", "MIG-"),
        "{}".to_owned(),
    ] {
        assert!(serde_json::from_str::<Names>(&bad).is_err(), "{bad}");
    }
}

#[test]
fn memory_is_bounded_and_never_forgets_a_present_card() {
    let mut names = Names::default();
    for generation in 0..100 {
        let cards: Vec<_> = (0..8).map(|slot| (generation * 8 + slot, slot)).collect();
        names.assign(&boot(&cards));
        assert!(names.iter().count() <= 128);
        for (number, _) in cards {
            assert!(names.name(&uuid(number)).is_some());
        }
    }
}

fn snapshot(names: &Names) -> BTreeMap<GpuUuid, DeviceName> {
    names.iter().map(|(uuid, name)| (uuid.clone(), name)).collect()
}

proptest! {
    /// Over any history of boots with any cards, minors and losses: names are unique, a
    /// name once given stays, and the order in which NVML lists the cards says nothing.
    #[test]
    fn stable_unique_and_independent_of_order(
        history in prop::collection::vec(
            (prop::collection::btree_map(0_u32..20, 0_u32..20, 0..8), 0_u32..20),
            1..8,
        )
    ) {
        let mut names = Names::default();
        for (cards, lost) in history {
            let mut cards: Vec<_> = cards.into_iter().collect();
            let mut node = boot(&cards);
            lose(&mut node, lost);
            cards.reverse();
            let mut reversed = boot(&cards);
            lose(&mut reversed, lost);

            let before = snapshot(&names);
            let mut other = names.clone();
            names.assign(&node);
            other.assign(&reversed);
            prop_assert_eq!(&names, &other);
            let after = snapshot(&names);
            for (uuid, name) in &before {
                prop_assert_eq!(after.get(uuid), Some(name));
            }
            let distinct: BTreeSet<_> = after.values().collect();
            prop_assert_eq!(distinct.len(), after.len());
            for gpu in &node.gpus {
                prop_assert!(after.contains_key(&gpu.uuid));
            }
        }
    }
}
