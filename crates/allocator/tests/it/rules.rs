//! Rules one by one, on clusters of a few devices.

use gpu_dra_allocator::{AllocateError, PoolProblem, Reason, Refusal};
use serde_json::{Value, json};

use crate::world::{Pod, World, results};

/// A slice of driver `d` for `node`, of one pool per node.
pub(crate) fn slice(
    name: &str,
    node: &str,
    generation: i64,
    count: i64,
    devices: &[Value],
) -> String {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {
            "driver": "d", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
        },
    })
    .to_string()
}

pub(crate) fn device(name: &str, attributes: Value) -> Value {
    json!({"name": name, "attributes": attributes})
}

fn plain(count: usize) -> Vec<Value> {
    (0..count).map(|n| device(&format!("dev-{n:02}"), json!({"n": {"int": n}}))).collect()
}

fn node(name: &str) -> String {
    json!({"kind": "Node", "metadata": {"name": name, "labels": {"zone": name}}}).to_string()
}

/// A node `a`, a class `c` for everything, the given slices, and a pod with one claim.
pub(crate) fn world(slices: &[String], devices: Value) -> World {
    pods(slices, &[devices])
}

/// As [`world`], one pod for each of the claims.
pub(crate) fn pods(slices: &[String], claims: &[Value]) -> World {
    let mut world = World::empty()
        .with(&node("a"))
        .with(&json!({"kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}).to_string());
    for slice in slices {
        world = world.with(slice);
    }
    for (index, devices) in claims.iter().enumerate() {
        let name = format!("claim-{index}");
        let claim = json!({
            "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": devices},
        });
        let pod = json!({
            "kind": "Pod", "metadata": {"name": format!("pod-{index}")},
            "spec": {"containers": [], "resourceClaims": [{"name": "x", "resourceClaimName": name}]},
        });
        world = world.with(&claim.to_string()).with(&pod.to_string());
    }
    world
}

pub(crate) fn exactly(name: &str, more: Value) -> Value {
    let mut fields = json!({"deviceClassName": "c"});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"name": name, "exactly": fields})
}

pub(crate) fn requests(requests: &[Value]) -> Value {
    json!({"requests": requests})
}

fn cel(expression: &str) -> Value {
    json!([{"cel": {"expression": expression}}])
}

fn devices_of(mut world: World) -> Vec<String> {
    world.schedule().remove(0).devices().1
}

fn refusal_of(mut world: World) -> Refusal {
    match world.schedule().remove(0) {
        Pod::Pending(mut refusals) => refusals.remove(0).1,
        Pod::Running(..) => panic!("running"),
    }
}

