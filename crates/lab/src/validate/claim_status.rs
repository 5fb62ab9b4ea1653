//! Rules for a claim's status: what was allocated, for whom, and what drivers say of the devices.

use serde_json::{Value, json};

use super::{Errors, claim, each, immutable, list, names, no_key, text};
use crate::error::FieldError;

const MOST_CONSUMERS: usize = 256;
const MOST_RESULTS: usize = 32;
const MOST_CONFIGS: usize = 64;
const MOST_CONDITIONS: usize = 8;

pub(super) fn check(errors: &mut Errors, new: &Value, old: &Value) {
    let status = &new["status"];
    let consumers = (list(status, "reservedFor"), MOST_CONSUMERS);
    each(
        errors,
        "status.reservedFor",
        consumers,
        |c| c["uid"].as_str(),
        |errors, path, consumer| {
            for field in ["resource", "name", "uid"] {
                if text(consumer, field).is_empty() {
                    errors.push(FieldError::required(&format!("{path}.{field}"), ""));
                }
            }
        },
    );
    let allocation = status.get("allocation");
    if let Some(allocation) = allocation {
        check_allocation(errors, new, allocation);
        if old["status"].get("allocation").is_some() {
            immutable(errors, "status.allocation", "/status/allocation", new, old);
        }
    } else if !list(status, "reservedFor").is_empty() {
        let why = "may not be specified when `allocated` is not set";
        errors.push(FieldError::forbidden("status.reservedFor", why));
    }
    check_devices(errors, status);
}

fn check_allocation(errors: &mut Errors, claim: &Value, allocation: &Value) {
    let path = "status.allocation.devices";
    let known = claim::request_names(&claim["spec"]);
    let devices = &allocation["devices"];
    let results = (list(devices, "results"), MOST_RESULTS);
    each(errors, &format!("{path}.results"), results, no_key, |errors, path, result| {
        claim::check_known(errors, &format!("{path}.request"), text(result, "request"), &known);
        names::driver(errors, &format!("{path}.driver"), text(result, "driver"));
        names::pool(errors, &format!("{path}.pool"), text(result, "pool"));
        names::label(errors, &format!("{path}.device"), text(result, "device"));
    });
    let configs = (list(devices, "config"), MOST_CONFIGS);
    each(errors, &format!("{path}.config"), configs, no_key, |errors, path, config| {
        let path_of_source = format!("{path}.source");
        match text(config, "source") {
            "FromClass" | "FromClaim" => {}
            "" => errors.push(FieldError::required(&path_of_source, "")),
            other => errors.push(FieldError::not_supported(
                &path_of_source,
                other,
                &["FromClaim", "FromClass"],
            )),
        }
        claim::opaque(errors, path, config);
    });
}

fn identity(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|field| text(device, field))
}

fn check_devices(errors: &mut Errors, status: &Value) {
    let results = list(&status["allocation"]["devices"], "results");
    let devices = list(status, "devices");
    for (index, device) in devices.iter().enumerate() {
        let path = format!("status.devices[{index}]");
        let [driver, pool, name, share] = identity(device);
        let shown = json!({"Driver": driver, "Pool": pool, "Device": name, "ShareID": share});
        if devices[..index].iter().any(|before| identity(before) == identity(device)) {
            errors.push(FieldError::duplicate(&path, &shown));
        }
        if !results.iter().any(|result| identity(result) == identity(device)) {
            let why = "must be an allocated device in the claim";
            errors.push(FieldError::invalid(&path, &shown, why));
        }
        let conditions = (list(device, "conditions"), MOST_CONDITIONS);
        each(
            errors,
            &format!("{path}.conditions"),
            conditions,
            |c| c["type"].as_str(),
            check_condition,
        );
        if let Some(data) = device.get("data").filter(|data| !data.is_null()) {
            claim::data(errors, &format!("{path}.data"), data);
        }
    }
}

fn check_condition(errors: &mut Errors, path: &str, condition: &Value) {
    for field in ["type", "reason"] {
        if text(condition, field).is_empty() {
            errors.push(FieldError::required(&format!("{path}.{field}"), ""));
        }
    }
    let status = text(condition, "status");
    if !["True", "False", "Unknown"].contains(&status) {
        let supported = ["False", "True", "Unknown"];
        errors.push(FieldError::not_supported(&format!("{path}.status"), status, &supported));
    }
    if condition.get("lastTransitionTime").is_none() {
        errors.push(FieldError::required(&format!("{path}.lastTransitionTime"), ""));
    }
}
