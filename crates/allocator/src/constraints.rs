//! `matchAttribute` and `distinctAttribute` over the devices of a claim.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceConstraint};

use crate::Rules;
use crate::reason::{Conflict, Fit, Reason};

/// A constraint and the devices that it has seen in this attempt.
#[derive(Debug)]
pub(crate) struct Constraint<'a> {
    index: usize,
    requests: &'a [String],
    attribute: &'a str,
    seen: Seen<'a>,
    devices: usize,
}

#[derive(Debug)]
enum Seen<'a> {
    /// The value that all must have.
    Match(Option<&'a DeviceAttribute>),
    /// The last value of each request: up to 1.36 the scheduler remembers one, however many devices
    /// a request has, and forgets it when one of them is taken back.
    DistinctByRequest(BTreeMap<&'a str, &'a DeviceAttribute>),
    /// All values, in the order of the devices.
    Distinct(Vec<&'a DeviceAttribute>),
}

/// Which request a device is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct For<'a> {
    pub(crate) request: &'a str,
    pub(crate) sub: Option<&'a str>,
}

impl<'a> Constraint<'a> {
    /// None for a kind that isn't known.
    pub(crate) fn new(
        index: usize,
        constraint: &'a DeviceConstraint,
        rules: Rules,
    ) -> Option<Self> {
        let (attribute, seen) = match (&constraint.match_attribute, &constraint.distinct_attribute)
        {
            (Some(attribute), _) => (attribute, Seen::Match(None)),
            (None, Some(attribute)) => match rules {
                Rules::UpTo136 => (attribute, Seen::DistinctByRequest(BTreeMap::new())),
                Rules::From137 => (attribute, Seen::Distinct(Vec::new())),
            },
            (None, None) => return None,
        };
        let requests = constraint.requests.as_deref().unwrap_or_default();
        Some(Self { index, requests, attribute, seen, devices: 0 })
    }

    /// Without names it applies to all requests; a name means a request with its
    /// subrequests, or one subrequest.
    fn applies(&self, to: For<'_>) -> bool {
        let means = |name: &String| {
            name == to.request
                || to.sub.is_some_and(|sub| name.split_once('/') == Some((to.request, sub)))
        };
        self.requests.is_empty() || self.requests.iter().any(means)
    }

    /// Adds a device, unless it breaks the constraint.
    pub(crate) fn add(&mut self, to: For<'a>, device: &'a Device, driver: &str) -> Fit {
        if !self.applies(to) {
            return Ok(());
        }
        let (index, attribute) = (self.index, self.attribute);
        let refuse = |conflict| {
            Err(Box::new(Reason::Constraint { index, attribute: attribute.to_owned(), conflict }))
        };
        let Some(value) = find(device, driver, attribute) else {
            return refuse(Conflict::Missing);
        };
        let is_first = self.devices == 0;
        match &mut self.seen {
            Seen::Match(Some(common)) if !is_first => {
                if !same(value, common) {
                    let (value, others) = (shown(value), shown(common));
                    return refuse(Conflict::Differs { value, others });
                }
            }
            Seen::Match(common) => *common = Some(value),
            Seen::Distinct(values) => {
                let repeats = values.iter().any(|other| same(value, other));
                if !values.is_empty() && (scalar(value).is_none() || repeats) {
                    return refuse(Conflict::Repeats { value: shown(value) });
                }
                values.push(value);
            }
            Seen::DistinctByRequest(values) => {
                let repeats = || values.values().any(|other| same(value, other));
                if !is_first && (scalar(value).is_none() || repeats()) {
                    return refuse(Conflict::Repeats { value: shown(value) });
                }
                values.insert(to.request, value);
            }
        }
        self.devices += 1;
        Ok(())
    }

    /// Takes back one [`Self::add`].
    pub(crate) fn remove(&mut self, to: For<'_>) {
        if !self.applies(to) {
            return;
        }
        match &mut self.seen {
            Seen::Match(_) => {}
            Seen::DistinctByRequest(values) => {
                values.remove(to.request);
            }
            Seen::Distinct(values) => {
                values.pop();
            }
        }
        self.devices = self.devices.saturating_sub(1);
    }
}

/// By the full name, or by the bare id where the domain is the driver's.
fn find<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a DeviceAttribute> {
    let attributes = device.attributes.as_ref()?;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        if domain == driver { attributes.get(id) } else { None }
    })
}

/// A value that can be compared; lists can't without their feature gate.
#[derive(Debug, PartialEq, Eq)]
enum Scalar<'a> {
    Int(i64),
    Bool(bool),
    String(&'a str),
    Version(&'a str),
}

fn scalar(value: &DeviceAttribute) -> Option<Scalar<'_>> {
    match value {
        DeviceAttribute { string: Some(text), .. } => Some(Scalar::String(text)),
        DeviceAttribute { int: Some(number), .. } => Some(Scalar::Int(*number)),
        DeviceAttribute { bool: Some(flag), .. } => Some(Scalar::Bool(*flag)),
        DeviceAttribute { version: Some(text), .. } => Some(Scalar::Version(text)),
        _ => None,
    }
}

fn same(a: &DeviceAttribute, b: &DeviceAttribute) -> bool {
    matches!((scalar(a), scalar(b)), (Some(a), Some(b)) if a == b)
}

fn shown(value: &DeviceAttribute) -> String {
    match scalar(value) {
        Some(Scalar::Int(number)) => number.to_string(),
        Some(Scalar::Bool(flag)) => flag.to_string(),
        Some(Scalar::String(text) | Scalar::Version(text)) => text.to_owned(),
        None => "a list".to_owned(),
    }
}
