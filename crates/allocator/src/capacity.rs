//! Consumable capacity: what a request takes of each capacity of a device after its policy's
//! rounding, and whether that is left.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;
use gpu_dra_model::quantity::Format;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::Rules;
use crate::candidate::quantity;
use crate::reason::{Fit, Reason};

/// One capacity of a device.
#[derive(Debug)]
pub(crate) struct Capacity<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Quantity,
    policy: Option<Policy>,
    rules: Rules,
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
        step: Option<Step>,
    },
    /// Ascending, as the API has checked.
    Values(Vec<Quantity>),
}

/// The steps of a range.
#[derive(Debug)]
enum Step {
    /// Whole units, from the least value on.
    Whole { min: Quantity, step: Quantity },
    /// Thousandths, where all numbers of the range are such (Kubernetes 1.37,
    /// `DRAFractionalCapacityRange`).
    Milli { min: i64, step: i64, format: Format },
}

impl<'a> Capacity<'a> {
    pub(crate) fn read(
        name: &'a str,
        capacity: &DeviceCapacity,
        rules: Rules,
    ) -> Result<Self, String> {
        let policy = capacity.request_policy.as_ref();
        Ok(Self {
            name,
            value: quantity(&capacity.value.0, "capacity", name)?,
            policy: policy.map(|policy| Policy::read(policy, name, rules)).transpose()?,
            rules,
        })
    }

    /// What a request takes: as asked and rounded up, else the default, else everything. None
    /// where that can't be reckoned.
    pub(crate) fn consumed(&self, requested: Option<&Quantity>) -> Option<Quantity> {
        let policy = self.policy.as_ref();
        let consumed = match (requested, policy) {
            (None, policy) => policy.and_then(|policy| policy.default).unwrap_or(self.value),
            (Some(requested), None) => *requested,
            (Some(requested), Some(policy)) => policy.rounded(requested, self.rules)?,
        };
        (consumed.sign() >= 0 || self.rules == Rules::UpTo136).then_some(consumed)
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
            Valid::Range { max, step, .. } => {
                max.as_ref().is_none_or(|max| consumed <= max)
                    && step.as_ref().is_none_or(|step| step.reaches(consumed))
            }
        }
    }
}

impl Policy {
    fn read(policy: &CapacityRequestPolicy, name: &str, rules: Rules) -> Result<Self, String> {
        let optional = |value: Option<&ApiQuantity>| {
            value.map(|value| quantity(&value.0, "capacity", name)).transpose()
        };
        let valid = match (&policy.valid_range, &policy.valid_values) {
            (Some(range), _) => {
                let min = quantity(&range.min.0, "capacity", name)?;
                let max = optional(range.max.as_ref())?;
                let step = optional(range.step.as_ref())?;
                let step = step.map(|step| Step::new(min, max.as_ref(), step, rules));
                Valid::Range { min, max, step }
            }
            (None, Some(values)) if !values.is_empty() => {
                let read = values.iter().map(|value| quantity(&value.0, "capacity", name));
                Valid::Values(read.collect::<Result<_, _>>()?)
            }
            _ => Valid::Any,
        };
        Ok(Self { default: optional(policy.default.as_ref())?, valid })
    }

    fn rounded(&self, requested: &Quantity, rules: Rules) -> Option<Quantity> {
        match &self.valid {
            Valid::Range { min, .. } if requested < min => Some(*min),
            Valid::Range { step: Some(step), .. } => match (step.rounded_up(requested), rules) {
                // The sum that the scheduler comes to is then nonsense.
                (None, Rules::UpTo136) => Some(*requested),
                (rounded, _) => rounded,
            },
            Valid::Range { step: None, .. } | Valid::Any => Some(*requested),
            Valid::Values(values) => {
                Some(values.iter().find(|value| requested <= value).copied().unwrap_or(*requested))
            }
        }
    }
}

impl Step {
    fn new(min: Quantity, max: Option<&Quantity>, step: Quantity, rules: Rules) -> Self {
        let whole = Self::Whole { min, step };
        if rules == Rules::UpTo136 || max.is_some_and(|max| milli(max).is_none()) {
            return whole;
        }
        match (milli(&min), milli(&step)) {
            (Some(min), Some(milli)) if milli > 0 => {
                Self::Milli { min, step: milli, format: step.format() }
            }
            _ => whole,
        }
    }

    /// Up to `min + n * step`. None where the numbers don't fit 64 bits, or the step is zero.
    fn rounded_up(&self, requested: &Quantity) -> Option<Quantity> {
        let up = |requested: i64, min: i64, step: i64| {
            let added = requested.checked_sub(min)?;
            let steps = added.checked_div(step)? + i64::from(added.checked_rem(step)? != 0);
            min.checked_add(step.checked_mul(steps)?)
        };
        match self {
            Self::Whole { min, step } => {
                let rounded = up(requested.ceil()?, min.ceil()?, step.ceil()?)?;
                Some(Quantity::from_integer(rounded, Format::BinarySi))
            }
            Self::Milli { min, step, format } => {
                let rounded = up(milli(requested)?, *min, *step)?;
                if rounded % 1000 == 0 {
                    return Some(Quantity::from_integer(rounded / 1000, *format));
                }
                from_milli(rounded)
            }
        }
    }

