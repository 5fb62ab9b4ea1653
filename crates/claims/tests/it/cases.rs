//! What users write, as users write it: each test is named after a case file and plans the
//! claim as the scheduler would have allocated it.

use gpu_dra_claims::record::{KnownStep, Step};
use gpu_dra_claims::{Record, Refusal};
use gpu_dra_model::config::Interval;
use gpu_dra_testkit::{ClaimBuilder, claim};
use serde_json::Value;

use crate::planning::planned;

/// The case's configs, as the scheduler copies them into the allocation: class before claim.
fn configured(file: &str, mut claim: ClaimBuilder) -> ClaimBuilder {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../allocator/tests/data/cases");
    let text = std::fs::read_to_string(format!("{folder}/{file}.yaml")).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let of = |kind: &str, pointer: &str| -> Vec<Value> {
        let documents = documents.iter().filter(|document| document["kind"] == kind);
        let configs = documents.filter_map(|document| document.pointer(pointer)?.as_array());
        configs.flatten().cloned().collect()
    };
    let requests = |config: &Value| -> Vec<String> {
        let names = config["requests"].as_array().into_iter().flatten();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    for config in of("DeviceClass", "/spec/config") {
        claim = claim.with_class_config(&[], config["opaque"]["parameters"].clone());
    }
    let in_templates = of("ResourceClaimTemplate", "/spec/spec/devices/config");
    let in_claims = of("ResourceClaim", "/spec/devices/config");
    for config in in_templates.into_iter().chain(in_claims) {
        let requests = requests(&config);
        let requests: Vec<_> = requests.iter().map(String::as_str).collect();
        claim = claim.with_config(&requests, config["opaque"]["parameters"].clone());
    }
    claim
}

fn plan(file: &str, claim: ClaimBuilder) -> Result<Record, Refusal> {
    planned(&configured(file, claim), &[])
}

fn intervals(record: &Record) -> Vec<Interval> {
    let of = |step: &Step| match step {
        Step::Known(KnownStep::TimeSlice { interval, .. }) => *interval,
        step => panic!("{step:?}"),
    };
    record.steps.iter().map(of).collect()
}

#[test]
fn case_01_whole_gpu_template() {
    let record = plan("01-whole-gpu-template", claim("infer-0-gpu").gets("gpu", "gpu-0")).unwrap();
    assert_eq!((record.devices.len(), record.steps.len()), (1, 0));
    assert!(record.devices[0].cdi_device.as_str().contains(record.claim.uid.as_str()));
}

#[test]
fn case_15_cel_index_attribute() {
    let record = plan("15-cel-index-attribute", claim("even").gets("gpu", "gpu-0")).unwrap();
    assert_eq!(intervals(&record), [Interval::Long]);
}

#[test]
fn case_32_class_with_mps_default() {
    let gets = || claim("quarter").gets("gpu", "gpu-0");
    let record = plan("32-class-with-mps-default", gets()).unwrap();
    let of_class = record.steps.iter().find_map(|step| match step {
        Step::Known(KnownStep::MpsDaemon { config, .. }) => Some(config.clone()),
        _ => None,
    });
    let of_class = of_class.unwrap();
    assert_eq!(of_class.default_active_thread_percentage, Some(25));
    assert_eq!(of_class.default_pinned_device_memory_limit.unwrap().to_string(), "5120M");
    // A claim config for the same request wins over the class's.
    let own = configured("32-class-with-mps-default", gets())
        .with_config(&["gpu"], gpu_dra_testkit::time_slicing("Short"));
    assert_eq!(intervals(&planned(&own, &[]).unwrap()), [Interval::Short]);
}

#[test]
fn case_33_extended_resource() {
    // Nobody wrote a claim; the scheduler's request names are like any other.
    let claim = claim("legacy-0-extended-resources-x").gets("container-0-request-0", "gpu-1");
    assert_eq!(plan("33-extended-resource", claim).unwrap().devices.len(), 1);
}

#[test]
fn case_50_timeslicing_shared_claim() {
    let shared = claim("shared-gpu").gets("gpu", "gpu-0");
    let record = plan("50-timeslicing-shared-claim", shared.clone()).unwrap();
    assert_eq!(intervals(&record), [Interval::Long]);
    // The second pod's Prepare plans the very same: nothing is set twice.
    assert_eq!(plan("50-timeslicing-shared-claim", shared).unwrap(), record);
}

#[test]
fn case_51_timeslicing_device_plugin_habit() {
    let habit = plan("51-timeslicing-device-plugin-habit", claim("ts4").gets("gpu", "gpu-0"));
    let text = habit.unwrap_err().to_string();
    assert!(text.contains("apiVersion") && text.contains("shares"), "{text}");
}

#[test]
fn case_53_timeslicing_and_mps_in_one_claim() {
    let both = claim("both").gets("ts-gpu", "gpu-0").gets("mps-gpu", "gpu-1");
    let record = plan("53-timeslicing-and-mps-in-one-claim", both).unwrap();
    let steps = record.known_steps().unwrap();
    assert!(
        matches!(steps[..], [
        KnownStep::TimeSlice { .. },
        KnownStep::ExclusiveProcess { .. },
        KnownStep::MpsDaemon { devices, .. },
    ] if devices.len() == 1 && devices[0].as_str() == "gpu-1"),
        "{steps:?}"
    );
}

#[test]
fn case_54_mps_bad_values() {
    let bad = plan("54-mps-bad-values", claim("mps").gets("gpu", "gpu-0"));
    let text = bad.unwrap_err().to_string();
    assert!(text.contains("150"), "the mistake is named before the strategy: {text}");
}

#[test]
fn case_60_first_available_parent_config() {
    let l4 = claim("infer").gets("gpu/l4", "gpu-0");
    let record = plan("60-first-available-parent-config", l4).unwrap();
    assert_eq!(intervals(&record), [Interval::Short]);
}

#[test]
fn case_61_gpu_and_nic_on_one_root() {
    let pair = claim("fabric").gets("gpu", "gpu-0").gets_of("dra.net", "nic", "gpu0rdma0");
    let record = plan("61-gpu-and-nic-on-one-root", pair).unwrap();
    assert_eq!(record.devices.len(), 1);
    assert_eq!(record.devices[0].device.as_str(), "gpu-0");
}

#[test]
fn case_64_admin_access_monitor() {
    let owner = planned(&claim("owner").uid(2).gets("gpu", "gpu-0"), &[]).unwrap();
    let watcher = claim("watch-all").watches("all", "gpu-0").watches("all", "gpu-1");
    let watcher = configured("64-admin-access-monitor", watcher);
    let record = planned(&watcher, &[owner]).unwrap();
    assert_eq!((record.devices.len(), record.steps.len()), (2, 0));
}

#[test]
fn case_67_share_of_memory() {
    let share = claim("four-gi").shares("gpu", "gpu-0", "a3f6d9d5-0000-4f8c-9006-000000000001");
    let record = plan("67-share-of-memory", share).unwrap();
    assert_eq!(record.devices[0].share_id.as_deref(), Some("a3f6d9d5-0000-4f8c-9006-000000000001"));
}
