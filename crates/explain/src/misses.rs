//! Near misses: devices that one thing alone keeps from a request, over all nodes, and what
//! would change it. Where there are none, those that two things keep from it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gpu_dra_allocator::{Allocated, Candidate, Reason, Survey, Surveyed};
use gpu_dra_cel::{Comparison, Term};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::by_class::{self, About, ByClass};
use crate::report::Nearest;
use crate::values::{Bound, Values};
use crate::{holders, words};

/// Different things kept for one request, and those that are told.
const MOST: usize = 128;
const TOLD: usize = 3;
/// Holders that are named.
const HOLDERS: usize = 4;

/// Near misses so far, by claim and request.
#[derive(Debug, Default)]
pub(crate) struct Misses(BTreeMap<(usize, String), OfRequest>);

#[derive(Debug, Default)]
struct OfRequest {
    /// Whether its class takes any device; then those that it doesn't take are no news.
    class_takes_any: bool,
    found: BTreeMap<Vec<Thing>, Found>,
}

/// A thing that keeps devices off.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    /// A term of the class.
    OfClass(String),
    /// A term of the request.
    Term(String),
    /// Claims hold them.
    InUse,
    /// A taint.
    Taint(String),
    /// Capacity or counters that others use.
    Used(String),
    /// Capacity or counters of which there isn't enough with nobody using them.
    Short(String),
}

#[derive(Debug, Default)]
struct Found {
    devices: usize,
    nodes: usize,
    last_node: Option<usize>,
    /// What was seen, where the one thing is one comparison.
    values: Option<Values>,
    /// Who holds them.
    holders: BTreeSet<String>,
}

/// Counters that devices in use take from: pool and set.
type InUse<'a> = HashSet<(&'a str, &'a str)>;

impl Misses {
    /// Adds a node, the `number`th.
    pub(crate) fn add(&mut self, survey: &Survey<'_>, allocated: &Allocated, number: usize) {
        for request in &survey.requests {
            let key = (request.claim, request.request.clone());
            let of_request = self.0.entry(key).or_default();
            let in_use = in_use(request, allocated);
            for candidate in &request.devices {
                let terms = match by_class::of(candidate) {
                    ByClass::Refused { .. } if of_request.class_takes_any => continue,
                    ByClass::Refused { terms, .. } => Some(terms),
                    ByClass::Failed => continue,
                    ByClass::Taken => None,
                };
                if terms.is_none() {
                    of_request.class_takes_any = true;
                }
                let things = match terms {
                    Some(terms) if by_class::about(terms) == About::Value => {
                        of_terms(terms, Thing::OfClass)
                    }
                    Some(_) => None,
                    None => things(candidate, allocated, &in_use),
                };
                let Some(things) = things.filter(|things| !things.is_empty()) else { continue };
                of_request.add(things, candidate, number);
            }
        }
    }

    /// The misses in words, most devices first, a few for each request.
    pub(crate) fn into_nearest(self, names: &[String], claims: &[ResourceClaim]) -> Vec<Nearest> {
        let mut all = Vec::new();
        for ((claim, request), mut of_request) in self.0 {
            if of_request.class_takes_any {
                let of_class = |thing: &Thing| matches!(thing, Thing::OfClass(_));
                of_request.found.retain(|things, _| !things.iter().any(of_class));
            }
            let has_one = of_request.found.keys().any(|things| things.len() == 1);
            let found = of_request.found.into_iter().filter(|(t, _)| !has_one || t.len() == 1);
            let mut nearest: Vec<Nearest> = found
                .map(|(things, found)| {
                    let (devices, nodes, text, fix) = told(&things, &found, claims);
                    let claim = names.get(claim).cloned().unwrap_or_default();
                    Nearest { claim, request: request.clone(), devices, nodes, text, fix }
                })
                .collect();
            nearest.sort_by_key(|nearest| std::cmp::Reverse(nearest.devices));
            nearest.truncate(TOLD);
            all.extend(nearest);
        }
        all
    }
}

impl OfRequest {
    fn add(&mut self, things: Vec<Thing>, candidate: &Candidate<'_>, number: usize) {
        if self.found.len() >= MOST && !self.found.contains_key(&things) {
            return;
        }
        let is_one = things.len() == 1;
        let found = self.found.entry(things).or_default();
        found.devices += 1;
        found.nodes += usize::from(found.last_node != Some(number));
        found.last_node = Some(number);
        for obstacle in &candidate.obstacles {
            if let Reason::InUse { claim } = &obstacle.reason
                && found.holders.len() < HOLDERS
            {
                found.holders.insert(claim.clone());
            }
            if is_one && let Some(comparison) = only_comparison(&obstacle.terms) {
                found.values.get_or_insert_default().add(comparison, number);
            }
        }
    }
}

fn only_comparison(terms: &[Term]) -> Option<&Comparison> {
    match terms {
        [Term { comparisons, .. }] => match comparisons.as_slice() {
            [one] => Some(one),
            _ => None,
        },
        _ => None,
    }
}

