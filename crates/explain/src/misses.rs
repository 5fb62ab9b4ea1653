//! Near misses: devices that one thing alone keeps from a request, over all nodes, and what
//! would change it.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_allocator::{Candidate, Reason, Survey};
use gpu_dra_cel::{Comparison, Operator, Shown};

use crate::report::Nearest;
use crate::words;

/// Near misses so far.
#[derive(Debug, Default)]
pub(crate) struct Misses {
    /// By claim, request and the thing.
    found: BTreeMap<(usize, String, Thing), Found>,
}

/// The one thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    /// A term of a selector.
    Term(String),
    /// Claims hold them.
    InUse,
    /// A taint.
    Taint(String),
    /// Capacity or counters that others use.
    Used(String),
}

#[derive(Debug)]
struct Found {
    devices: usize,
    nodes: usize,
    last_node: usize,
    /// The comparison of a term, with the value that comes nearest.
    best: Option<Comparison>,
    /// Who holds them.
    holders: BTreeSet<String>,
    /// Seen values.
    seen: BTreeSet<String>,
}

impl Misses {
    /// Adds a node, the `number`th.
    pub(crate) fn add(&mut self, survey: &Survey<'_>, number: usize) {
        for request in &survey.requests {
            for candidate in &request.devices {
                let Some((thing, comparison, holder)) = alone(candidate) else { continue };
                let key = (request.claim, request.request.clone(), thing);
                let found = self.found.entry(key).or_insert_with(|| Found {
                    devices: 0,
                    nodes: 0,
                    last_node: usize::MAX,
                    best: None,
                    holders: BTreeSet::new(),
                    seen: BTreeSet::new(),
                });
                found.devices += 1;
                found.nodes += usize::from(found.last_node != number);
                found.last_node = number;
                if let Some(holder) = holder.filter(|_| found.holders.len() < 4) {
                    found.holders.insert(holder);
                }
                if let Some(comparison) = comparison {
                    if found.seen.len() < 4 {
                        found.seen.insert(words::seen(&comparison));
                    }
                    if found.best.as_ref().is_none_or(|best| is_nearer(&comparison, best)) {
                        found.best = Some(comparison);
                    }
                }
            }
        }
    }

    /// The misses in words, most devices first, three for each request.
    pub(crate) fn into_nearest(self, claims: &[String]) -> Vec<Nearest> {
        let mut all: Vec<_> = self.found.into_iter().collect();
        all.sort_by_key(|((claim, request, _), found)| {
            (*claim, request.clone(), std::cmp::Reverse(found.devices))
        });
        let mut kept: BTreeMap<(usize, String), usize> = BTreeMap::new();
        let mut nearest = Vec::new();
        for ((claim, request, thing), found) in all {
            let kept = kept.entry((claim, request.clone())).or_default();
            *kept += 1;
            if *kept > 3 {
                continue;
            }
            nearest.push(Nearest {
                claim: claims.get(claim).cloned().unwrap_or_default(),
                request,
                devices: found.devices,
                nodes: found.nodes,
                text: text(&thing, &found),
            });
        }
        nearest
    }
}

/// The one thing that keeps a device off, with its comparison or the claim that holds it.
fn alone(candidate: &Candidate<'_>) -> Option<(Thing, Option<Comparison>, Option<String>)> {
    let [obstacle] = candidate.obstacles.as_slice() else {
        return None;
    };
    match &obstacle.reason {
        Reason::Selector { .. } => match &*obstacle.terms {
            [term] if term.error.is_none() => {
                let comparison = match term.comparisons.as_slice() {
                    [one] => Some(one.clone()),
                    _ => None,
                };
                Some((Thing::Term(words::rule(term)), comparison, None))
            }
            _ => None,
        },
        Reason::InUse { claim } => Some((Thing::InUse, None, Some(claim.clone()))),
        Reason::Taint { key, value, effect } => {
            Some((Thing::Taint(format!("{key}={value}:{effect}")), None, None))
        }
        Reason::Capacity { name, .. } => Some((Thing::Used(name.clone()), None, None)),
        Reason::Counters { counter, .. } => Some((Thing::Used(counter.clone()), None, None)),
        _ => None,
    }
}

fn is_nearer(a: &Comparison, b: &Comparison) -> bool {
    let wants_less = matches!(a.operator, Operator::Less | Operator::LessEquals);
    match (&a.seen, &b.seen) {
        (Ok(Shown::Quantity(a)), Ok(Shown::Quantity(b))) => {
            if wants_less {
                a < b
            } else {
                a > b
            }
        }
        (Ok(Shown::Int(a)), Ok(Shown::Int(b))) => {
            if wants_less {
                a < b
            } else {
                a > b
            }
        }
        _ => false,
    }
}

fn text(thing: &Thing, found: &Found) -> String {
    let who = words::count(found.devices, "device");
    let fail = if found.devices == 1 { "fails" } else { "fail" };
    match thing {
        Thing::Term(rule) => match found.best.as_ref().map(|best| (best, bound(best))) {
            Some((best, Some(bound))) => format!(
                "{who} {fail} only by {}: {} {} {}; did you mean {bound}?",
                words::subject(best),
                words::seen(best),
                opposite(best.operator),
                best.wanted.as_ref().map_or_else(String::new, words::shown),
            ),
            Some((best, None)) => {
                let seen: Vec<String> = found.seen.iter().cloned().collect();
                format!(
                    "{who} {fail} only by {}: wanted {}, seen {}",
                    words::subject(best),
                    words::wanted(best),
                    words::list(&seen, 4)
                )
            }
            None => format!("{who} {fail} only by: {rule}"),
        },
        Thing::InUse => {
            let holders: Vec<String> = found.holders.iter().cloned().collect();
            format!(
                "{who} would do, but {} held by other claims: {}",
                if found.devices == 1 { "is" } else { "are" },
                words::list(&holders, 4)
            )
        }
        Thing::Taint(taint) => {
            format!("{who} {fail} only by taint {taint}: tolerate it, or clear its cause")
        }
        Thing::Used(what) => {
            format!("{who} {fail} only because other claims use too much of {what}")
        }
    }
}

/// What would have taken the best value.
fn bound(comparison: &Comparison) -> Option<String> {
    let grow = matches!(comparison.operator, Operator::Greater | Operator::GreaterEquals);
    match comparison.seen.as_ref().ok()? {
        Shown::Quantity(seen) if grow => Some(format!(">= {}", words::rounded_down(seen))),
        Shown::Version(seen) if grow => Some(format!(">= {seen}")),
        Shown::Int(seen) if grow => Some(format!(">= {seen}")),
        _ => None,
    }
}

/// How what was seen stands to what was wanted.
fn opposite(operator: Operator) -> &'static str {
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
