//! The answer in a word and a sentence, and why a node doesn't fit.

use gpu_dra_allocator::AllocateError;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use crate::advice::Adviser;
use crate::causes::sentence;
use crate::explainer::{Findings, Group};
use crate::on_node;
use crate::question::{Question, full_name};
use crate::report::{CauseKind, NodeOutcome, RequestOnNode, Verdict};
use crate::words;

/// The answer.
pub(crate) fn of(
    question: &Question,
    adviser: &Adviser<'_>,
    findings: &Findings,
    open: &[&ResourceClaim],
) -> (Verdict, String) {
    let subject = &question.subject;
    if let Some(sentence) = adviser.rejection() {
        return (Verdict::Rejected, sentence.to_owned());
    }
    if let Some(missing) = question.missing.first() {
        return (Verdict::Missing, format!("{subject} waits: {}", missing.problem));
    }
    if question.claims.is_empty() {
        return (Verdict::NoDevices, format!("{subject} asks for no devices"));
    }
    if open.is_empty() {
        return (Verdict::Allocated, allocated(question));
    }
    let with_error = findings.groups.iter().find_map(|group| Some((group, group.error.as_ref()?)));
    if let Some((group, error)) = with_error {
        return stopped(subject, group, error);
    }
    let considered: usize = findings.groups.iter().map(|group| group.count).sum();
    let nodes = words::count(considered, "node");
    if let Some((node, results)) = &findings.fit {
        let fits = findings.groups.iter().filter(|group| group.key.outcome == NodeOutcome::Fits);
        let fits: usize = fits.map(|group| group.count).sum();
        let devices: Vec<String> = results.iter().flat_map(devices_of).collect();
        let devices = words::list(&devices, 8);
        let sentence =
            format!("{subject} fits on {fits} of {nodes}; {node} would give it {devices}");
        return (Verdict::Fits, sentence);
    }
    let mut undecided = findings.groups.iter().filter(|g| g.key.outcome == NodeOutcome::NotDecided);
    if let Some(first) = undecided.next() {
        let count = first.count + undecided.map(|group| group.count).sum::<usize>();
        let note = first.key.note.clone().unwrap_or_default();
        return (Verdict::NotDecided, format!("{subject}, {count} of {nodes}: {note}"));
    }
    if considered == 0 {
        return (Verdict::DoesNotFit, format!("{subject} fits nowhere: there are no nodes"));
    }
    let names: Vec<String> = open.iter().map(|claim| full_name(&claim.metadata)).collect();
    let nearest = findings.groups.iter().max_by_key(|group| closeness(group, &names));
    let why = nearest.map_or_else(String::new, |group| {
        let node = group.names.first().cloned().unwrap_or_default();
        let requests = on_node::requests(&group.key, &group.examples, &names);
        let why = match &group.key.note {
            Some(note) => note.clone(),
            None => why(&requests, group.examples.pools.first()),
        };
        format!("{node}: {why}")
    });
    (Verdict::DoesNotFit, format!("{subject} fits on none of {nodes}; {why}"))
}

fn stopped(subject: &str, group: &Group, error: &AllocateError) -> (Verdict, String) {
    let node = group.names.first().cloned().unwrap_or_default();
    let note = group.key.note.clone().unwrap_or_default();
    match error {
        AllocateError::NoClass { class, .. } => {
            (Verdict::Missing, format!("{subject} waits: DeviceClass {class} does not exist"))
        }
        AllocateError::Evaluate { device, .. } => (
            Verdict::Stopped,
            format!("a CEL error on {node}, device {device}, stops {subject} on all nodes: {note}"),
        ),
        _ => (Verdict::Stopped, format!("an error on {node} stops {subject}: {note}")),
    }
}

fn allocated(question: &Question) -> String {
    let claims = question.claims.iter().filter_map(|claim| {
        let allocation = claim.status.as_ref()?.allocation.as_ref()?;
        let devices: Vec<String> = devices_of(allocation).collect();
        Some(format!("{} has {}", full_name(&claim.metadata), words::list(&devices, 8)))
    });
    let claims: Vec<String> = claims.collect();
    let bound = question.pod.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
    let rest = match bound {
        Some(node) => format!("it is bound to node {node}"),
        None => "if it is pending, it is not for want of devices".to_owned(),
    };
    format!("{}: all claims are allocated ({}); {rest}", question.subject, claims.join("; "))
}

fn devices_of(allocation: &AllocationResult) -> impl Iterator<Item = String> + '_ {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.map(|result| format!("{}={}/{}", result.request, result.pool, result.device))
}

