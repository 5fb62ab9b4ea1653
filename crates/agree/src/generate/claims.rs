//! Random claims: those that hold devices already, and those that a pod wants.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::devices::Pool;
use super::{Driver, Names, percent, pick};

/// More devices than this, and trying all combinations takes the scheduler longer than it has.
const MOST_DEVICES: i64 = 5;

/// The class that fails is rare enough.
const CLASSES: [&str; 14] = [
    "gpu", "gpu", "gpu", "gpu", "gpu", "gpu", "mig", "mig", "any", "any", "any", "any", "any",
    "rash",
];

/// Allocated claims, as their status says.
pub(super) fn holders(rng: &mut Rng, names: &Names, pools: &[Pool]) -> Vec<Value> {
    let mut holders = Vec::new();
    for pool in pools {
        for (device, shareable) in &pool.devices {
            let claims = match percent(rng, 20) {
                true if *shareable => rng.usize(1..3),
                true => 1,
                false => 0,
            };
            for _ in 0..claims {
                let mut result = json!({
                    "request": "r", "driver": pool.driver, "pool": pool.name, "device": device,
                });
                let mut exactly = json!({"deviceClassName": names.class("any")});
                if percent(rng, 10) {
                    result["adminAccess"] = true.into();
                    exactly["adminAccess"] = true.into();
                }
                if *shareable {
                    let share: u64 = rng.u64(0..1 << 48);
                    result["shareID"] = format!("00000000-0000-4000-8000-{share:012x}").into();
                    if percent(rng, 85) {
                        result["consumedCapacity"] =
                            json!({"memory": pick(rng, &["2Gi", "4Gi", "8Gi"])});
                    }
                }
                holders.push(json!({
                    "metadata": {"name": names.claim("holder", holders.len())},
                    "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
                    "status": {"allocation": {"devices": {"results": [result]}}},
                }));
            }
        }
    }
    holders
}

/// The claims of one pod.
pub(super) fn claims(rng: &mut Rng, names: &Names) -> Vec<Value> {
    let mut left = MOST_DEVICES;
    let claims = if percent(rng, 20) { 2 } else { 1 };
    (0..claims).map(|index| claim(rng, names, index, &mut left)).collect()
}

fn claim(rng: &mut Rng, names: &Names, index: usize, left: &mut i64) -> Value {
    let mut requests = Vec::new();
    let mut referable = Vec::new();
    for request in 0..pick(rng, &[1, 1, 1, 1, 2, 2, 3]) {
        let name = format!("r{request}");
        let request = if percent(rng, 20) {
            let alternatives: Vec<Value> = (0..rng.usize(2..4))
                .map(|alternative| {
                    let mut fields = fields(rng, names, *left);
                    fields.insert("name".to_owned(), format!("s{alternative}").into());
                    referable.push(format!("{name}/s{alternative}"));
                    Value::Object(fields)
                })
                .collect();
            *left -= 2;
            json!({"name": name, "firstAvailable": alternatives})
        } else {
            let mut fields = fields(rng, names, *left);
            if percent(rng, 10) {
                fields.insert("adminAccess".to_owned(), true.into());
            }
            *left -= fields.get("count").and_then(Value::as_i64).unwrap_or(1);
            json!({"name": name, "exactly": fields})
        };
        referable.push(name);
        requests.push(request);
    }
    let mut devices = json!({ "requests": requests });
    if percent(rng, 35) {
        devices["constraints"] = json!([constraint(rng, names, &referable)]);
    }
    json!({"metadata": {"name": names.claim("claim", index)}, "spec": {"devices": devices}})
}

/// What requests and alternatives have in common.
fn fields(rng: &mut Rng, names: &Names, left: i64) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let class = pick(rng, &CLASSES);
    add("deviceClassName", names.class(class).into());
    let selectors: Vec<Value> = (0..pick(rng, &[0, 0, 0, 0, 1, 1, 2]))
        .map(|_| json!({"cel": {"expression": selector(rng, names)}}))
        .collect();
    add("selectors", selectors.into());
    if percent(rng, 15) {
        add("allocationMode", "All".into());
    } else if percent(rng, 1) {
        add("count", 33.into());
    } else {
        let count: i64 = pick(rng, &[1, 1, 1, 1, 1, 2, 3]);
        add("count", count.clamp(1, left.max(1)).into());
    }
    if percent(rng, 25) {
        add("tolerations", json!([toleration(rng)]));
    }
    if percent(rng, 25) {
        let mut asked = json!({"memory": pick(rng, &["1Gi", "3Gi", "4Gi", "8Gi", "9Gi", "20Gi"])});
        if percent(rng, 10) {
            asked["cores"] = "2".into();
        }
        add("capacity", json!({ "requests": asked }));
    }
    fields
}

fn selector(rng: &mut Rng, names: &Names) -> String {
    let gpu = names.driver(Driver::Gpu);
    let choices = [
        format!("device.attributes['{gpu}'].?index.orValue(9) < 2"),
        "device.attributes['resource.kubernetes.io'].?numaNode.orValue(-1) == 0".to_owned(),
        format!(
            "device.capacity['{gpu}'].?memory.orValue(quantity('0')).compareTo(quantity('20Gi')) >= 0"
        ),
        format!("device.attributes['{gpu}'].?type.orValue('') == 'gpu'"),
        format!(
            "device.driver != '{gpu}' || device.attributes['{gpu}'].cc.isGreaterThan(semver('8.5.0'))"
        ),
        "!device.allowMultipleAllocations".to_owned(),
        format!("'{gpu}' in device.attributes || device.driver.startsWith('nic')"),
    ];
    pick(rng, &choices)
}

fn toleration(rng: &mut Rng) -> Value {
    match rng.u32(0..5) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"key": "agree.example/a", "operator": "Exists"}),
        2 => json!({"key": "agree.example/a", "operator": "Equal", "value": "x"}),
        3 => json!({"key": "agree.example/b", "operator": "Exists", "effect": "NoExecute"}),
        _ => json!({"key": "agree.example/b", "value": "y", "effect": "NoSchedule"}),
    }
}

fn constraint(rng: &mut Rng, names: &Names, referable: &[String]) -> Value {
    let gpu = names.driver(Driver::Gpu);
    let attribute = pick(
        rng,
        &[
            "resource.kubernetes.io/numaNode".to_owned(),
            format!("{gpu}/root"),
            format!("{gpu}/type"),
            format!("{gpu}/index"),
            format!("{gpu}/cc"),
        ],
    );
    let kind = if percent(rng, 60) { "matchAttribute" } else { "distinctAttribute" };
    let mut constraint = json!({ kind: attribute });
    if percent(rng, 40) {
        let wanted: Vec<&String> = referable.iter().filter(|_| percent(rng, 60)).collect();
        constraint["requests"] = json!(wanted);
    }
    constraint
}
