//! From an AdmissionReview to its answer: are the opaque configs that are for us such as the
//! node agent takes? It is the node agent's own decoder, so that the sentence that a pod's
//! event would have had comes when the claim is created. Pure, and safe on any input.

use gpu_dra_model::{DriverName, config};
use serde::Deserialize;
use serde_json::{Value, json};

/// Sentences in one answer.
const MOST: usize = 8;

/// A body that is no review, and so gets no answer.
#[derive(Debug, thiserror::Error)]
#[error("no AdmissionReview of admission.k8s.io/v1 with a request: {reason}")]
pub struct NoReview {
    reason: String,
}

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    kind: Kind,
    #[serde(default)]
    object: Value,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// Answers a review of a ResourceClaim, ResourceClaimTemplate or DeviceClass in any version of
/// resource.k8s.io: they have their configs in the same place. Other kinds are allowed.
///
/// # Errors
/// When the body is no review.
pub fn review(body: &[u8], driver: &DriverName) -> Result<Value, NoReview> {
    let Review { request } =
        serde_json::from_slice(body).map_err(|error| NoReview { reason: error.to_string() })?;
    let problems = problems(&request.kind.kind, &request.object, driver);
    let mut response = json!({"uid": request.uid, "allowed": problems.is_empty()});
    if !problems.is_empty() {
        let more = problems.len().saturating_sub(MOST);
        let shown: Vec<String> = problems.into_iter().take(MOST).collect();
        let mut message = shown.join("; ");
        if more > 0 {
            message.push_str(&format!("; and {more} more"));
        }
        response["status"] = json!({"code": 422, "reason": "Invalid", "message": message});
    }
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    });
    Ok(answer)
}

/// What is wrong with the driver's configs of an object, with the path of each.
fn problems(kind: &str, object: &Value, driver: &DriverName) -> Vec<String> {
    let path = match kind {
        "ResourceClaim" => "spec.devices.config",
        "ResourceClaimTemplate" => "spec.spec.devices.config",
        "DeviceClass" => "spec.config",
        _ => return Vec::new(),
    };
    let at = |path: &str| object.pointer(&format!("/{}", path.replace('.', "/")));
    let requests =
        path.strip_suffix("devices.config").map(|spec| format!("{spec}devices.requests"));
    let requests = requests.and_then(|path| at(&path)).and_then(Value::as_array);
    let entries = at(path).and_then(Value::as_array).into_iter().flatten().enumerate();
    let mut problems = Vec::new();
    for (index, entry) in entries {
        if entry.pointer("/opaque/driver").and_then(Value::as_str) != Some(driver.as_str()) {
            continue;
        }
        let parameters = entry.pointer("/opaque/parameters").unwrap_or(&Value::Null);
        let found = config::problems(parameters);
        let names = entry.get("requests").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        let mut found: Vec<String> = found.iter().map(ToString::to_string).collect();
        if !config::are_alternatives(names.iter().copied()) {
            let config = config::decode(parameters).ok();
            found.extend(config.and_then(|config| config.unserved()).map(|e| e.to_string()));
            // A class doesn't know how many devices will be asked of it.
            let devices = requests.and_then(|requests| most_devices(requests, &names));
            let beyond = devices.map(|devices| config::limits_beyond(parameters, devices));
            found.extend(beyond.into_iter().flatten().map(|e| e.to_string()));
        }
        problems.extend(found.iter().map(|e| format!("{path}[{index}].opaque.parameters: {e}")));
    }
    problems
}

