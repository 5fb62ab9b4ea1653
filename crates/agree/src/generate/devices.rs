//! Pools of random devices, as slices: where they are, what they have, what they take of
//! counters, and what is wrong with the pool.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{Driver, Names, percent, pick};

/// A pool as it is published.
pub(super) struct Pool {
    pub(super) driver: String,
    pub(super) name: String,
    pub(super) slices: Vec<Value>,
    /// Name, and whether several claims may have a part.
    pub(super) devices: Vec<(String, bool)>,
    has_counters: bool,
    is_odd: bool,
}

/// Where a pool's devices are.
enum Place {
    Node(usize),
    /// Both nodes, or those of a zone.
    Nodes(Option<&'static str>),
    /// Device by device.
    EachDevice,
    AllNodes,
}

/// What is wrong with a pool, or odd.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Oddity {
    None,
    /// A slice is missing.
    Incomplete,
    /// A slice of an older generation is still there.
    Older,
    /// A newer generation has begun, on the second node.
    Newer,
    /// Two devices have one name.
    Duplicate,
    /// A device takes of a counter that doesn't exist.
    NoCounter,
}

impl Pool {
    /// The devices of one of its slices.
    fn fill(
        &mut self,
        rng: &mut Rng,
        names: &Names,
        (driver, place, odd): (Driver, &Place, Oddity),
        part: usize,
    ) -> Vec<Value> {
        let mut devices = Vec::new();
        for number in 0..rng.usize(if part == 0 { 2..5 } else { 0..3 }) {
            let shareable = percent(rng, 30);
            let name = match odd {
                Oddity::Duplicate => format!("dev-{number}"),
                _ => format!("dev-{part}-{number}"),
            };
            let mut made = device(rng, &name, driver, shareable);
            if self.has_counters && percent(rng, 70) {
                let consumed = consumption(rng, odd == Oddity::NoCounter);
                made.insert("consumesCounters".to_owned(), consumed);
            }
            if matches!(place, Place::EachDevice) {
                let (field, value) = place_of_device(rng, names);
                made.insert(field.to_owned(), value);
            }
            devices.push(Value::Object(made));
            self.devices.push((name, shareable));
        }
        devices
    }

    /// Whether it is broken, or may be, where all nodes see it.
    pub(super) fn disturbs(&self) -> bool {
        self.has_counters && self.is_odd
    }
}

pub(super) fn pools(rng: &mut Rng, names: &Names, nodes: usize) -> Vec<Pool> {
    let mut pools = Vec::new();
    for node in 0..nodes {
        if percent(rng, 90) {
            pools.push(pool(rng, names, Driver::Gpu, Place::Node(node), pools.len()));
        }
    }
    if percent(rng, 30) {
        pools.push(pool(rng, names, Driver::Nic, Place::Node(0), pools.len()));
    }
    if percent(rng, 40) {
        let place = match rng.u32(0..4) {
            0 => Place::Nodes(None),
            1 => Place::Nodes(Some("b")),
            2 => Place::EachDevice,
            _ => Place::AllNodes,
        };
        let driver = if percent(rng, 70) { Driver::Gpu } else { Driver::Nic };
        pools.push(pool(rng, names, driver, place, pools.len()));
    }
    pools
}

