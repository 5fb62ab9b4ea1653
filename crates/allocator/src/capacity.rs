//! Consumable capacity: what a request takes of each capacity of a device after its policy's
//! rounding, and whether that is left.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;
use gpu_dra_model::quantity::Format;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::candidate::quantity;
use crate::reason::{Fit, Reason};

/// One capacity of a device.
#[derive(Debug)]
pub(crate) struct Capacity<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Quantity,
    policy: Option<Policy>,
}

#[derive(Debug)]
struct Policy {
    default: Option<Quantity>,
    valid: Valid,
}

/// What a claim may have of a capacity.
#[derive(Debug)]
enum Valid {
    Any,
    Range {
        min: Quantity,
        max: Option<Quantity>,
        step: Option<Quantity>,
    },
    /// Ascending, as the API has checked.
    Values(Vec<Quantity>),
}

impl<'a> Capacity<'a> {
    pub(crate) fn read(name: &'a str, capacity: &DeviceCapacity) -> Result<Self, String> {
        let policy = capacity.request_policy.as_ref();
        Ok(Self {
            name,
            value: quantity(&capacity.value.0, "capacity", name)?,
            policy: policy.map(|policy| Policy::read(policy, name)).transpose()?,
        })
    }

    /// What a request takes: as asked and rounded up, else the default, else everything.
    pub(crate) fn consumed(&self, requested: Option<&Quantity>) -> Quantity {
        let policy = self.policy.as_ref();
        let Some(requested) = requested else {
            return policy.and_then(|policy| policy.default).unwrap_or(self.value);
        };
        match policy.map(|policy| &policy.valid) {
            Some(Valid::Range { min, .. }) if requested < min => *min,
            Some(Valid::Range { min, step: Some(step), .. }) => {
                rounded_up(requested, min, step).unwrap_or(*requested)
            }
            Some(Valid::Values(values)) => {
                values.iter().find(|value| requested <= value).copied().unwrap_or(*requested)
            }
            _ => *requested,
        }
    }

    /// Whether the policy lets a claim have this much.
    fn allows(&self, consumed: &Quantity) -> bool {
        let Some(policy) = &self.policy else {
            return true;
        };
        if policy.default.as_ref() == Some(consumed) {
            return true;
        }
        match &policy.valid {
            Valid::Any => true,
            Valid::Values(values) => values.contains(consumed),
            Valid::Range { min, max, step } => {
                max.as_ref().is_none_or(|max| consumed <= max)
                    && step.as_ref().is_none_or(|step| is_step(consumed, min, step))
            }
        }
    }
}

impl Policy {
    fn read(policy: &CapacityRequestPolicy, name: &str) -> Result<Self, String> {
        let optional = |value: Option<&ApiQuantity>| {
            value.map(|value| quantity(&value.0, "capacity", name)).transpose()
        };
        let valid = match (&policy.valid_range, &policy.valid_values) {
            (Some(range), _) => Valid::Range {
                min: quantity(&range.min.0, "capacity", name)?,
                max: optional(range.max.as_ref())?,
                step: optional(range.step.as_ref())?,
            },
            (None, Some(values)) if !values.is_empty() => {
                let read = values.iter().map(|value| quantity(&value.0, "capacity", name));
                Valid::Values(read.collect::<Result<_, _>>()?)
            }
            _ => Valid::Any,
        };
        Ok(Self { default: optional(policy.default.as_ref())?, valid })
    }
}

/// Up to `min + n * step`, in whole units as the scheduler reckons. None where the numbers
/// don't fit 64 bits, or the step is zero.
fn rounded_up(requested: &Quantity, min: &Quantity, step: &Quantity) -> Option<Quantity> {
    let (requested, min, step) = (requested.ceil()?, min.ceil()?, step.ceil()?);
    let added = requested.checked_sub(min)?;
    let steps = added.checked_div(step)? + i64::from(added.checked_rem(step)? != 0);
    let rounded = min.checked_add(step.checked_mul(steps)?)?;
    Some(Quantity::from_integer(rounded, Format::BinarySi))
}

fn is_step(consumed: &Quantity, min: &Quantity, step: &Quantity) -> bool {
    let rest = || {
        let added = consumed.ceil()?.checked_sub(min.ceil()?)?;
        added.checked_rem(step.ceil()?)
    };
    rest() == Some(0)
}

