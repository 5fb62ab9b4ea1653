//! The slices of each kind of node, as JSON, against files reviewed by hand.
//! `UPDATE_GOLDEN=1 cargo test -p gpu-dra-slices` writes them anew; then read the diff.

use gpu_dra_slices::{Write, plan_writes, validate, validate_pool};

use serde_json::json;

use crate::support::{assert_golden, gb10, h100, l4, lose, node_with, owner, pool_of, pool_ref};

/// The objects of a first publish, checked against the API's limits.
fn first_publish(node: &gpu_dra_model::Inventory) -> String {
    let pool = pool_of(node);
    assert_eq!(validate_pool(&pool), []);
    let slices: Vec<_> = plan_writes(&[], &pool, &pool_ref(), &owner())
        .into_iter()
        .map(|write| match write {
            Write::Create(slice) => {
                assert_eq!(validate(&slice), []);
                *slice
            }
            other => panic!("a first publish only creates, not {other:?}"),
        })
        .collect();
    let notes: Vec<_> = pool.notes.iter().map(ToString::to_string).collect();
    let document = json!({ "notes": notes, "slices": slices });
    format!("{}\n", serde_json::to_string_pretty(&document).unwrap())
}

#[test]
fn two_h100() {
    assert_golden("two-h100.json", &first_publish(&node_with([h100(0), h100(1)])));
}

#[test]
fn one_l4() {
    assert_golden("one-l4.json", &first_publish(&node_with([l4(0)])));
}

#[test]
fn gb10_without_memory_info() {
    assert_golden("gb10.json", &first_publish(&node_with([gb10()])));
}

#[test]
fn lost_gpu_between_two() {
    let mut node = node_with([l4(0), l4(1), l4(2)]);
    lose(&mut node, 1);
    assert_golden("lost-gpu-between-two.json", &first_publish(&node));
}

#[test]
fn no_gpu_at_all() {
    assert_golden("no-gpu.json", &first_publish(&node_with([])));
}