    fn reaches(&self, consumed: &Quantity) -> bool {
        let rest = match self {
            Self::Whole { min, step } => consumed
                .ceil()
                .and_then(|consumed| consumed.checked_sub(min.ceil()?)?.checked_rem(step.ceil()?)),
            Self::Milli { min, step, .. } => {
                milli(consumed).and_then(|consumed| consumed.checked_sub(*min)?.checked_rem(*step))
            }
        };
        rest == Some(0)
    }
}

/// The thousandths, where that is the exact value and fits 64 bits.
fn milli(value: &Quantity) -> Option<i64> {
    let milli = i64::try_from(value.ceil_milli()?).ok()?;
    (from_milli(milli)? == *value).then_some(milli)
}

fn from_milli(milli: i64) -> Option<Quantity> {
    format!("{milli}m").parse().ok()
}

/// The first capacity of which a request would take more than can be reckoned, if the device
/// has all that is asked for.
pub(crate) fn unreckonable<'a>(
    capacities: &[Capacity<'a>],
    requested: &BTreeMap<String, Quantity>,
) -> Option<&'a str> {
    if unknown(capacities, requested).is_some() {
        return None;
    }
    let found = capacities.iter().find(|c| c.consumed(requested.get(c.name)).is_none());
    found.map(|capacity| capacity.name)
}

/// A capacity that is asked for and not there. Names must be written as the device has them:
/// no domain is added or removed.
fn unknown<'r>(
    capacities: &[Capacity<'_>],
    requested: &'r BTreeMap<String, Quantity>,
) -> Option<&'r String> {
    requested.keys().find(|name| !capacities.iter().any(|c| c.name == name.as_str()))
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
    if let Some(name) = unknown(capacities, requested) {
        return Err(Box::new(Reason::NoCapacity { name: name.clone() }));
    }
    for capacity in capacities {
        let asked = requested.get(capacity.name);
        let consumed = capacity.consumed(asked);
        let wanted = consumed.or(asked.copied()).unwrap_or(capacity.value);
        let name = || capacity.name.to_owned();
        if consumed.is_none() || !capacity.allows(&wanted) {
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
            for rules in [Rules::UpTo136, Rules::From137] {
                let capacity = Capacity::read("memory", capacity, rules).unwrap();
                let found = capacity.consumed(requested.map(q).as_ref()).unwrap();
                assert_eq!(found, q(consumed), "{requested:?} of {capacity:?}");
                assert_eq!(capacity.allows(&found), allowed, "{requested:?} of {capacity:?}");
            }
        }
    }

    /// Capacity, what is asked for, what is consumed by the older and by the newer rules, and
    /// whether the policy allows it; None: it can't be reckoned.
    #[test]
    fn newer_rules_round_in_thousandths_and_refuse_what_cannot_be_reckoned() {
        let cores = ranged("8", "1", "200m", "4", Some("100m"));
        let whole = ranged("8", "1", "1", "4", Some("1"));
        let open = ranged("8", "1", "1", "8", None);
        let huge = ranged("10E", "1", "1", "10E", Some("3"));
        let plain = DeviceCapacity { value: api("8"), request_policy: None };
        let fine = ranged("8", "1", "1u", "4", Some("100m"));
        for (capacity, requested, before, now) in [
            (&cores, "250m", ("1", true), Some(("300m", true))),
            (&cores, "1", ("1", true), Some(("1", true))),
            (&cores, "4050m", ("5", false), Some(("4100m", false))),
            (&whole, "1500m", ("2", true), Some(("2", true))),
            (&whole, "1u", ("1", true), Some(("1", true))),
            (&whole, "1500001u", ("2", true), None),
            (&whole, "10P", ("10P", false), None),
            (&open, "10E", ("10E", false), Some(("10E", false))),
            (
                &huge,
                "9223372036854775807",
                ("9223372036854775807", true),
                Some(("9223372036854775807", true)),
            ),
            (&huge, "10E", ("10E", false), None),
            (&plain, "-1", ("-1", true), None),
            (&fine, "1500m", ("2", true), Some(("2", true))),
        ] {
            for (rules, expected) in [(Rules::UpTo136, Some(before)), (Rules::From137, now)] {
                let capacity = Capacity::read("memory", capacity, rules).unwrap();
                let found = capacity.consumed(Some(&q(requested)));
                let found = found.map(|found| (found, capacity.allows(&found)));
                let expected = expected.map(|(consumed, allowed)| (q(consumed), allowed));
                assert_eq!(found, expected, "{requested} of {capacity:?}");
                let asked = BTreeMap::from([("memory".to_owned(), q(requested))]);
                let unreckonable = unreckonable(std::slice::from_ref(&capacity), &asked);
                assert_eq!(unreckonable.is_some(), expected.is_none());
                let fits = check(&[capacity], &asked, |_| Some(Quantity::ZERO));
                assert!(expected.is_some() || fits.is_err());
            }
        }
    }

    #[test]
    fn what_is_left_decides() {
        let shares = ranged("10Gi", "10Gi", "1Gi", "10Gi", Some("1Gi"));
        let capacity = [Capacity::read("memory", &shares, Rules::default()).unwrap()];
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