/// The one or two things that keep off a device of the class; None: more, or what no one can
/// change.
fn things(
    candidate: &Candidate<'_>,
    allocated: &Allocated,
    in_use: &InUse<'_>,
) -> Option<Vec<Thing>> {
    if candidate.obstacles.len() > 2 {
        return None;
    }
    let mut things = Vec::new();
    for obstacle in &candidate.obstacles {
        match &obstacle.reason {
            Reason::Selector { .. } => things.extend(of_terms(&obstacle.terms, Thing::Term)?),
            Reason::InUse { .. } => things.push(Thing::InUse),
            Reason::Taint { key, value, effect } => {
                things.push(Thing::Taint(format!("{key}={value}:{effect}")));
            }
            Reason::Capacity { name, .. } if allocated.sharers(&candidate.id).is_empty() => {
                things.push(Thing::Short(name.clone()));
            }
            Reason::Capacity { name, .. } => things.push(Thing::Used(name.clone())),
            Reason::Counters { set, counter, .. }
                if in_use.contains(&(candidate.id.pool.as_str(), set.as_str())) =>
            {
                things.push(Thing::Used(counter.clone()));
            }
            Reason::Counters { counter, .. } => things.push(Thing::Short(counter.clone())),
            _ => return None,
        }
    }
    things.sort();
    (things.len() <= 2).then_some(things)
}

fn of_terms(terms: &[Term], thing: fn(String) -> Thing) -> Option<Vec<Thing>> {
    if terms.len() > 2 || terms.iter().any(|term| term.error.is_some()) {
        return None;
    }
    Some(terms.iter().map(|term| thing(words::rule(term))).collect())
}

/// Of which counter sets devices in use take.
fn in_use<'s>(request: &'s Surveyed<'_>, allocated: &Allocated) -> InUse<'s> {
    let consuming = request.devices.iter().filter(|c| c.device.consumes_counters.is_some());
    let held = consuming.filter(|candidate| {
        allocated.holder(&candidate.id).is_some() || !allocated.sharers(&candidate.id).is_empty()
    });
    let sets = held.flat_map(|candidate| {
        let consumed = candidate.device.consumes_counters.iter().flatten();
        consumed.map(|consumed| (candidate.id.pool.as_str(), consumed.counter_set.as_str()))
    });
    sets.collect()
}

/// How many devices on how many nodes, the words, and what to do.
fn told(
    things: &[Thing],
    found: &Found,
    claims: &[ResourceClaim],
) -> (usize, usize, String, Option<String>) {
    let (devices, nodes) = (found.devices, found.nodes);
    let who = words::count(devices, "device");
    let fail = if devices == 1 { "fails" } else { "fail" };
    let held = || holders::named(&found.holders, claims);
    let (text, fix) = match things {
        [Thing::OfClass(rule) | Thing::Term(rule)] => {
            if let Some(values) = &found.values {
                return by_value(values, devices, nodes);
            }
            (format!("{who} {fail} only by: {rule}"), None)
        }
        [Thing::InUse] => {
            let are = if devices == 1 { "is" } else { "are" };
            let text = format!(
                "{who} would do, but {are} held by other claims: {}",
                words::list(&held(), HOLDERS)
            );
            (text, Some(holders::FIX.to_owned()))
        }
        [Thing::Taint(taint)] => {
            (format!("{who} {fail} only by taint {taint}: tolerate it, or clear its cause"), None)
        }
        [Thing::Used(what)] => {
            (format!("{who} {fail} only because other claims use too much of {what}"), None)
        }
        [Thing::Short(what)] => {
            let text = format!(
                "{who} {fail} only by {what}: less than is asked for, with nobody else using any"
            );
            (text, Some(format!("ask for less {what}")))
        }
        things => {
            let named: Vec<String> = things.iter().map(|thing| name(thing, &held)).collect();
            (format!("{who} {fail} by two things: {}", named.join(", and ")), None)
        }
    };
    (devices, nodes, text, fix)
}

fn by_value(values: &Values, all: usize, on: usize) -> (usize, usize, String, Option<String>) {
    match values.bound() {
        // Only those that it would take are counted.
        Some(Bound { text, best, seen, devices, nodes }) => {
            let who = words::count(devices, "device");
            let fail = if devices == 1 { "fails" } else { "fail" };
            let text = format!(
                "{who} {fail} only by {}: {} {} {}; did you mean {text}?",
                words::subject(best),
                words::list(&seen, 4),
                words::opposite(best.operator),
                best.wanted.as_ref().map_or_else(String::new, words::shown),
            );
            (devices, nodes, text, None)
        }
        None => {
            let who = words::count(all, "device");
            let fail = if all == 1 { "fails" } else { "fail" };
            let (subject, wanted, seen) = values.words();
            let seen = words::list(&seen, 4);
            let text = format!("{who} {fail} only by {subject}: wanted {wanted}, seen {seen}");
            (all, on, text, None)
        }
    }
}

/// One of two things.
fn name(thing: &Thing, held: &dyn Fn() -> Vec<String>) -> String {
    match thing {
        Thing::OfClass(rule) | Thing::Term(rule) => rule.clone(),
        Thing::InUse => format!("held by other claims: {}", words::list(&held(), HOLDERS)),
        Thing::Taint(taint) => format!("taint {taint}"),
        Thing::Used(what) => format!("other claims use too much of {what}"),
        Thing::Short(what) => format!("less {what} than is asked for"),
    }
}