/// Whether a request fits a device beside what others take of it, None where that can't be
/// reckoned.
///
/// # Errors
/// The first capacity that doesn't.
pub(crate) fn check(
    capacities: &[Capacity<'_>],
    requested: &BTreeMap<String, Quantity>,
    taken: impl Fn(&str) -> Option<Quantity>,
) -> Fit {
    // Names must be written as the device has them: no domain is added or removed.
    let unknown = requested.keys().find(|name| !capacities.iter().any(|c| c.name == name.as_str()));
    if let Some(name) = unknown {
        return Err(Box::new(Reason::NoCapacity { name: name.clone() }));
    }
    for capacity in capacities {
        let wanted = capacity.consumed(requested.get(capacity.name));
        let name = || capacity.name.to_owned();
        if !capacity.allows(&wanted) {
            return Err(Box::new(Reason::CapacityPolicy { name: name(), wanted }));
        }
        let taken = taken(capacity.name);
        let sum = taken.and_then(|taken| taken.add(&wanted).ok());
        if sum.is_none_or(|sum| sum > capacity.value) {
            let left = taken.and_then(|taken| capacity.value.sub(&taken).ok());
            let left = left.unwrap_or(Quantity::ZERO);
            return Err(Box::new(Reason::Capacity { name: name(), wanted, left }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::CapacityRequestPolicyRange;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    fn api(text: &str) -> ApiQuantity {
        ApiQuantity(text.to_owned())
    }

    fn ranged(
        value: &str,
        default: &str,
        min: &str,
        max: &str,
        step: Option<&str>,
    ) -> DeviceCapacity {
        let range =
            CapacityRequestPolicyRange { min: api(min), max: Some(api(max)), step: step.map(api) };
        let policy = CapacityRequestPolicy {
            default: Some(api(default)),
            valid_range: Some(range),
            valid_values: None,
        };
        DeviceCapacity { value: api(value), request_policy: Some(policy) }
    }

    fn listed(value: &str, default: &str, values: &[&str]) -> DeviceCapacity {
        let policy = CapacityRequestPolicy {
            default: Some(api(default)),
            valid_range: None,
            valid_values: Some(values.iter().map(|v| api(v)).collect()),
        };
        DeviceCapacity { value: api(value), request_policy: Some(policy) }
    }

    /// Capacity, what is asked for, what is consumed, whether the policy allows it.
    #[test]
    fn requests_round_up_by_the_policy() {
        let plain = DeviceCapacity { value: api("80Gi"), request_policy: None };
        let shares = ranged("80Gi", "80Gi", "1Gi", "80Gi", Some("1Gi"));
        let coarse = ranged("80Gi", "10Gi", "2Gi", "20Gi", Some("3Gi"));
        let open = ranged("80Gi", "10Gi", "2Gi", "20Gi", None);
        let values = listed("80Gi", "10Gi", &["10Gi", "20Gi", "40Gi"]);
        for (capacity, requested, consumed, allowed) in [
            (&plain, None, "80Gi", true),
            (&plain, Some("4Gi"), "4Gi", true),
            (&plain, Some("100Gi"), "100Gi", true),
            (&shares, None, "80Gi", true),
            (&shares, Some("1500Mi"), "2Gi", true),
            (&shares, Some("1Mi"), "1Gi", true),
            (&shares, Some("81Gi"), "81Gi", false),
            (&coarse, None, "10Gi", true),
            (&coarse, Some("2Gi"), "2Gi", true),
            (&coarse, Some("6Gi"), "8Gi", true),
            (&coarse, Some("20Gi"), "20Gi", true),
            (&coarse, Some("21Gi"), "23Gi", false),
            (&open, Some("2500Mi"), "2500Mi", true),
            (&open, Some("1"), "2Gi", true),
            (&open, Some("30Gi"), "30Gi", false),
            (&values, None, "10Gi", true),
            (&values, Some("11Gi"), "20Gi", true),
            (&values, Some("1Gi"), "10Gi", true),
            (&values, Some("41Gi"), "41Gi", false),
        ] {
            let capacity = Capacity::read("memory", capacity).unwrap();
            let found = capacity.consumed(requested.map(q).as_ref());
            assert_eq!(found, q(consumed), "{requested:?} of {capacity:?}");
            assert_eq!(capacity.allows(&found), allowed, "{requested:?} of {capacity:?}");
        }
    }

    #[test]
    fn what_is_left_decides() {
        let shares = ranged("10Gi", "10Gi", "1Gi", "10Gi", Some("1Gi"));
        let capacity = [Capacity::read("memory", &shares).unwrap()];
        let ask = |text: &str| BTreeMap::from([("memory".to_owned(), q(text))]);
        assert_eq!(check(&capacity, &ask("4Gi"), |_| Some(q("6Gi"))), Ok(()));
        assert!(check(&capacity, &ask("4Gi"), |_| None).is_err());
        assert_eq!(
            check(&capacity, &ask("4Gi"), |_| Some(q("7Gi"))),
            Err(Box::new(Reason::Capacity {
                name: "memory".into(),
                wanted: q("4Gi"),
                left: q("3Gi")
            }))
        );
        let qualified = BTreeMap::from([("gpu.nvidia.com/memory".to_owned(), q("4Gi"))]);
        let refused =
            check(&capacity, &qualified, |_| Some(Quantity::ZERO)).map_err(|reason| *reason);
        assert_eq!(refused, Err(Reason::NoCapacity { name: "gpu.nvidia.com/memory".into() }));
    }
}
