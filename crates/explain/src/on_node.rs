//! One node: what the allocator decides there, and each request beside its devices. In a form
//! in which equal nodes are equal, so that thousands fold into a few groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gpu_dra_allocator::{
    AllocateError, Candidate, Obstacle, Outcome, Reason, Rejection, Survey, Surveyed,
};
use gpu_dra_cel::Term;

use crate::by_class::{self, About};
use crate::catalog;
use crate::causes::{cause, error_rule, plain};
use crate::report::{Cause, CauseKind, NodeOutcome, Removed, RequestOnNode};

/// Names and values kept as examples.
const EXAMPLES: usize = 4;

/// What makes nodes equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) outcome: NodeOutcome,
    /// The error, or why it is left out, without names that differ from node to node.
    pub(crate) note: Option<String>,
    /// Whether each kind of trouble with pools is there.
    troubled_pools: usize,
    requests: Vec<RequestKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RequestKey {
    claim: usize,
    request: String,
    class: String,
    wanted: Option<usize>,
    devices: usize,
    selected: usize,
    usable: usize,
    removed: Vec<RemovedKey>,
}

/// A cause without what was seen.
type Rule = (CauseKind, String, Option<String>);

/// What is the same for devices that are removed together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct RemovedKey {
    kind: CauseKind,
    rules: Vec<Rule>,
    what: String,
    by_value: bool,
    count: usize,
}

/// What differs between equal nodes, the first few.
#[derive(Debug, Clone, Default)]
pub(crate) struct Examples {
    pub(crate) pools: BTreeSet<String>,
    /// For each request and group of removed devices.
    removed: Vec<Vec<RemovedExamples>>,
}

#[derive(Debug, Clone, Default)]
struct RemovedExamples {
    devices: BTreeSet<String>,
    /// For each cause.
    seen: Vec<BTreeSet<String>>,
}

/// What a node comes to.
pub(crate) fn examine(survey: Option<&Survey<'_>>, outcome: &Outcome) -> (Key, Examples) {
    let (result, note, rejected) = match outcome {
        Outcome::Allocated(_) => (NodeOutcome::Fits, None, &[][..]),
        Outcome::Refused(refusal) => match &refusal.error {
            Some(error) if error.is_own_limit() => {
                (NodeOutcome::NotDecided, Some(error_rule(error)), refusal.rejected.as_slice())
            }
            Some(error) => (NodeOutcome::Error, Some(error_rule(error)), &[][..]),
            None => (NodeOutcome::DoesNotFit, None, refusal.rejected.as_slice()),
        },
    };
    let mut key = Key { outcome: result, note, troubled_pools: 0, requests: Vec::new() };
    let mut examples = Examples::default();
    let Some(survey) = survey else {
        return (key, examples);
    };
    key.troubled_pools = survey.pools.len();
    examples.pools.extend(survey.pools.iter().map(ToString::to_string).take(EXAMPLES));
    // In an attempt a device may also be refused for what the attempt took before.
    let dynamic = dynamic(rejected);
    for request in &survey.requests {
        let (request_key, removed) = of_request(request, &dynamic);
        key.requests.push(request_key);
        examples.removed.push(removed);
    }
    (key, examples)
}

/// A node that the pod can't go to.
pub(crate) fn left_out(why: String) -> Key {
    Key { outcome: NodeOutcome::LeftOut, note: Some(why), troubled_pools: 0, requests: Vec::new() }
}

type Dynamic<'a> = HashMap<(usize, &'a str, &'a gpu_dra_allocator::DeviceId), &'a Rejection>;

fn dynamic(rejected: &[Rejection]) -> Dynamic<'_> {
    let keyed = rejected.iter().map(|r| ((r.claim, r.request.as_str(), &r.device), r));
    keyed.collect()
}

