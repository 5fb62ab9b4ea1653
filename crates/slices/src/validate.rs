//! The API server's limits on a ResourceSlice (`resource.k8s.io/v1` validation, Kubernetes
//! 1.35 to 1.37), checked before sending: one bad value loses the whole slice, and a pool
//! that lacks one slice loses all its devices. What we never set isn't allowed at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::resource::v1::{
    CounterSet, Device, DeviceAttribute, DeviceTaint, ResourceSlice,
};

use gpu_dra_model::{DeviceName, DriverName, NodeName, PoolName, Quantity};

use crate::attributes::{MAX_KEYS, MAX_VALUE_BYTES};
use crate::pool::{COUNTER_SETS_PER_SLICE, DEVICES_PER_SLICE, DesiredPool};

const MAX_DEVICES: usize = 128;
pub(crate) const MAX_COUNTERS: usize = 32;
const MAX_CONSUMED_SETS: usize = 2;
const MAX_TAINTS: usize = 16;
const MAX_ATTRIBUTE_VALUES: usize = 48;

/// A rule of the API that a slice breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where, e.g. `spec.devices[gpu-0].attributes[driverVersion]`.
    pub field: String,
    /// What the server asks for.
    pub rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.rule)
    }
}

/// Collects violations; each check says where and what.
#[derive(Default)]
struct Report(Vec<Violation>);

impl Report {
    fn check(&mut self, good: bool, field: impl Into<String>, rule: &'static str) {
        if !good {
            self.0.push(Violation { field: field.into(), rule });
        }
    }
}

/// What the API server would refuse in this slice; empty if nothing.
#[must_use]
pub fn validate(slice: &ResourceSlice) -> Vec<Violation> {
    let mut report = Report::default();
    let spec = &slice.spec;
    let devices = spec.devices.as_deref().unwrap_or_default();
    let counters = spec.shared_counters.as_deref().unwrap_or_default();

    report.check(DriverName::new(&spec.driver).is_ok(), "spec.driver", "DNS subdomain, 63 bytes");
    report.check(
        PoolName::new(&spec.pool.name).is_ok(),
        "spec.pool.name",
        "'/'-separated DNS subdomains, 253 bytes",
    );
    report.check(spec.pool.generation >= 0, "spec.pool.generation", "0 or more");
    report.check(spec.pool.resource_slice_count >= 1, "spec.pool.resourceSliceCount", "1 or more");
    report.check(
        spec.node_name.as_ref().is_some_and(|name| NodeName::new(name).is_ok()),
        "spec.nodeName",
        "the name of a node",
    );
    report.check(
        spec.node_selector.is_none()
            && spec.all_nodes.is_none()
            && spec.per_device_node_selection.is_none(),
        "spec",
        "exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection",
    );
    report.check(
        devices.is_empty() || counters.is_empty(),
        "spec",
        "either devices or sharedCounters",
    );
    report.check(
        counters.len() <= COUNTER_SETS_PER_SLICE,
        "spec.sharedCounters",
        "at most 8 counter sets",
    );
    let limit = if devices.iter().any(is_heavy) { DEVICES_PER_SLICE } else { MAX_DEVICES };
    report.check(
        devices.len() <= limit,
        "spec.devices",
        "at most 128 devices, 64 with taints, counters or list attributes",
    );
    unique(&mut report, "spec.devices", devices.iter().map(|device| device.name.as_str()));
    unique(&mut report, "spec.sharedCounters", counters.iter().map(|set| set.name.as_str()));
    for device in devices {
        check_device(&mut report, device);
    }
    for set in counters {
        check_counter_set(&mut report, set);
    }
    report.0
}

/// What makes the scheduler ignore the pool, though the server takes each slice: device
/// names that repeat, and counters that no set of the pool has.
#[must_use]
pub fn validate_pool(pool: &DesiredPool) -> Vec<Violation> {
    let mut report = Report::default();
    unique(&mut report, "devices", pool.devices().map(|device| device.name.as_str()));
    unique(&mut report, "sharedCounters", pool.counter_sets().map(|set| set.name.as_str()));
    let sets: BTreeMap<_, _> =
        pool.counter_sets().map(|set| (set.name.as_str(), &set.counters)).collect();
    for device in pool.devices() {
        for consumed in device.consumes_counters.iter().flatten() {
            let known = sets.get(consumed.counter_set.as_str()).is_some_and(|counters| {
                consumed.counters.keys().all(|counter| counters.contains_key(counter))
            });
            report.check(
                known,
                format!("devices[{}].consumesCounters[{}]", device.name, consumed.counter_set),
                "a counter set of the pool that has these counters",
            );
        }
    }
    report.0
}

fn is_heavy(device: &Device) -> bool {
    device.taints.as_ref().is_some_and(|taints| !taints.is_empty())
        || device.consumes_counters.as_ref().is_some_and(|sets| !sets.is_empty())
        || device.attributes.iter().flat_map(|map| map.values()).any(is_list)
}

fn unique<'a>(report: &mut Report, field: &str, names: impl Iterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    for name in names {
        report.check(seen.insert(name), format!("{field}[{name}]"), "a name of its own");
    }
}