#[test]
fn only_the_newest_generation_counts() {
    let old = slice("s-1", "a", 1, 1, &[device("old", json!({}))]);
    let new = slice("s-2", "a", 2, 1, &[device("new", json!({}))]);
    let one = requests(&[exactly("r", json!({}))]);
    assert_eq!(devices_of(world(&[old, new], one.clone())), ["r=new"]);
    // Of a pool that spans nodes the newer generation so far has nothing for this one: the
    // rest of the old one is on its way out.
    let old = slice("s-1", "a", 1, 2, &[device("old", json!({}))]);
    let elsewhere = slice("s-2", "a", 2, 2, &[]).replace(r#""nodeName":"a""#, r#""nodeName":"b""#);
    let refusal = refusal_of(world(&[old, elsewhere], one));
    assert_eq!(refusal, Refusal::default(), "the pool is on its way out");
}

#[test]
fn an_incomplete_pool_is_skipped_and_stops_all() {
    let half = slice("s", "a", 1, 2, &plain(1));
    let problem = PoolProblem::Incomplete { pool: "d/a".into(), have: 1, want: 2 };
    let refusal =
        refusal_of(world(std::slice::from_ref(&half), requests(&[exactly("r", json!({}))])));
    assert_eq!((refusal.error, refusal.pools), (None, vec![problem.clone()]));
    let all = requests(&[exactly("r", json!({"allocationMode": "All"}))]);
    let refusal = refusal_of(world(&[half], all));
    assert!(
        matches!(refusal.error, Some(AllocateError::AllUnknown { pool, .. }) if pool == problem)
    );
}

#[test]
fn a_contradictory_pool_is_invalid() {
    let twice = slice("s", "a", 1, 1, &[device("x", json!({})), device("x", json!({}))]);
    let refusal = refusal_of(world(&[twice], requests(&[exactly("r", json!({}))])));
    let reason = "duplicate device name x".to_owned();
    assert_eq!(refusal.pools, [PoolProblem::Invalid { pool: "d/a".into(), reason }]);
    let consumer = json!({"name": "x", "consumesCounters": [{"counterSet": "cs", "counters": {"m": {"value": "1"}}}]});
    let refusal = refusal_of(world(
        &[slice("s", "a", 1, 1, &[consumer])],
        requests(&[exactly("r", json!({}))]),
    ));
    assert_eq!(refusal.pools[0].to_string(), "pool d/a is invalid: counter set cs not found");
}

#[test]
fn devices_are_tried_by_slice_name_and_place() {
    let later = slice("s-2", "a", 1, 2, &[device("x", json!({}))]);
    let first = slice("s-1", "a", 1, 2, &[device("z", json!({})), device("y", json!({}))]);
    let three = requests(&[exactly("r", json!({"count": 3}))]);
    assert_eq!(devices_of(world(&[later, first], three)), ["r=z", "r=y", "r=x"]);
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let binding =
        json!({"name": "b", "bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]});
    let slow = slice("s", "a", 1, 1, &[binding]);
    let quick = slice("t", "a", 1, 1, &[device("q", json!({}))])
        .replace(r#""driver":"d""#, r#""driver":"e""#);
    let mut world = world(&[slow, quick], requests(&[exactly("r", json!({"count": 2}))]));
    let pod = world.schedule().remove(0);
    assert_eq!(pod.devices().1, ["r=q", "r=b"]);
    let Pod::Running(_, allocations) = &pod else { panic!() };
    assert_eq!(
        results(&allocations[0])[1].binding_conditions.as_deref(),
        Some(&["ready".to_owned()][..])
    );
}

#[test]
fn the_search_goes_back_where_the_first_fit_is_wrong() {
    let slices = [slice("s", "a", 1, 1, &plain(2))];
    let picky = exactly("picky", json!({"selectors": cel("device.attributes['d'].n == 0")}));
    let claim = requests(&[exactly("any", json!({})), picky]);
    assert_eq!(devices_of(world(&slices, claim)), ["any=dev-01", "picky=dev-00"]);
}

#[test]
fn the_first_alternative_that_works_with_the_rest_wins() {
    let slices = [slice("s", "a", 1, 1, &plain(2))];
    let alternatives = json!({"name": "r", "firstAvailable": [
        {"name": "three", "deviceClassName": "c", "count": 3},
        {"name": "two", "deviceClassName": "c", "count": 2},
        {"name": "one", "deviceClassName": "c"},
    ]});
    assert_eq!(
        devices_of(world(&slices, requests(std::slice::from_ref(&alternatives)))),
        ["r/two=dev-00", "r/two=dev-01"]
    );
    let with_another = requests(&[alternatives, exactly("x", json!({}))]);
    assert_eq!(devices_of(world(&slices, with_another)), ["r/one=dev-00", "x=dev-01"]);
}

#[test]
fn a_claim_holds_32_devices_at_most() {
    let slices = [slice("s", "a", 1, 1, &plain(40))];
    let too_many = requests(&[exactly("r", json!({"count": 33}))]);
    let error = refusal_of(world(&slices, too_many)).error.unwrap();
    assert_eq!(
        error.to_string(),
        "claim default/claim-0: number of requested devices 33 exceeds the claim limit of 32"
    );
    let most = json!({"name": "r", "firstAvailable": [
        {"name": "more", "deviceClassName": "c", "count": 33},
        {"name": "most", "deviceClassName": "c", "count": 32},
    ]});
    assert_eq!(devices_of(world(&slices, requests(&[most]))).len(), 32);
}

#[test]
fn all_means_every_device_or_none() {
    let slices = [slice("s", "a", 1, 1, &plain(3))];
    let all = |selector: &str| {
        requests(&[exactly("r", json!({"allocationMode": "All", "selectors": cel(selector)}))])
    };
    assert_eq!(
        devices_of(world(&slices, all("device.attributes['d'].n > 0"))),
        ["r=dev-01", "r=dev-02"]
    );
    assert_eq!(
        refusal_of(world(&slices, all("false"))).error,
        None,
        "no device is not all devices"
    );
    // One of them is held by another claim.
    let one = requests(&[exactly("r", json!({}))]);
    let mut held = pods(&slices, &[one, all("true")]);
    let outcomes = held.schedule();
    outcomes[1].assert_nothing_fits(1);
    let constrained = json!({
        "requests": [exactly("r", json!({"allocationMode": "All"}))],
        "constraints": [{"requests": [], "matchAttribute": "d/n"}],
    });
    let error = refusal_of(world(&slices, constrained)).error;
    assert!(matches!(error, Some(AllocateError::AllConstrained { .. })), "{error:?}");
}

#[test]
fn constraints_compare_type_and_value() {
    let devices = [
        device("one", json!({"root": {"string": "1"}})),
        device("number", json!({"root": {"int": 1}})),
        device("none", json!({})),
        device("same", json!({"root": {"string": "1"}})),
        device("two", json!({"root": {"string": "2"}})),
    ];
    let slices = [slice("s", "a", 1, 1, &devices)];
    let with = |kind: &str, names: Value| {
        json!({
            "requests": [exactly("p", json!({})), exactly("q", json!({}))],
            "constraints": [{"requests": names, kind: "d/root"}],
        })
    };
    for (kind, names, want) in [
        ("matchAttribute", json!([]), ["p=one", "q=same"]),
        ("matchAttribute", json!(["p"]), ["p=one", "q=number"]),
        ("distinctAttribute", json!(["p", "q"]), ["p=one", "q=number"]),
    ] {
        assert_eq!(devices_of(world(&slices, with(kind, names))), want, "{kind}");
    }
}

#[test]
fn admin_access_ignores_holders_but_not_its_own_claim() {
    let slices = [slice("s", "a", 1, 1, &plain(1))];
    let owner = requests(&[exactly("r", json!({}))]);
    let observer = requests(&[exactly("r", json!({"adminAccess": true}))]);
    let twice = requests(&[
        exactly("r", json!({"adminAccess": true})),
        exactly("q", json!({"adminAccess": true})),
    ]);
    let mut world = pods(&slices, &[owner.clone(), observer.clone(), observer, twice, owner]);
    let outcomes = world.schedule();
    for outcome in &outcomes[..3] {
        assert_eq!(outcome.devices().1, ["r=dev-00"]);
    }
    outcomes[3].assert_nothing_fits(1);
    outcomes[4].assert_nothing_fits(1);
    let Pod::Pending(refusals) = &outcomes[4] else { panic!() };
    let holder = Reason::InUse { claim: "default/claim-0".into() };
    assert_eq!(refusals[0].1.rejected[0].reason, holder);
}

#[test]
fn counters_bound_partitions_that_overlap() {
    let partition = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]});
    let counters = json!({
        "kind": "ResourceSlice", "metadata": {"name": "counters"},
        "spec": {
            "driver": "d", "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2},
            "sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}],
        },
    })
    .to_string();
    let devices =
        [partition("whole", "40Gi"), partition("half-0", "20Gi"), partition("half-1", "20Gi")];
    let slices = [counters, slice("s", "a", 1, 2, &devices)];
    let one = requests(&[exactly("r", json!({}))]);
    let two = requests(&[exactly("r", json!({"count": 2}))]);
    let mut world = pods(&slices, &[two, one]);
    let outcomes = world.schedule();
    assert_eq!(outcomes[0].devices().1, ["r=half-0", "r=half-1"], "the whole would leave nothing");
    outcomes[1].assert_nothing_fits(1);
}

#[test]
fn a_claim_of_a_share_and_one_of_the_whole_never_meet() {
    let shared = json!({
        "name": "gpu", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}}},
    });
    let slices = [slice("s", "a", 1, 1, &[shared])];
    let share = requests(&[exactly("r", json!({"capacity": {"requests": {"memory": "10500Mi"}}}))]);
    let whole = requests(&[exactly("r", json!({}))]);
    let outcomes = pods(&slices, &[share.clone(), whole.clone()]).schedule();
    let Pod::Running(_, allocations) = &outcomes[0] else { panic!() };
    let consumed = results(&allocations[0])[0].consumed_capacity.clone().unwrap();
    assert_eq!(consumed["memory"].0, "11Gi", "rounded up by the step");
    outcomes[1].assert_nothing_fits(1);
    let outcomes = pods(&slices, &[whole, share]).schedule();
    assert_eq!(outcomes[0].devices().1, ["r=gpu"]);
    outcomes[1].assert_nothing_fits(1);
}