fn of_request(request: &Surveyed<'_>, dynamic: &Dynamic<'_>) -> (RequestKey, Vec<RemovedExamples>) {
    let mut groups: BTreeMap<(Vec<Rule>, &str, bool), (usize, RemovedExamples)> = BTreeMap::new();
    let (mut selected, mut usable) = (0, 0);
    // Most devices of a node are of another class, alike in why. In order, so that the
    // examples are the same each time.
    let mut of_others: Vec<(&str, Vec<&Candidate<'_>>)> = Vec::new();
    let mut places: HashMap<(*const Term, &str), usize> = HashMap::new();
    for found in &request.devices {
        if let [Obstacle { reason: Reason::ClassSelector { .. }, terms }] =
            found.obstacles.as_slice()
        {
            let what = catalog::what(&found.id.driver, found.device);
            let place = *places.entry((terms.as_ptr(), what)).or_insert_with(|| {
                of_others.push((what, Vec::new()));
                of_others.len() - 1
            });
            if let Some((_, devices)) = of_others.get_mut(place) {
                devices.push(found);
            }
        }
    }
    for (what, devices) in &of_others {
        let Some(obstacle) = devices.first().and_then(|first| first.obstacles.first()) else {
            continue;
        };
        let cause = cause(obstacle);
        let rules = vec![(cause.kind, cause.rule, cause.wanted)];
        let by_value = by_class::about(&obstacle.terms) == About::Value;
        let (count, examples) = groups.entry((rules, what, by_value)).or_default();
        *count += devices.len();
        let names = devices.iter().take(EXAMPLES).map(|device| device.id.device.clone());
        names.for_each(|name| insert(&mut examples.devices, name));
        examples.seen.resize_with(1, BTreeSet::new);
        for seen in &mut examples.seen {
            cause.seen.iter().for_each(|value| insert(seen, value.clone()));
        }
    }
    for found in &request.devices {
        if matches!(
            found.obstacles.as_slice(),
            [Obstacle { reason: Reason::ClassSelector { .. }, .. }]
        ) {
            continue;
        }
        let mut causes: Vec<Cause> = found.obstacles.iter().map(cause).collect();
        let by_selector = causes.iter().any(|cause| {
            matches!(
                cause.kind,
                CauseKind::Class
                    | CauseKind::Selector
                    | CauseKind::SelectorError
                    | CauseKind::OtherNode
            )
        });
        selected += usize::from(!by_selector);
        if causes.is_empty() {
            usable += 1;
            let refused = dynamic.get(&(request.claim, request.request.as_str(), &found.id));
            causes.extend(refused.map(|refused| plain(&refused.reason)));
        }
        if causes.is_empty() {
            continue;
        }
        let rules: Vec<_> =
            causes.iter().map(|c| (c.kind, c.rule.clone(), c.wanted.clone())).collect();
        let what = catalog::what(&found.id.driver, found.device);
        let (count, examples) = groups.entry((rules, what, false)).or_default();
        *count += 1;
        insert(&mut examples.devices, found.id.device.clone());
        examples.seen.resize_with(causes.len(), BTreeSet::new);
        for (seen, cause) in examples.seen.iter_mut().zip(causes) {
            cause.seen.into_iter().for_each(|value| insert(seen, value));
        }
    }
    let mut removed = Vec::new();
    let mut all_examples = Vec::new();
    for ((rules, what, by_value), (count, examples)) in groups {
        let Some(kind) = rules.first().map(|(kind, ..)| *kind) else { continue };
        removed.push(RemovedKey { kind, rules, what: what.to_owned(), by_value, count });
        all_examples.push(examples);
    }
    let key = RequestKey {
        claim: request.claim,
        request: request.request.clone(),
        class: request.class.clone(),
        wanted: request.count,
        devices: request.devices.len(),
        selected,
        usable,
        removed,
    };
    (key, all_examples)
}

fn insert(into: &mut BTreeSet<String>, value: String) {
    if into.len() < EXAMPLES {
        into.insert(value);
    }
}

impl Examples {
    /// Adds those of an equal node.
    pub(crate) fn merge(&mut self, other: Self) {
        other.pools.into_iter().for_each(|pool| insert(&mut self.pools, pool));
        for (mine, theirs) in self.removed.iter_mut().zip(other.removed) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                theirs.devices.into_iter().for_each(|name| insert(&mut mine.devices, name));
                for (mine, theirs) in mine.seen.iter_mut().zip(theirs.seen) {
                    theirs.into_iter().for_each(|value| insert(mine, value));
                }
            }
        }
    }
}

/// The requests of a group of nodes, as reported.
pub(crate) fn requests(key: &Key, examples: &Examples, claims: &[String]) -> Vec<RequestOnNode> {
    let of_request = |(request, examples): (&RequestKey, &Vec<RemovedExamples>)| RequestOnNode {
        claim: claims.get(request.claim).cloned().unwrap_or_default(),
        request: request.request.clone(),
        class: request.class.clone(),
        wanted: request.wanted,
        devices: request.devices,
        selected: request.selected,
        usable: request.usable,
        removed: request.removed.iter().zip(examples).filter_map(removed).collect(),
    };
    key.requests.iter().zip(&examples.removed).map(of_request).collect()
}

fn removed((key, examples): (&RemovedKey, &RemovedExamples)) -> Option<Removed> {
    let mut causes =
        key.rules.iter().zip(&examples.seen).map(|((kind, rule, wanted), seen)| Cause {
            kind: *kind,
            rule: rule.clone(),
            wanted: wanted.clone(),
            seen: seen.iter().cloned().collect(),
        });
    Some(Removed {
        count: key.count,
        devices: examples.devices.iter().cloned().collect(),
        what: key.what.clone(),
        by_value: key.by_value,
        cause: causes.next()?,
        also: causes.collect(),
    })
}

/// The error that ended an attempt, and would end the scheduler's.
pub(crate) fn error(outcome: &Outcome) -> Option<&AllocateError> {
    match outcome {
        Outcome::Refused(refusal) if !is_too_long(outcome) => refusal.error.as_ref(),
        _ => None,
    }
}

/// Whether the attempt was given up.
pub(crate) fn is_too_long(outcome: &Outcome) -> bool {
    let error = match outcome {
        Outcome::Refused(refusal) => refusal.error.as_ref(),
        Outcome::Allocated(_) => None,
    };
    error.is_some_and(AllocateError::is_own_limit)
}