fn check_device(report: &mut Report, device: &Device) {
    let at = format!("spec.devices[{}]", device.name);
    report.check(DeviceName::new(&device.name).is_ok(), &at, "a DNS label as name");
    report.check(
        device.node_name.is_none() && device.node_selector.is_none() && device.all_nodes.is_none(),
        &at,
        "no node of its own in a slice with nodeName",
    );
    report.check(
        device.binding_conditions.is_none()
            && device.binding_failure_conditions.is_none()
            && device.binds_to_node.is_none()
            && device.node_allocatable_resources.is_none(),
        &at,
        "no binding conditions or node resources: gpu-dra sets none",
    );

    let attributes = || device.attributes.iter().flatten();
    let capacities = || device.capacity.iter().flatten();
    report.check(
        attributes().count() + capacities().count() <= MAX_KEYS,
        &at,
        "at most 32 attributes and capacities",
    );
    let values: usize = attributes().map(|(_, attribute)| count_values(attribute)).sum();
    report.check(values <= MAX_ATTRIBUTE_VALUES, &at, "at most 48 attribute values");
    for (key, attribute) in attributes() {
        let at = format!("{at}.attributes[{key}]");
        report.check(is_qualified_name(key), &at, "a C identifier of 32 bytes, after 'domain/'");
        check_attribute(report, &at, attribute);
    }
    for (key, capacity) in capacities() {
        let at = format!("{at}.capacity[{key}]");
        report.check(is_qualified_name(key), &at, "a C identifier of 32 bytes, after 'domain/'");
        report.check(is_quantity(&capacity.value.0), &at, "a quantity");
        report.check(
            capacity.request_policy.is_none() || device.allow_multiple_allocations == Some(true),
            &at,
            "requestPolicy only with allowMultipleAllocations",
        );
    }

    let consumed = device.consumes_counters.as_deref().unwrap_or_default();
    report.check(consumed.len() <= MAX_CONSUMED_SETS, &at, "counters of at most 2 sets");
    unique(report, &at, consumed.iter().map(|set| set.counter_set.as_str()));
    for set in consumed {
        let at = format!("{at}.consumesCounters[{}]", set.counter_set);
        check_counters(report, &at, set.counters.iter().map(|(name, c)| (name, &c.value.0)));
    }
    let taints = device.taints.as_deref().unwrap_or_default();
    report.check(taints.len() <= MAX_TAINTS, &at, "at most 16 taints");
    for taint in taints {
        check_taint(report, &at, taint);
    }
}

fn count_values(attribute: &DeviceAttribute) -> usize {
    let scalars = [
        attribute.int.is_some(),
        attribute.bool.is_some(),
        attribute.string.is_some(),
        attribute.version.is_some(),
    ];
    scalars.iter().filter(|set| **set).count()
        + attribute.ints.as_ref().map_or(0, Vec::len)
        + attribute.bools.as_ref().map_or(0, Vec::len)
        + attribute.strings.as_ref().map_or(0, Vec::len)
        + attribute.versions.as_ref().map_or(0, Vec::len)
}

fn check_attribute(report: &mut Report, at: &str, attribute: &DeviceAttribute) {
    // List attributes need an alpha gate; where it is off the whole write is refused.
    report.check(!is_list(attribute), at, "no list: its feature gate is off by default");
    report.check(count_values(attribute) == 1, at, "exactly one of int, bool, string, version");
    if let Some(text) = &attribute.string {
        report.check(text.len() <= MAX_VALUE_BYTES, at, "at most 64 bytes");
    }
    if let Some(version) = &attribute.version {
        report.check(version.len() <= MAX_VALUE_BYTES, at, "at most 64 bytes");
        report.check(is_strict_semver(version), at, "SemVer 2.0.0: three numbers, no leading 0");
    }
}

fn is_list(a: &DeviceAttribute) -> bool {
    a.ints.is_some() || a.bools.is_some() || a.strings.is_some() || a.versions.is_some()
}

fn check_counter_set(report: &mut Report, set: &CounterSet) {
    let at = format!("spec.sharedCounters[{}]", set.name);
    report.check(DeviceName::new(&set.name).is_ok(), &at, "a DNS label as name");
    check_counters(report, &at, set.counters.iter().map(|(name, c)| (name, &c.value.0)));
}

fn check_counters<'a>(
    report: &mut Report,
    at: &str,
    counters: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
) {
    report.check((1..=MAX_COUNTERS).contains(&counters.len()), at, "1 to 32 counters");
    for (name, value) in counters {
        let at = format!("{at}.counters[{name}]");
        report.check(DeviceName::new(name).is_ok(), &at, "a DNS label as name");
        report.check(is_quantity(value), &at, "a quantity");
    }
}

fn check_taint(report: &mut Report, at: &str, taint: &DeviceTaint) {
    let at = format!("{at}.taints[{}]", taint.key);
    let (domain, name) = match taint.key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, taint.key.as_str()),
    };
    report.check(
        is_label_value(name) && domain.is_none_or(|domain| NodeName::new(domain).is_ok()),
        &at,
        "a label key",
    );
    let value = taint.value.as_deref().unwrap_or_default();
    report.check(value.is_empty() || is_label_value(value), &at, "a label value");
    report.check(
        ["None", "NoSchedule", "NoExecute"].contains(&taint.effect.as_str()),
        &at,
        "an effect of None, NoSchedule or NoExecute",
    );
}

fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// `QualifiedName` of the API: `id`, or `domain/id`.
fn is_qualified_name(key: &str) -> bool {
    let (domain, id) = match key.split_once('/') {
        Some((domain, id)) => (Some(domain), id),
        None => (None, key),
    };
    let bytes = id.as_bytes();
    (1..=32).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && !bytes.first().is_some_and(u8::is_ascii_digit)
        && domain.is_none_or(|domain| DriverName::new(domain).is_ok())
}

/// Strict SemVer 2.0.0, as `DeviceAttribute.version` asks for.
fn is_strict_semver(text: &str) -> bool {
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (core, pre) = match rest.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (rest, None),
    };
    let number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let pre_word =
        |part: &str| word(part) && (!part.bytes().all(|b| b.is_ascii_digit()) || number(part));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(pre_word))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn is_quantity(text: &str) -> bool {
    text.parse::<Quantity>().is_ok()
}