fn pool(rng: &mut Rng, names: &Names, driver: Driver, place: Place, index: usize) -> Pool {
    // In every tenth world pools of two drivers have one name: accounts of counters go by it.
    let nics = driver == Driver::Nic && matches!(place, Place::Node(_));
    let name = match index {
        index if names.case.is_multiple_of(10) && (index == 0 || nics) => {
            format!("pool-{}", names.case)
        }
        index => format!("pool-{}-{index}", names.case),
    };
    let has_counters = percent(rng, 35);
    let odd = oddity(rng, has_counters, &place);
    let generation = rng.i64(1..4);
    let mut pool = Pool {
        driver: names.driver(driver),
        name,
        slices: Vec::new(),
        devices: Vec::new(),
        has_counters,
        is_odd: !matches!(odd, Oddity::None | Oddity::Older),
    };
    let parts = if percent(rng, 30) { 2 } else { 1 };
    let slices: Vec<Vec<Value>> =
        (0..parts).map(|part| pool.fill(rng, names, (driver, &place, odd), part)).collect();
    let mut count = slices.len() + usize::from(has_counters);
    if odd == Oddity::Incomplete {
        count += 1;
    }
    let mut publish =
        |part: &str, place: &Place, generation: i64, (field, value): (&str, Value)| {
            let mut spec = Map::new();
            let (where_field, where_value) = place_of_slice(place, names);
            spec.insert(where_field.to_owned(), where_value);
            spec.insert("driver".to_owned(), pool.driver.clone().into());
            let of_pool =
                json!({"name": pool.name, "generation": generation, "resourceSliceCount": count});
            spec.insert("pool".to_owned(), of_pool);
            spec.insert(field.to_owned(), value);
            let name = format!("agree-{}-{index}-{part}", names.case);
            pool.slices.push(json!({"metadata": {"name": name}, "spec": spec}));
        };
    for (part, devices) in slices.into_iter().enumerate() {
        publish(&format!("devices-{part}"), &place, generation, ("devices", devices.into()));
    }
    // What has no devices to choose nodes by is for all nodes that see the pool.
    let whole = if matches!(place, Place::EachDevice) { Place::Nodes(None) } else { place };
    if has_counters {
        publish("counters", &whole, generation, ("sharedCounters", counters(rng)));
    }
    match odd {
        Oddity::Older => {
            let old = Value::Object(device(rng, "old", driver, false));
            publish("older", &whole, generation - 1, ("devices", json!([old])));
        }
        Oddity::Newer => {
            let new = Value::Object(device(rng, "new", driver, false));
            publish("newer", &Place::Node(1), generation + 1, ("devices", json!([new])));
        }
        _ => {}
    }
    pool
}

/// A broken pool on all nodes would leave other worlds nothing to say.
fn oddity(rng: &mut Rng, has_counters: bool, place: &Place) -> Oddity {
    if matches!(place, Place::AllNodes) || !percent(rng, 20) {
        return Oddity::None;
    }
    match rng.u32(0..6) {
        0 => Oddity::Incomplete,
        1 | 2 => Oddity::Older,
        3 => Oddity::Newer,
        4 => Oddity::Duplicate,
        _ if has_counters => Oddity::NoCounter,
        _ => Oddity::None,
    }
}

fn place_of_slice(place: &Place, names: &Names) -> (&'static str, Value) {
    match place {
        Place::Node(node) => ("nodeName", names.node(*node).into()),
        Place::Nodes(zone) => ("nodeSelector", node_selector(names, *zone)),
        Place::EachDevice => ("perDeviceNodeSelection", true.into()),
        Place::AllNodes => ("allNodes", true.into()),
    }
}

fn place_of_device(rng: &mut Rng, names: &Names) -> (&'static str, Value) {
    match rng.u32(0..3) {
        0 => ("nodeName", names.node(0).into()),
        1 => ("nodeName", names.node(1).into()),
        _ => ("nodeSelector", node_selector(names, None)),
    }
}

fn node_selector(names: &Names, zone: Option<&str>) -> Value {
    let case = names.case.to_string();
    let mut wanted = vec![json!({"key": "agree.example/case", "operator": "In", "values": [case]})];
    if let Some(zone) = zone {
        wanted.push(json!({"key": "zone", "operator": "NotIn", "values": [zone]}));
    }
    json!({"nodeSelectorTerms": [{"matchExpressions": wanted}]})
}

