//! Names of MIG devices: labels, distinct, and in the incumbent's form.

use std::collections::BTreeSet;

use gpu_dra_slices::{Names, Policy, build};

use crate::simulated::{add_instance, models, node, partition, with_mig_on};
use crate::support::node_with;

#[test]
fn names_of_all_models_are_distinct_and_say_profile_and_place() {
    for (model, table) in models() {
        let mut inventory = node(model, 2);
        inventory.gpus = inventory.gpus.into_iter().map(with_mig_on).collect();
        let mut names = Names::default();
        names.assign(&inventory);
        let built = build(&inventory, &names, &Policy::default(), &BTreeSet::new());
        assert_eq!(built.devices.len(), built.pool.devices().count(), "{model}");
        let mut expected = BTreeSet::new();
        for (id, profile) in &table.profiles {
            let label = profile.name.to_lowercase().replace('.', "").replace('+', "-");
            for start in &profile.starts {
                expected.insert(format!("gpu-1-mig-{label}-{id}-{start}"));
            }
        }
        let of_second = |name: &&str| name.starts_with("gpu-1-mig-");
        let found: BTreeSet<_> = built.devices.keys().map(|name| name.as_str()).collect();
        let found: BTreeSet<_> = found.into_iter().filter(of_second).map(str::to_owned).collect();
        assert_eq!(found, expected, "{model}");
    }
}

#[test]
fn parts_of_an_instance_have_names_of_their_own() {
    let mut gpu = with_mig_on(crate::simulated::gpu("a100-40", 0));
    add_instance(&mut gpu, 2, partition(9, 0, 4), &[1, 1, 1]);
    add_instance(&mut gpu, 1, partition(9, 4, 4), &[3]);
    let inventory = node_with([gpu]);
    let mut names = Names::default();
    names.assign(&inventory);
    let built = build(&inventory, &names, &Policy::default(), &BTreeSet::new());
    let published: Vec<_> = built.pool.devices().map(|device| device.name.as_str()).collect();
    assert_eq!(
        published,
        [
            "gpu-0-mig-1c3g20gb-9-0-0",
            "gpu-0-mig-1c3g20gb-9-0-1",
            "gpu-0-mig-1c3g20gb-9-0-2",
            "gpu-0-mig-3g20gb-9-4",
        ]
    );
}
