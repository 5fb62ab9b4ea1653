//! The values that kept devices off one comparison, and the bound that would have taken those
//! that come nearest, with how many that are.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use gpu_dra_cel::{Comparison, Operator, Shown};
use gpu_dra_model::Quantity;
use semver::Version;

use crate::words;

/// Distinct values kept; where there are more, the nearest.
const MOST: usize = 32;

/// Values seen, each with its devices.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<Value>);

#[derive(Debug)]
struct Value {
    comparison: Comparison,
    devices: usize,
    /// By number, each once, in order.
    nodes: Vec<usize>,
}

/// What would have been met.
pub(crate) struct Bound<'v> {
    /// `>= 79Gi`.
    pub(crate) text: String,
    /// The comparison that came nearest.
    pub(crate) best: &'v Comparison,
    /// The values that it would take.
    pub(crate) seen: Vec<String>,
    /// Their devices.
    pub(crate) devices: usize,
    /// The nodes of those.
    pub(crate) nodes: usize,
}

impl Values {
    /// Adds a device of a node.
    pub(crate) fn add(&mut self, comparison: &Comparison, node: usize) {
        if let Some(known) = self.0.iter_mut().find(|v| v.comparison.seen == comparison.seen) {
            known.devices += 1;
            if known.nodes.last() != Some(&node) {
                known.nodes.push(node);
            }
            return;
        }
        if self.0.len() >= MOST {
            let farthest =
                (0..self.0.len()).min_by(|a, b| match (self.0.get(*a), self.0.get(*b)) {
                    (Some(a), Some(b)) => nearness(&a.comparison, &b.comparison),
                    _ => Ordering::Equal,
                });
            let Some(place) = farthest else { return };
            let is_nearer = |known: &Value| nearness(comparison, &known.comparison).is_gt();
            if !self.0.get(place).is_some_and(is_nearer) {
                return;
            }
            self.0.swap_remove(place);
        }
        self.0.push(Value { comparison: comparison.clone(), devices: 1, nodes: vec![node] });
    }

    /// The bound that takes the nearest; None where a bound doesn't help.
    pub(crate) fn bound(&self) -> Option<Bound<'_>> {
        let best = self.0.iter().map(|value| &value.comparison).max_by(|a, b| nearness(a, b))?;
        let sign = sign(best.operator)?;
        let (limit, text) = match best.seen.as_ref().ok()? {
            Shown::Quantity(seen) if sign == ">=" => {
                let text = words::rounded_down(seen);
                (Shown::Quantity(text.parse::<Quantity>().ok()?), text)
            }
            seen @ (Shown::Quantity(_) | Shown::Version(_) | Shown::Int(_)) => {
                (seen.clone(), seen.to_string())
            }
            _ => return None,
        };
        let is_taken = |value: &&Value| {
            let order = value.comparison.seen.as_ref().ok().and_then(|seen| order(seen, &limit));
            order.is_some_and(|order| if sign == ">=" { order.is_ge() } else { order.is_le() })
        };
        let mut taken: Vec<&Value> = self.0.iter().filter(is_taken).collect();
        taken.sort_by(|a, b| nearness(&b.comparison, &a.comparison));
        let nodes: BTreeSet<usize> = taken.iter().flat_map(|value| &value.nodes).copied().collect();
        Some(Bound {
            text: format!("{sign} {text}"),
            best,
            seen: taken.iter().map(|value| words::seen(&value.comparison)).collect(),
            devices: taken.iter().map(|value| value.devices).sum(),
            nodes: nodes.len(),
        })
    }

    /// What was looked at, what was asked for, and the values seen.
    pub(crate) fn words(&self) -> (String, String, Vec<String>) {
        let seen: BTreeSet<String> = self.0.iter().map(|v| words::seen(&v.comparison)).collect();
        let first = self.0.first().map(|value| &value.comparison);
        let (subject, wanted) = first
            .map_or_else(Default::default, |first| (words::subject(first), words::wanted(first)));
        (subject, wanted, seen.into_iter().collect())
    }
}

/// Which of two comparisons comes nearer to being met.
fn nearness(a: &Comparison, b: &Comparison) -> Ordering {
    let (Ok(seen), Ok(other)) = (&a.seen, &b.seen) else { return Ordering::Equal };
    match (order(seen, other), sign(a.operator)) {
        (Some(order), Some("<=")) => order.reverse(),
        (Some(order), Some(_)) => order,
        _ => Ordering::Equal,
    }
}

/// The sign of a bound in the direction of the operator.
fn sign(operator: Operator) -> Option<&'static str> {
    match operator {
        Operator::Greater | Operator::GreaterEquals => Some(">="),
        Operator::Less | Operator::LessEquals => Some("<="),
        _ => None,
    }
}

fn order(a: &Shown, b: &Shown) -> Option<Ordering> {
    match (a, b) {
        (Shown::Quantity(a), Shown::Quantity(b)) => a.partial_cmp(b),
        (Shown::Int(a), Shown::Int(b)) => Some(a.cmp(b)),
        (Shown::Version(a), Shown::Version(b)) => {
            let version = |text: &str| Version::parse(text).ok();
            Some(version(a)?.cmp_precedence(&version(b)?))
        }
        _ => None,
    }
}