#[test]
fn configs_of_classes_come_first_and_name_their_requests() {
    let opaque = |value: &str| json!({"opaque": {"driver": "d", "parameters": {"from": value}}});
    let class = json!({"kind": "DeviceClass", "metadata": {"name": "k"}, "spec": {"config": [opaque("class")]}});
    let mut for_one = opaque("claim");
    for_one["requests"] = json!(["q/b"]);
    let mut for_other = opaque("not chosen");
    for_other["requests"] = json!(["q/a"]);
    let claim = json!({
        "requests": [
            {"name": "p", "exactly": {"deviceClassName": "k"}},
            {"name": "q", "firstAvailable": [
                {"name": "a", "deviceClassName": "c", "count": 9},
                {"name": "b", "deviceClassName": "k"},
            ]},
        ],
        "config": [for_one, for_other, opaque("all")],
    });
    let mut world = world(&[slice("s", "a", 1, 1, &plain(2))], claim).with(&class.to_string());
    let Pod::Running(_, allocations) = world.schedule().remove(0) else { panic!() };
    let config = allocations[0].devices.as_ref().unwrap().config.as_ref().unwrap();
    let shown: Vec<String> = config
        .iter()
        .map(|c| {
            let from = &c.opaque.as_ref().unwrap().parameters.0["from"];
            format!("{} {from} {:?}", c.source, c.requests.clone().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#"FromClass "class" ["p", "q/b"]"#,
            r#"FromClaim "claim" ["q/b"]"#,
            r#"FromClaim "all" []"#,
        ]
    );
}

#[test]
fn the_node_selector_says_where_a_claim_can_be_used() {
    let local = slice("s", "a", 1, 1, &plain(1));
    let one = requests(&[exactly("r", json!({}))]);
    let selector_of = |slice: String| {
        let mut world = world(&[slice], one.clone());
        let Pod::Running(_, mut allocations) = world.schedule().remove(0) else { panic!() };
        serde_json::to_value(allocations.remove(0).node_selector).unwrap()
    };
    let by_name = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]});
    assert_eq!(selector_of(local.clone()), by_name);
    let everywhere = local.replace(r#""nodeName":"a""#, r#""allNodes":true"#);
    assert_eq!(selector_of(everywhere), Value::Null);
    let zone = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]});
    let zoned = local.replace(r#""nodeName":"a""#, &format!(r#""nodeSelector":{zone}"#));
    assert_eq!(selector_of(zoned), zone);
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let slices = [slice("s", "a", 1, 1, &plain(1))];
    for (claim, want) in [
        (
            requests(&[json!({"name": "r", "exactly": {"deviceClassName": "nope"}})]),
            "claim default/claim-0, request r: device class nope does not exist",
        ),
        (
            requests(&[exactly("r", json!({"allocationMode": "Some"}))]),
            "claim default/claim-0: request r: allocationMode Some is not supported",
        ),
        (
            requests(&[exactly(
                "r",
                json!({"derivedAttributes": [{"name": "d/x", "expression": "1"}]}),
            )]),
            "claim default/claim-0: request r: derivedAttributes is not supported",
        ),
        (
            requests(&[exactly("r", json!({"selectors": [{}]}))]),
            "claim default/claim-0: request r: selector #0 without cel is not supported",
        ),
        (
            json!({"requests": [exactly("r", json!({}))], "constraints": [{"requests": []}]}),
            "claim default/claim-0: constraint #0 without attribute is not supported",
        ),
    ] {
        let refusal = refusal_of(world(&slices, claim));
        assert_eq!(refusal.error.unwrap().to_string(), want);
    }
    let groups = json!({"name": "x", "consumesCounters": [{"counterSet": "cs", "counters": {}, "compatibilityGroups": ["g"]}]});
    let refusal = refusal_of(world(
        &[slice("s", "a", 1, 1, &[groups])],
        requests(&[exactly("r", json!({}))]),
    ));
    assert!(refusal.pools[0].to_string().contains("compatibilityGroups are not supported"));
}

/// Sixteen of 24 devices without a common value: more combinations than anyone can try.
#[test]
fn a_hopeless_search_is_given_up() {
    let devices: Vec<Value> =
        (0..24).map(|n| device(&format!("dev-{n:02}"), json!({"half": {"int": n % 2}}))).collect();
    let claim = json!({
        "requests": [exactly("r", json!({"count": 16}))],
        "constraints": [{"requests": [], "matchAttribute": "d/half"}],
    });
    let refusal = refusal_of(world(&[slice("s", "a", 1, 1, &devices)], claim));
    assert!(refusal.error.is_none_or(|error| matches!(error, AllocateError::TooLong { .. })));
}