fn device(rng: &mut Rng, name: &str, driver: Driver, shareable: bool) -> Map<String, Value> {
    let mut attributes = Map::new();
    let mut add = |chance: u32, name: &str, kind: &str, values: &[Value]| {
        let value = pick(rng, values);
        if percent(rng, chance) {
            attributes.insert(name.to_owned(), json!({ kind: value }));
        }
    };
    add(
        95,
        "type",
        "string",
        &match driver {
            Driver::Gpu => ["gpu".into(), "mig".into()],
            Driver::Nic => ["nic".into(), "nic".into()],
        },
    );
    add(95, "index", "int", &[0.into(), 1.into(), 2.into(), 3.into()]);
    add(80, "root", "string", &["r0".into(), "r1".into()]);
    add(90, "cc", "version", &["8.0.0".into(), "9.0.0".into()]);
    add(30, "healthy", "bool", &[true.into(), false.into()]);
    add(80, "resource.kubernetes.io/numaNode", "int", &[0.into(), 1.into()]);
    let mut device = Map::new();
    device.insert("name".to_owned(), name.into());
    device.insert("attributes".to_owned(), attributes.into());
    if percent(rng, 90) {
        let mut memory = json!({"value": pick(rng, &["10Gi", "20Gi", "40Gi"])});
        if shareable && percent(rng, 70) {
            memory["requestPolicy"] = policy(rng);
        }
        let mut capacity = json!({ "memory": memory });
        if percent(rng, 30) {
            capacity["cores"] = json!({"value": pick(rng, &["4", "8"])});
        }
        device.insert("capacity".to_owned(), capacity);
    }
    if shareable {
        device.insert("allowMultipleAllocations".to_owned(), true.into());
    }
    if percent(rng, 15) {
        device.insert("taints".to_owned(), json!([taint(rng)]));
    }
    if percent(rng, 8) {
        device.insert("bindingConditions".to_owned(), json!(["agree.example/ready"]));
        device.insert("bindingFailureConditions".to_owned(), json!(["agree.example/failed"]));
    }
    device
}

/// For a capacity of 10Gi or more.
fn policy(rng: &mut Rng) -> Value {
    match rng.u32(0..5) {
        0 => json!({"default": "2Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "2Gi"}}),
        1 => json!({"default": "10Gi", "validRange": {"min": "1Gi", "max": "10Gi", "step": "1Gi"}}),
        2 => json!({"default": "4Gi", "validRange": {"min": "1Gi"}}),
        3 => json!({"default": "4Gi", "validRange": {"min": "1Gi", "max": "9Gi"}}),
        _ => json!({"default": "4Gi", "validValues": ["2Gi", "4Gi", "8Gi"]}),
    }
}

fn taint(rng: &mut Rng) -> Value {
    let effect = pick(rng, &["NoSchedule", "NoSchedule", "NoExecute", "None"]);
    let mut taint =
        json!({"key": pick(rng, &["agree.example/a", "agree.example/b"]), "effect": effect});
    if percent(rng, 50) {
        taint["value"] = pick(rng, &["x", "y"]).into();
    }
    taint
}

/// Two sets, of which both may be taken.
fn counters(rng: &mut Rng) -> Value {
    let mut set = |name: &str| {
        let memory = pick(rng, &["20Gi", "40Gi"]);
        let engines = pick(rng, &["2", "4", "6"]);
        json!({"name": name, "counters": {"memory": {"value": memory}, "engines": {"value": engines}}})
    };
    json!([set("set-0"), set("set-1")])
}

fn consumption(rng: &mut Rng, unknown: bool) -> Value {
    let mut taken = |set: &str| {
        let memory = pick(rng, &["5Gi", "10Gi", "20Gi"]);
        let mut counters = json!({"memory": {"value": memory}});
        if percent(rng, 50) {
            counters["engines"] = json!({"value": pick(rng, &["1", "2"])});
        }
        if unknown {
            counters["nothing"] = json!({"value": "1"});
        }
        json!({"counterSet": set, "counters": counters})
    };
    let first = taken("set-0");
    let second = taken("set-1");
    match rng.u32(0..4) {
        0 => json!([first, second]),
        1 => json!([second]),
        _ => json!([first]),
    }
}
