//! Values in words: quantities as people compare them, comparisons, counts.

use gpu_dra_cel::{Comparison, EvalError, Field, Operator, Shown, Term};
use gpu_dra_model::Quantity;

/// `8 devices`, `1 device`.
pub(crate) fn count(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `81559Mi (79.6Gi)`: as published, and in Gi where that says more.
pub(crate) fn quantity(quantity: &Quantity) -> String {
    let text = quantity.to_string();
    match in_gi(quantity) {
        Some(gi) if !text.ends_with("Gi") => format!("{text} ({gi:.1}Gi)"),
        _ => text,
    }
}

/// Whole Gi that are not more than the quantity; the quantity itself below 1Gi.
pub(crate) fn rounded_down(quantity: &Quantity) -> String {
    match in_gi(quantity) {
        Some(gi) if gi >= 1.0 => format!("{gi:.0}Gi", gi = gi.floor()),
        _ => quantity.to_string(),
    }
}

fn in_gi(quantity: &Quantity) -> Option<f64> {
    let gi = quantity.as_approximate_float() / f64::from(1_u32 << 30);
    (gi >= 0.1).then_some(gi)
}

/// A value as it is shown beside another.
pub(crate) fn shown(value: &Shown) -> String {
    match value {
        Shown::Quantity(value) => quantity(value),
        other => other.to_string(),
    }
}

/// What a comparison looks at: `memory`, or the left side as it is written.
pub(crate) fn subject(comparison: &Comparison) -> String {
    match &comparison.field {
        Some(Field::Attribute { name, .. } | Field::Capacity { name, .. }) => name.clone(),
        Some(field) => field.to_string(),
        None => shortened(&comparison.subject),
    }
}

/// What a comparison asks for: `>= 80Gi`.
pub(crate) fn wanted(comparison: &Comparison) -> String {
    match &comparison.wanted {
        Some(wanted) => format!("{} {wanted}", comparison.operator),
        None => "true".to_owned(),
    }
}

/// What a comparison saw.
pub(crate) fn seen(comparison: &Comparison) -> String {
    match &comparison.seen {
        Ok(value) => shown(value),
        Err(EvalError::NoSuchKey(_)) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// A term without its values: `memory >= 80Gi`.
pub(crate) fn rule(term: &Term) -> String {
    let parts: Vec<String> = term
        .comparisons
        .iter()
        .map(|comparison| match comparison.operator {
            Operator::Is => shortened(&comparison.text),
            _ => format!("{} {}", subject(comparison), wanted(comparison)),
        })
        .collect();
    match parts.as_slice() {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first} or {second} or {third} or others")
        }
        parts => parts.join(" or "),
    }
}

/// How what was seen stands to what was wanted.
pub(crate) fn opposite(operator: Operator) -> &'static str {
    match operator {
        Operator::Greater => "<=",
        Operator::GreaterEquals => "<",
        Operator::Less => ">=",
        Operator::LessEquals => ">",
        Operator::Equals => "!=",
        Operator::NotEquals => "==",
        _ => "not",
    }
}

/// The first of a list, and how many more.
pub(crate) fn list(items: &[String], most: usize) -> String {
    let mut text = items.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    if items.len() > most {
        text.push_str(&format!(" and {} more", items.len() - most));
    }
    text
}

/// At most 90 characters.
pub(crate) fn shortened(text: &str) -> String {
    const MOST: usize = 90;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MOST - 3).collect();
    short.push_str("...");
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_as_people_compare_them() {
        for (text, want, down) in [
            ("81559Mi", "81559Mi (79.6Gi)", "79Gi"),
            ("80Gi", "80Gi", "80Gi"),
            ("23034Mi", "23034Mi (22.5Gi)", "22Gi"),
            ("80G", "80G (74.5Gi)", "74Gi"),
            ("512Mi", "512Mi (0.5Gi)", "512Mi"),
            ("7", "7", "7"),
        ] {
            let value: Quantity = text.parse().unwrap();
            assert_eq!((quantity(&value), rounded_down(&value)), (want.into(), down.into()));
        }
        assert_eq!(
            (count(1, "device"), count(8, "device")),
            ("1 device".into(), "8 devices".into())
        );
    }
}
