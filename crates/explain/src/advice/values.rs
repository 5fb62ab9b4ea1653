//! Comparisons that no published value meets: the values that are published, and the one that
//! was probably meant.

use gpu_dra_cel::{Comparison, Field, Operator, Shown, Term};
use gpu_dra_model::config::nearest;

use super::{Adviser, Weight};
use crate::catalog::Published;
use crate::folded::Fold;
use crate::report::Advice;
use crate::words;

/// Comparisons of a term that are told; of a term with so many there may be more.
const MOST_COMPARISONS: usize = 8;

impl Adviser<'_> {
    pub(super) fn values<'t>(&mut self, about: &str, terms: impl Iterator<Item = &'t Term>) {
        for term in terms {
            let found: Vec<_> =
                term.comparisons.iter().map(|comparison| self.unmet(comparison)).collect();
            // What one side of an `||` can't meet another may, also one that isn't told.
            let is_sure = found.len() == 1
                || found.len() < MOST_COMPARISONS && found.iter().all(Option::is_some);
            if is_sure {
                for (problem, fix) in found.into_iter().flatten() {
                    self.add(Weight::Cause, Advice::new(about, problem, fix));
                }
            }
        }
    }

    fn unmet(&self, comparison: &Comparison) -> Option<(String, Option<String>)> {
        match comparison.field.as_ref()? {
            Field::Capacity { domain, name } => self.too_much(domain, name, comparison),
            Field::Attribute { domain, name } => {
                unmet(name, self.catalog.attribute(domain, name)?, comparison)
            }
            Field::Driver => self.driver(comparison),
            Field::AllowMultipleAllocations => None,
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
    if published.has_more {
        return None;
    }
    let fold = Fold::of(comparison);
    let published: Vec<String> = published.values.iter().map(ToString::to_string).collect();
    let values: Vec<String> = published.iter().map(|v| fold.apply(v).into_owned()).collect();
    let any = |is_met: &dyn Fn(&str) -> bool| values.iter().any(|value| is_met(value));
    let (text, verb) = match (comparison.wanted.as_ref()?, comparison.operator) {
        (Shown::Text(text), Operator::Equals) if !any(&|v| v == text) => (text, "equals"),
        (Shown::Text(text), Operator::StartsWith) if !any(&|v| v.starts_with(text)) => {
            (text, "starts with")
        }
        (Shown::Text(text), Operator::Contains) if !any(&|v| v.contains(text)) => {
            (text, "contains")
        }
        // A list with dots at its end goes on.
        (Shown::Other(list), Operator::In)
            if !list.ends_with("...]") && !any(&|v| list.contains(&format!("{v:?}"))) =>
        {
            let problem = format!(
                "no {name} is {}; published: {}",
                words::wanted(comparison),
                words::list(&published, 6)
            );
            return Some((problem, None));
        }
        _ => return None,
    };
    if let Some(case) = fold.name()
        && fold.apply(text) != *text
    {
        let problem = format!("{name} is compared in {case}, so that it never {verb} {text:?}");
        return Some((problem, Some(format!("write {:?}", fold.apply(text)))));
    }
    let published = words::list(&published, 6);
    let problem = match fold.name() {
        Some(case) => format!("no {name} in {case} {verb} {text:?}; published: {published}"),
        None => format!("no {name} {verb} {text:?}; published: {published}"),
    };
    let fix = meant(name, text, &values, comparison.operator);
    Some((problem, fix))
}

/// The value that was probably meant, of values as they are compared.
fn meant(name: &str, text: &str, values: &[String], operator: Operator) -> Option<String> {
    let lower = text.to_lowercase();
    let holds = values.iter().find(|value| value.to_lowercase().contains(&lower));
    let known: Vec<&str> = values.iter().map(String::as_str).collect();
    Some(match holds {
        Some(value) if value.to_lowercase() == lower => {
            format!("the case differs: write {value:?}")
        }
        Some(value) if name == "productName" => match operator {
            Operator::StartsWith => {
                format!("it is the full NVML name: startsWith({:?})", prefix(value, &lower))
            }
            _ => format!("it is the full NVML name: == {value:?}"),
        },
        Some(value) => format!("did you mean {value:?}?"),
        None => format!("did you mean {:?}?", nearest(text, &known)?),
    })
}

/// The value up to the end of what was asked for.
fn prefix(value: &str, lower: &str) -> String {
    let end = value.to_lowercase().find(lower).map_or(value.len(), |at| at + lower.len());
    value.get(..end).unwrap_or(value).to_owned()
}
