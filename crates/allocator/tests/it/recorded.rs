//! Random small clusters with the verdict of Kubernetes' own allocator on each node, recorded
//! from k8s.io/dynamic-resource-allocation 0.36.3 at default gates: the same verdict, and the
//! same devices, configs and node selector. Pools, generations, counters, shares, taints,
//! constraints, alternatives and `All` all occur; the last hundred are about counters: shares
//! that consume no capacity, pools of two drivers with one name, overdrawn sets.

use gpu_dra_allocator::{Allocated, Allocator, Outcome, PoolProblem, Refusal};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::Value;

const WORLDS: &str = include_str!("../data/worlds.jsonl");

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Without share ids, which are random, and without what is empty.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(comparable).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), comparable(value)));
            let is_empty = |value: &Value| {
                value.is_null()
                    || *value == ""
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty)
            };
            fields.filter(|(name, value)| name != "shareID" && !is_empty(value)).collect()
        }
        other => other.clone(),
    }
}

#[test]
fn verdicts_and_picks_agree() {
    let (mut attempts, mut allocated) = (0, 0);
    for (number, line) in WORLDS.lines().enumerate() {
        let world: Value = serde_json::from_str(line).unwrap();
        let slices: Vec<ResourceSlice> = list(&world["slices"]);
        let classes: Vec<DeviceClass> = list(&world["classes"]);
        let taken: Vec<ResourceClaim> = list(&world["allocated"]);
        let claims: Vec<ResourceClaim> = list(&world["claims"]);
        let nodes: Vec<Node> = list(&world["nodes"]);
        let claims: Vec<&ResourceClaim> = claims.iter().collect();
        let mut allocator = Allocator::new(&slices, &classes, Allocated::from_claims(&taken));
        for (node, want) in nodes.iter().zip(world["verdicts"].as_array().unwrap()) {
            attempts += 1;
            let outcome = allocator.allocate(node, &claims, &mut || "share".to_owned());
            let got = match &outcome {
                Outcome::Allocated(results) => comparable(&serde_json::to_value(results).unwrap()),
                Outcome::Refused(Refusal { error: Some(_), .. }) => "error".into(),
                Outcome::Refused(Refusal { pools, .. })
                    if pools.iter().any(|pool| matches!(pool, PoolProblem::Invalid { .. })) =>
                {
                    "invalid".into()
                }
                Outcome::Refused(_) => "no".into(),
            };
            allocated += usize::from(got.is_array());
            assert_eq!(got, *want, "world {number}, node {:?}: {outcome:?}", node.metadata.name);
        }
    }
    assert!(attempts >= 300 && allocated >= 75, "{attempts} attempts, {allocated} allocated");
}
