//! The slices of nodes with MIG, one device a line, against files reviewed by hand; and how
//! many and how large they are for every model.

use std::fmt::Write as _;

use gpu_dra_model::Inventory;
use gpu_dra_slices::{Write, plan_writes, validate, validate_pool};
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::json;

use crate::simulated::{add_instance, gpu, models, node, partition, with_mig_on};
use crate::support::{assert_golden, l4, node_with, owner, pool_of, pool_ref};

fn slices(node: &Inventory) -> Vec<ResourceSlice> {
    let pool = pool_of(node);
    assert_eq!(validate_pool(&pool), []);
    plan_writes(&[], &pool, &pool_ref(), &owner())
        .into_iter()
        .map(|write| match write {
            Write::Create(slice) => {
                assert_eq!(validate(&slice), []);
                *slice
            }
            other => panic!("a first publish only creates, not {other:?}"),
        })
        .collect()
}

fn lines(node: &Inventory) -> String {
    let mut text = String::new();
    for note in &pool_of(node).notes {
        writeln!(text, "{}", json!({ "note": note.to_string() })).unwrap();
    }
    for (at, slice) in slices(node).into_iter().enumerate() {
        let devices = slice.spec.devices.unwrap_or_default();
        let sets = slice.spec.shared_counters.unwrap_or_default();
        let head = json!({ "slice": at, "devices": devices.len(), "counterSets": sets.len() });
        writeln!(text, "{head}").unwrap();
        for set in sets {
            writeln!(text, "{}", json!(set)).unwrap();
        }
        for device in devices {
            writeln!(text, "{}", json!(device)).unwrap();
        }
    }
    text
}

#[test]
fn dynamic_h100() {
    assert_golden("mig-h100.jsonl", &lines(&node("h100-80", 1)));
}

#[test]
fn dynamic_a30_with_mode_on() {
    assert_golden("mig-a30.jsonl", &lines(&node_with([with_mig_on(gpu("a30", 0))])));
}

#[test]
fn dynamic_rtx_pro_6000() {
    assert_golden("mig-rtx-pro-6000.jsonl", &lines(&node("rtx-pro-6000", 1)));
}

#[test]
fn static_a100() {
    let mut a100 = with_mig_on(gpu("a100-80", 0));
    add_instance(&mut a100, 1, partition(9, 4, 4), &[3]);
    add_instance(&mut a100, 3, partition(14, 0, 2), &[1, 1]);
    add_instance(&mut a100, 9, partition(19, 2, 1), &[]);
    assert_golden("mig-a100-static.jsonl", &lines(&node_with([a100])));
}

#[test]
fn four_a100_and_two_l4() {
    let mut gpus: Vec<_> = (0..4).map(|number| gpu("a100-40", number)).collect();
    gpus[1] = with_mig_on(gpus[1].clone());
    gpus[3] = with_mig_on(gpus[3].clone());
    gpus.extend([l4(4), l4(5)]);
    assert_golden("mig-mixed.jsonl", &lines(&node_with(gpus)));
}

#[test]
fn eight_and_sixteen_of_every_model() {
    let mut table =
        String::from("| model | GPUs | devices | slices | bytes |\n|---|---|---|---|---|\n");
    for (model, _) in models() {
        for count in [8, 16] {
            let mut inventory = node(model, count);
            inventory.gpus = inventory.gpus.into_iter().map(with_mig_on).collect();
            let slices = slices(&inventory);
            let bytes: usize = slices.iter().map(|s| serde_json::to_vec(s).unwrap().len()).sum();
            let devices: usize =
                slices.iter().map(|s| s.spec.devices.as_ref().map_or(0, Vec::len)).sum();
            let slices = slices.len();
            writeln!(table, "| {model} | {count} | {devices} | {slices} | {bytes} |").unwrap();
        }
    }
    assert_golden("mig-sizes.md", &table);
}
