//! Opaque parameters as a class or claim may have them: decoded, resolved and planned. A JSON
//! list is that many configs of one claim.
#![no_main]

mod world;

use gpu_dra_claims::allocation::{ConfigSource, OpaqueConfig};
use gpu_dra_claims::{Allocation, check, plan};
use gpu_dra_model::config::{self, DeviceConfig};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The longest text of what is wrong with a config, in bytes.
const SHORT: usize = 200;
/// The same with the names of the claim, the device and the config before it.
const WITH_NAMES: usize = 400;
/// As many as an allocation can have.
const MOST_CONFIGS: usize = 64;

fuzz_target!(|input: &[u8]| {
    let decoded = config::decode_bytes(input);
    match &decoded {
        Ok(config) => stable(config),
        Err(error) => short(&error.to_string(), SHORT),
    }
    let Ok(value) = serde_json::from_slice::<Value>(input) else {
        assert!(decoded.is_err(), "no JSON, and yet a config");
        return;
    };
    let problems = config::problems(&value);
    if input.len() <= config::MAX_CONFIG_BYTES {
        assert_eq!(problems.is_empty(), decoded.is_ok());
    }
    problems.iter().for_each(|problem| short(&problem.to_string(), SHORT));
    let parameters = match value {
        Value::Array(list) => list,
        value => vec![value],
    };
    planned(parameters);
});

/// What the journal keeps of a config is the config.
fn stable(config: &DeviceConfig) {
    let encoded = serde_json::to_vec(config).expect("a config has a JSON form");
    let again: DeviceConfig = serde_json::from_slice(&encoded).expect("it can be read again");
    assert_eq!(again, *config);
}

/// Configs in turn of the class and of the claim, for all requests or for one.
fn planned(parameters: Vec<Value>) {
    let requests = [&[][..], &["gpu"], &["mig"], &["part", "gpu"], &["share"], &["any/second"]];
    let configs = parameters
        .into_iter()
        .take(MOST_CONFIGS)
        .enumerate()
        .map(|(index, parameters)| OpaqueConfig {
            index,
            source: if index % 2 == 0 { ConfigSource::Claim } else { ConfigSource::Class },
            requests: requests[index % requests.len()].iter().map(|&r| r.to_owned()).collect(),
            parameters,
        })
        .collect();
    let allocation = Allocation {
        claim: world::claim(1),
        devices: ["gpu", "old", "mig", "part", "share"].map(world::result).into(),
        configs,
    };
    // All devices at once, and each by itself: one refusal would hide the others.
    for only in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
        let mut allocation = allocation.clone();
        if let Some(nth) = only {
            allocation.devices = vec![allocation.devices[nth].clone()];
        }
        match plan(&allocation, &world::NODE, [], world::cdi_device) {
            Ok(record) => check::plan(&record).unwrap_or_else(|broken| panic!("{broken}")),
            Err(refusal) => short(&refusal.to_string(), WITH_NAMES),
        }
    }
}

fn short(error: &str, most: usize) {
    assert!(error.len() < most, "{} bytes: {error}", error.len());
}
