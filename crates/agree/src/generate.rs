//! Random small worlds: nodes, pools, what is allocated, and claims. All of a world's names are
//! its own, so that many worlds fit in one cluster, and what is generated is valid: the API
//! server takes it as it is. No verdict is foreseen here.

mod claims;
mod devices;

use anyhow::Result;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use crate::{cluster, object};
use devices::Pool;

/// The seed unless another is chosen.
pub const SEED: u64 = 6;
/// How many worlds unless another number is chosen.
pub const CASES: usize = 200;

/// One case.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Where the claims are tried, one by one.
    pub nodes: Vec<Node>,
    /// What is published.
    pub slices: Vec<ResourceSlice>,
    /// The classes.
    pub classes: Vec<DeviceClass>,
    /// Claims that are allocated.
    pub holders: Vec<ResourceClaim>,
    /// The claims of the pod.
    pub claims: Vec<ResourceClaim>,
    /// Whether a request for all devices fails by this world on every node of the cluster: a
    /// pool with counters is known everywhere, also where it has no device.
    pub disturbs: bool,
}

impl World {
    /// For a report.
    #[must_use]
    pub fn to_json(&self) -> String {
        let shown = json!({
            "nodes": self.nodes, "slices": self.slices, "classes": self.classes,
            "allocated": self.holders, "claims": self.claims,
        });
        shown.to_string()
    }
}

/// As many worlds; the first of them are the same for any number.
///
/// # Errors
/// A fault of the generator.
pub fn worlds(seed: u64, cases: usize) -> Result<Vec<World>> {
    let mut seeds = Rng::with_seed(seed);
    (0..cases).map(|case| world(seeds.fork(), case)).collect()
}

fn world(mut rng: Rng, case: usize) -> Result<World> {
    let names = Names { case };
    let mut world = World { classes: names.classes()?, ..World::default() };
    let nodes = if percent(&mut rng, 40) { 2 } else { 1 };
    for node in 0..nodes {
        let zone = if node == 0 { "a" } else { "b" };
        let labels = json!({"agree.example/case": case.to_string(), "zone": zone});
        world.nodes.push(cluster::node(&names.node(node), labels)?);
    }
    let pools: Vec<Pool> = devices::pools(&mut rng, &names, nodes);
    for pool in &pools {
        world.disturbs |= pool.disturbs();
        for slice in &pool.slices {
            world.slices.push(object(slice.clone())?);
        }
    }
    for holder in claims::holders(&mut rng, &names, &pools) {
        world.holders.push(object(holder)?);
    }
    for claim in claims::claims(&mut rng, &names) {
        world.claims.push(object(claim)?);
    }
    Ok(world)
}

/// The names of one world.
struct Names {
    case: usize,
}

impl Names {
    fn node(&self, node: usize) -> String {
        format!("agree-{}-node-{node}", self.case)
    }

    fn claim(&self, kind: &str, index: usize) -> String {
        format!("agree-{}-{kind}-{index}", self.case)
    }

    /// One driver of GPUs, one of network cards.
    fn driver(&self, driver: Driver) -> String {
        format!("{}-{}.agree.example", driver.word(), self.case)
    }

    fn class(&self, class: &str) -> String {
        format!("agree-{}-{class}", self.case)
    }

    /// Guarded by the driver, all but one: the selector of `rash` fails on a device of the
    /// other driver.
    fn classes(&self) -> Result<Vec<DeviceClass>> {
        let gpu = self.driver(Driver::Gpu);
        let mig = format!("device.attributes['{gpu}'].?type.orValue('') == 'mig'");
        let selectors = [
            ("gpu", vec![format!("device.driver == '{gpu}'")]),
            ("mig", vec![format!("device.driver == '{gpu}' && {mig}")]),
            ("any", vec![format!("device.driver.endsWith('-{}.agree.example')", self.case)]),
            (
                "rash",
                vec![
                    format!("device.driver.endsWith('-{}.agree.example')", self.case),
                    format!("device.attributes['{gpu}'].index < 3"),
                ],
            ),
        ];
        let class = |(name, selectors): (&str, Vec<String>)| {
            let selectors: Vec<Value> =
                selectors.iter().map(|text| json!({"cel": {"expression": text}})).collect();
            object(
                json!({"metadata": {"name": self.class(name)}, "spec": {"selectors": selectors}}),
            )
        };
        selectors.into_iter().map(class).collect()
    }
}

/// Whose devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Gpu,
    Nic,
}

impl Driver {
    fn word(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Nic => "nic",
        }
    }
}

fn percent(rng: &mut Rng, chance: u32) -> bool {
    rng.u32(0..100) < chance
}

/// One of some values; of none the default.
fn pick<T: Clone + Default>(rng: &mut Rng, values: &[T]) -> T {
    rng.choice(values).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gpu_dra_allocator::Rules;

    use super::*;
    use crate::Verdict;
    use crate::judge::{View, is_unjudged};

    /// Our own verdicts on the default worlds: all are judged, and each verdict is common.
    #[test]
    fn the_default_worlds_are_judged() {
        for rules in [Rules::UpTo136, Rules::From137] {
            the_default_worlds_are_judged_by(rules);
        }
    }

    fn the_default_worlds_are_judged_by(rules: Rules) {
        let mut seen = [0; 3];
        for world in worlds(SEED, CASES).unwrap() {
            let view = View {
                rules,
                slices: world.slices.clone(),
                classes: world.classes.clone(),
                claims: world.holders.clone(),
            };
            let claims: Vec<_> = world.claims.iter().collect();
            for node in &world.nodes {
                let (verdict, outcome) = view.judge(node, &claims);
                assert!(!is_unjudged(&outcome), "{outcome:?}: {}", world.to_json());
                seen[match verdict {
                    Verdict::Can => 0,
                    Verdict::Cannot => 1,
                    Verdict::Error => 2,
                }] += 1;
            }
        }
        let [can, cannot, error] = seen;
        assert!(can > 80 && cannot > 80 && error > 20, "{seen:?}");
    }

    #[test]
    fn all_that_the_allocator_knows_occurs_often() {
        let worlds = worlds(SEED, CASES).unwrap();
        for field in [
            "allNodes",
            "nodeSelector",
            "perDeviceNodeSelection",
            "sharedCounters",
            "consumesCounters",
            "allowMultipleAllocations",
            "validRange",
            "validValues",
            "taints",
            "NoExecute",
            "tolerations",
            "\"All\"",
            "firstAvailable",
            "matchAttribute",
            "distinctAttribute",
            "\"adminAccess\":true",
            "shareID",
            "consumedCapacity",
            "bindingConditions",
            "\"requests\":{\"memory\"",
            "version",
        ] {
            let with = worlds.iter().filter(|world| world.to_json().contains(field)).count();
            assert!(with >= 10, "{field} in {with} worlds");
        }
        let disturbing = worlds.iter().filter(|world| world.disturbs).count();
        assert!((5..40).contains(&disturbing), "{disturbing}");
        let names = |world: &World| {
            world.slices.iter().filter_map(|s| s.metadata.name.clone()).collect::<Vec<_>>()
        };
        let all: Vec<String> = worlds.iter().flat_map(names).collect();
        assert_eq!(
            all.iter().collect::<BTreeSet<_>>().len(),
            all.len(),
            "no two slices of one name"
        );
    }

    #[test]
    fn a_seed_makes_the_same_worlds() {
        let json = |seed| worlds(seed, 5).unwrap().iter().map(World::to_json).collect::<Vec<_>>();
        assert_eq!(json(1), json(1));
        assert_ne!(json(1), json(2));
    }
}