/// How many devices those requests can have at most, by name: all where no name is given. None
/// where nobody can know it before the allocation.
fn most_devices(requests: &[Value], names: &[&str]) -> Option<usize> {
    let name = |request: &Value| request["name"].as_str().unwrap_or_default().to_owned();
    // In v1beta1 a request has these fields itself.
    let count = |request: &Value| match request["allocationMode"].as_str() {
        None | Some("" | "ExactCount") => match &request["count"] {
            Value::Null => Some(1),
            count => count.as_u64().and_then(|count| usize::try_from(count).ok()),
        },
        Some(_) => None,
    };
    let mut sum = 0_usize;
    for request in requests {
        let base = name(request);
        let is_named = |full: &str| names.is_empty() || names.contains(&full);
        let most = match request["firstAvailable"].as_array() {
            None if is_named(&base) => count(request.get("exactly").unwrap_or(request))?,
            None => 0,
            Some(alternatives) => {
                let is_for = |alternative: &&Value| {
                    is_named(&base) || is_named(&format!("{base}/{}", name(alternative)))
                };
                let counts = alternatives.iter().filter(is_for).map(count);
                counts.collect::<Option<Vec<_>>>()?.into_iter().max().unwrap_or(0)
            }
        };
        sum = sum.checked_add(most)?;
    }
    // A name that isn't there is the API server's to refuse.
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: &str, object: &Value) -> Value {
        let body = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "operation": "CREATE",
                "kind": {"group": "resource.k8s.io", "version": "v1", "kind": kind},
                "object": object,
            },
        });
        let driver = DriverName::new("gpu.nvidia.com").unwrap();
        review(body.to_string().as_bytes(), &driver).unwrap()
    }

    fn config(driver: &str, sharing: &Value) -> Value {
        json!({"opaque": {"driver": driver, "parameters": {
            "apiVersion": config::API_VERSION, "kind": "GpuConfig", "sharing": sharing,
        }}})
    }

    #[test]
    fn good_configs_and_other_drivers_are_let_through() {
        let good = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
        let bad = json!({"strategy": "Nonsense"});
        for configs in [
            json!([]),
            Value::Null,
            json!([config("gpu.nvidia.com", &good)]),
            json!([config("other.example.com", &bad), {"requests": ["a"]}, 7, null]),
        ] {
            let devices = json!({"spec": {"devices": {"config": configs}}});
            let answer = ask("ResourceClaim", &devices);
            assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}), "{devices}");
            assert_eq!(
                ask("ResourceClaimTemplate", &json!({"spec": devices}))["response"]["allowed"],
                true
            );
            assert_eq!(
                ask("DeviceClass", &json!({"spec": {"config": configs}}))["response"]["allowed"],
                true
            );
        }
    }

    #[test]
    fn a_bad_config_is_refused_in_the_node_agents_words() {
        let bad = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Loong"}});
        let devices =
            json!({"devices": {"config": [{"requests": []}, config("gpu.nvidia.com", &bad)]}});
        let parameters = devices.pointer("/devices/config/1/opaque/parameters").unwrap();
        let words = config::decode(parameters).unwrap_err().to_string();
        for (kind, object, path) in [
            ("ResourceClaim", json!({"spec": devices}), "spec.devices.config[1]"),
            (
                "ResourceClaimTemplate",
                json!({"spec": {"spec": devices}}),
                "spec.spec.devices.config[1]",
            ),
            ("DeviceClass", json!({"spec": devices["devices"]}), "spec.config[1]"),
        ] {
            let response = ask(kind, &object)["response"].clone();
            assert_eq!(response["allowed"], false);
            assert_eq!(
                response["status"],
                json!({"code": 422, "reason": "Invalid",
                       "message": format!("{path}.opaque.parameters: {words}")})
            );
        }
    }

    #[test]
    fn many_problems_are_told_in_bounds() {
        let bad = config("gpu.nvidia.com", &json!({"strategy": "No", "a": 1, "b": 2}));
        let many = json!({"spec": {"devices": {"config": vec![bad; 32]}}});
        let message = ask("ResourceClaim", &many)["response"]["status"]["message"].clone();
        let message = message.as_str().unwrap();
        assert!(message.len() < 2_000 && message.ends_with("more"), "{message}");
    }

    #[test]
    fn passthrough_is_refused_as_the_node_agent_does_unless_it_may_not_be_chosen() {
        let vfio = |iommu: Value| {
            let kind = "VfioDeviceConfig";
            json!({"apiVersion": config::API_VERSION, "kind": kind, "iommu": iommu})
        };
        let message = |kind: &str, requests: &Value, parameters: &Value| {
            let config = json!([{"requests": requests, "opaque": {
                "driver": "gpu.nvidia.com", "parameters": parameters,
            }}]);
            let object = match kind {
                "DeviceClass" => json!({"spec": {"config": config}}),
                _ => json!({"spec": {"devices": {"config": config}}}),
            };
            ask(kind, &object)["response"]["status"]["message"].as_str().map(str::to_owned)
        };
        let good = vfio(json!({"backendPolicy": "PreferIommuFD"}));
        let sentence = config::decode(&good).unwrap().unserved().unwrap().to_string();
        for (kind, requests, refused) in [
            ("ResourceClaim", Value::Null, true),
            ("ResourceClaim", json!(["vm"]), true),
            ("ResourceClaim", json!(["gpu/vm", "other"]), true),
            ("ResourceClaim", json!(["gpu/vm"]), false),
            ("DeviceClass", Value::Null, true),
        ] {
            let message = message(kind, &requests, &good);
            assert_eq!(message.is_some(), refused, "{kind} {requests}");
            assert!(message.is_none_or(|m| m.ends_with(&sentence)), "{kind} {requests}");
        }
        let bad = message("ResourceClaim", &Value::Null, &vfio(json!({"backendPolicy": "No"})));
        let bad = bad.unwrap();
        assert!(bad.contains("LegacyOnly or PreferIommuFD") && !bad.contains(&sentence), "{bad}");
    }

    #[test]
    fn a_limit_for_a_device_that_the_claim_cannot_have_is_refused() {
        let mps = json!({"strategy": "MPS", "mpsConfig": {
            "defaultPerDevicePinnedMemoryLimit": {"2": "1Gi"},
        }});
        let one = json!({"name": "a", "exactly": {}});
        let flat = json!({"name": "a", "count": 3});
        let all = json!({"name": "a", "exactly": {"allocationMode": "All"}});
        let four = json!({"name": "b", "exactly": {"allocationMode": "ExactCount", "count": 4}});
        let either = json!({"name": "c", "firstAvailable": [
            {"name": "x", "count": 3}, {"name": "y"},
        ]});
        for (requests, names, refused) in [
            (json!([one]), json!([]), Some(1)),
            (json!([one]), json!(["a"]), Some(1)),
            (json!([flat]), json!(["a"]), None),
            (json!([all]), json!([]), None),
            (json!([one, four]), json!(["a"]), Some(1)),
            (json!([one, four]), json!(["b"]), None),
            (json!([one, four]), Value::Null, None),
            (json!([either]), json!(["c"]), None),
            (json!([either, one]), json!(["c/y", "a"]), Some(2)),
            (json!([either]), json!(["c/y"]), None),
            (json!([one]), json!(["nobody"]), None),
            (json!([7, null, {"name": "a", "exactly": 3, "count": -1}]), json!(["a"]), Some(1)),
            (json!({}), json!([]), None),
        ] {
            let mut config = config("gpu.nvidia.com", &mps);
            config["requests"] = names.clone();
            let spec = json!({"devices": {"requests": requests, "config": [config]}});
            for (kind, object) in [
                ("ResourceClaim", json!({"spec": spec})),
                ("ResourceClaimTemplate", json!({"spec": {"spec": spec}})),
            ] {
                let response = ask(kind, &object)["response"].clone();
                let words = response["status"]["message"].as_str().map(str::to_owned);
                let expected = refused.map(|devices| format!("no device 2 among the {devices} of"));
                let is_right = match (&words, &expected) {
                    (Some(words), Some(expected)) => words.contains(expected),
                    (words, expected) => words.is_none() && expected.is_none(),
                };
                assert!(is_right, "{requests} {names}: {words:?}");
            }
        }
        let class = json!({"spec": {"config": [config("gpu.nvidia.com", &mps)]}});
        assert_eq!(ask("DeviceClass", &class)["response"]["allowed"], true);
    }

    #[test]
    fn what_is_no_review_gets_an_error_and_no_panic() {
        let driver = DriverName::new("gpu.nvidia.com").unwrap();
        let deep = "[".repeat(100_000);
        for body in ["", "null", "[]", "{}", "{\"request\": {}}", "\u{0}", &deep] {
            assert!(review(body.as_bytes(), &driver).is_err(), "{body:.20}");
        }
    }
}