/// How near a group comes: requests that could be met, devices that can be had, that match,
/// that are of the class, that are of its kind.
fn closeness(group: &Group, claims: &[String]) -> (bool, [usize; 5]) {
    let requests = on_node::requests(&group.key, &group.examples, claims);
    let sum = |of: fn(&RequestOnNode) -> usize| requests.iter().map(of).sum::<usize>();
    let of_class = |request: &RequestOnNode| of_class(request);
    let of_kind = |request: &RequestOnNode| {
        let by_value = request.removed.iter().filter(|removed| removed.by_value);
        by_value.map(|removed| removed.count).sum::<usize>()
    };
    let near = [
        requests.iter().filter(|request| is_met(request)).count(),
        sum(|request| request.usable),
        sum(|request| request.selected),
        requests.iter().map(of_class).sum(),
        requests.iter().map(of_kind).sum(),
    ];
    (group.key.outcome != NodeOutcome::LeftOut, near)
}

/// Whether the request alone could be met.
fn is_met(request: &RequestOnNode) -> bool {
    match request.wanted {
        Some(wanted) => request.usable >= wanted,
        None => request.selected > 0 && request.usable == request.selected,
    }
}

/// The devices that are of the class.
pub(crate) fn of_class(request: &RequestOnNode) -> usize {
    let others = request.removed.iter().filter(|removed| removed.cause.kind == CauseKind::Class);
    request.devices - others.map(|removed| removed.count).sum::<usize>().min(request.devices)
}

/// Why a node doesn't fit.
pub(crate) fn why(requests: &[RequestOnNode], pool: Option<&String>) -> String {
    if requests.iter().all(|request| request.devices == 0) {
        return match pool {
            Some(pool) => pool.clone(),
            None => "no ResourceSlice is for this node: no DRA driver runs or has published here"
                .to_owned(),
        };
    }
    let base = |request: &RequestOnNode| {
        let name = request.request.split('/').next().unwrap_or_default().to_owned();
        (request.claim.clone(), name)
    };
    // Of alternatives the nearest speaks for all.
    let unmet = requests.iter().filter(|request| {
        !requests.iter().any(|other| base(other) == base(request) && is_met(other))
    });
    let Some(first) = unmet.clone().next() else {
        return together(requests);
    };
    let alternatives = unmet.filter(|request| base(request) == base(first));
    let nearest = alternatives.max_by_key(|r| (r.usable, r.selected, of_class(r)));
    unmet_request(nearest.unwrap_or(first))
}

fn unmet_request(request: &RequestOnNode) -> String {
    let RequestOnNode { request: name, class, wanted, selected, usable, .. } = request;
    let wants = wanted.map_or_else(|| "all devices".to_owned(), |n| words::count(n, "device"));
    let of_class = of_class(request);
    if of_class == 0 {
        let near = request.removed.iter().filter(|removed| removed.by_value);
        let near = near.max_by_key(|removed| removed.count);
        let near = near.map_or_else(String::new, |near| format!(": {}", sentence(&near.cause)));
        return format!("request {name} wants {wants} of class {class}, it has none{near}");
    }
    let main = |by: fn(CauseKind) -> bool| {
        let removed = request.removed.iter().filter(|removed| by(removed.cause.kind));
        let main = removed.max_by_key(|removed| removed.count);
        main.map_or_else(String::new, |removed| format!(": {}", sentence(&removed.cause)))
    };
    let is_selector = |kind| {
        matches!(kind, CauseKind::Selector | CauseKind::SelectorError | CauseKind::OtherNode)
    };
    if *selected == 0 {
        let none = match of_class {
            1 => format!("its only device of class {class} doesn't match"),
            _ => format!("none of its {of_class} devices of class {class} matches"),
        };
        return format!("request {name}: {none}{}", main(is_selector));
    }
    let is_other = |kind| {
        !matches!(
            kind,
            CauseKind::Class
                | CauseKind::Selector
                | CauseKind::SelectorError
                | CauseKind::OtherNode
        )
    };
    format!(
        "request {name} wants {wants} on one node, it has {selected} ({usable} free){}",
        main(is_other)
    )
}

/// Each request could be met, but not all of them.
fn together(requests: &[RequestOnNode]) -> String {
    let removed = requests.iter().flat_map(|request| &request.removed);
    let is_mutual = |kind: CauseKind| {
        matches!(kind, CauseKind::Constraint | CauseKind::Counter | CauseKind::Taken)
    };
    let mutual = removed.filter(|removed| is_mutual(removed.cause.kind));
    let main = mutual.max_by_key(|removed| (removed.cause.kind != CauseKind::Taken, removed.count));
    let main = main.map_or_else(String::new, |removed| format!(": {}", sentence(&removed.cause)));
    let what = if requests.len() == 1 {
        "enough devices match, but not"
    } else {
        "each request alone could be met, not all"
    };
    format!("{what} together{main}")
}
