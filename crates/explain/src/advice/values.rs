//! Comparisons that no published value meets: the values that are published, and the one that
//! was probably meant.

use gpu_dra_cel::{Comparison, Field, Operator, Shown, Term};
use gpu_dra_model::config::nearest;

use super::{Adviser, Weight};
use crate::catalog::Published;
use crate::report::Advice;
use crate::words;

impl Adviser<'_> {
    pub(super) fn values(&mut self, about: &str, terms: &[Term]) {
        for comparison in terms.iter().flat_map(|term| &term.comparisons) {
            let found = match &comparison.field {
                Some(Field::Capacity { domain, name }) => self.too_much(domain, name, comparison),
                Some(Field::Attribute { domain, name }) => {
                    let published = self.catalog.attribute(domain, name);
                    published.and_then(|published| unmet(name, published, comparison))
                }
                Some(Field::Driver) => self.driver(comparison),
                _ => None,
            };
            if let Some((problem, fix)) = found {
                self.add(Weight::Cause, Advice::new(about, problem, fix));
            }
        }
    }

    /// More is asked for than any device has.
    fn too_much(
        &self,
        domain: &str,
        name: &str,
        comparison: &Comparison,
    ) -> Option<(String, Option<String>)> {
        let largest = self.catalog.capacity(domain, name)?;
        let Some(Shown::Quantity(wanted)) = &comparison.wanted else { return None };
        let unmet = match comparison.operator {
            Operator::Greater => largest.value <= *wanted,
            Operator::GreaterEquals | Operator::Equals => largest.value < *wanted,
            _ => false,
        };
        if !unmet {
            return None;
        }
        let problem = format!(
            "nothing matches: the largest {name} published is {} ({}), {} was asked for",
            words::quantity(&largest.value),
            largest.what,
            in_mi(wanted)
        );
        Some((problem, Some(format!("use quantity('{}')", words::rounded_down(&largest.value)))))
    }

    fn driver(&self, comparison: &Comparison) -> Option<(String, Option<String>)> {
        let Some(Shown::Text(wanted)) = &comparison.wanted else { return None };
        let drivers = self.catalog.drivers();
        if comparison.operator != Operator::Equals || drivers.contains(&wanted.as_str()) {
            return None;
        }
        let part = |known: &&&str| known.ends_with(wanted.as_str()) || wanted.ends_with(**known);
        let near = drivers.iter().filter(|_| !wanted.is_empty()).find(part).copied();
        let fix = match near.or_else(|| nearest(wanted, &drivers)) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are {}", drivers.join(", ")),
        };
        Some((format!("no driver is named {wanted:?}"), Some(fix)))
    }
}

/// `80Gi = 81920Mi`.
fn in_mi(quantity: &gpu_dra_model::Quantity) -> String {
    let text = quantity.to_string();
    match (text.ends_with("Gi"), quantity.as_integer()) {
        (true, Some(bytes)) => format!("{text} = {}Mi", bytes >> 20),
        _ => text,
    }
}

/// A string or version that no device has.
fn unmet(
    name: &str,
    published: &Published<'_>,
    comparison: &Comparison,
) -> Option<(String, Option<String>)> {
    let values: Vec<String> = published.values.iter().map(ToString::to_string).collect();
    let text = match (&comparison.wanted, comparison.operator) {
        (Some(Shown::Text(text)), Operator::Equals)
            if !published.values.contains(text.as_str()) =>
        {
            text
        }
        (Some(Shown::Text(text)), Operator::StartsWith)
            if !values.iter().any(|value| value.starts_with(text.as_str())) =>
        {
            text
        }
        (Some(Shown::Text(text)), Operator::Contains)
            if !values.iter().any(|value| value.contains(text.as_str())) =>
        {
            text
        }
        (Some(Shown::Other(list)), Operator::In)
            if !values.iter().any(|v| list.contains(&format!("{v:?}"))) =>
        {
            let problem = format!(
                "no {name} is {}; published: {}",
                words::wanted(comparison),
                words::list(&values, 6)
            );
            return Some((problem, None));
        }
        _ => return None,
    };
    let verb = match comparison.operator {
        Operator::Equals => "equals",
        Operator::StartsWith => "starts with",
        _ => "contains",
    };
    let problem = format!("no {name} {verb} {text:?}; published: {}", words::list(&values, 6));
    let lower = text.to_lowercase();
    let holds = values.iter().find(|value| value.to_lowercase().contains(&lower));
    let known: Vec<&str> = values.iter().map(String::as_str).collect();
    let fix = match holds {
        Some(value) if value.to_lowercase() == lower => {
            format!("the case differs: write {value:?}")
        }
        Some(value) if name == "productName" => match comparison.operator {
            Operator::StartsWith => {
                format!("it is the full NVML name: startsWith({:?})", prefix(value, &lower))
            }
            _ => format!("it is the full NVML name: == {value:?}"),
        },
        Some(value) => format!("did you mean {value:?}?"),
        None => match nearest(text, &known) {
            Some(near) => format!("did you mean {near:?}?"),
            None => return Some((problem, None)),
        },
    };
    Some((problem, Some(fix)))
}

/// The value up to the end of what was asked for.
fn prefix(value: &str, lower: &str) -> String {
    let end = value.to_lowercase().find(lower).map_or(value.len(), |at| at + lower.len());
    value.get(..end).unwrap_or(value).to_owned()
}
