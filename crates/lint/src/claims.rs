//! Claims and templates: names, classes, selectors, counts, and whether a fleet could ever
//! satisfy them.

use std::collections::BTreeSet;

use gpu_dra_explain::{Cluster, Explainer, Question, Verdict as Outcome};
use gpu_dra_model::config::nearest;

use crate::finding::{Findings, Rule, Severity};
use crate::judge::{self, Placed, Verdict};
use crate::judged::Origin;
use crate::object::{Claim, Object};
use crate::requests::{self, Asked};
use crate::shape::sentence;
use crate::world::World;
use crate::{ask, configs, constraints, values};

mod rights;

pub(crate) use rights::TAINTS;

/// Whether it is clean so far, so that [`fit`] may be asked about it.
pub(crate) fn lint(
    object: &Object<'_>,
    claim: &Claim,
    world: &mut World<'_>,
    findings: &mut Findings,
) -> bool {
    let asked = requests::all(object, claim);
    duplicates(object, claim, findings);
    for request in &asked {
        class(object, request, world, findings);
        count(object, request, findings);
        capacity(object, request, world, findings);
        rights::lint(object, claim, request, world, findings);
        if let Some(selectors) =
            judge::compile(object, &request.path, request.selectors, world, findings)
        {
            self::selectors(object, request, &selectors, world, findings);
        }
    }
    constraints::lint(object, claim, &asked, world, findings);
    configs::of_claim(object, claim, &asked, world, findings);
    let is_faulty = asked.iter().any(|request| world.faulty.contains(request.class));
    !is_faulty && !findings.any_in(object)
}

fn duplicates(object: &Object<'_>, claim: &Claim, findings: &mut Findings) {
    let list = requests::devices_path(object, claim).key("requests");
    let mut seen = BTreeSet::new();
    for (place, request) in requests::names(&claim.claim).into_iter().enumerate() {
        if !seen.insert(request.name.clone()) {
            let message =
                format!("there are two requests {}: give each its own name", request.name);
            let path = list.index(place).key("name");
            findings.add(object, &path, Severity::Error, Rule::DuplicateName, message);
        }
        if request.classes.is_empty() {
            let message = "asks for nothing: put deviceClassName under exactly:, or alternatives \
                           under firstAvailable:";
            findings.add(object, &list.index(place), Severity::Error, Rule::ApiShape, message);
        }
    }
}

fn class(object: &Object<'_>, request: &Asked<'_>, world: &World<'_>, findings: &mut Findings) {
    let path = request.path.key("deviceClassName");
    if request.class.is_empty() {
        let message = "deviceClassName is missing: write one, such as gpu.nvidia.com";
        findings.add(object, &path, Severity::Error, Rule::ApiShape, message);
        return;
    }
    if !world.all_classes || world.classes.contains_key(request.class) {
        return;
    }
    let known: Vec<&str> = world.classes.keys().map(String::as_str).collect();
    let fix = match nearest(request.class, &known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", known.join(", ")),
    };
    let message = format!("DeviceClass {} does not exist: {fix}", request.class);
    findings.add(object, &path, Severity::Error, Rule::UnknownClass, message);
}

fn count(object: &Object<'_>, request: &Asked<'_>, findings: &mut Findings) {
    let mut add = |path, message: String| {
        findings.add(object, &path, Severity::Error, Rule::RequestCount, message);
    };
    match (request.mode, request.count) {
        (Some("All"), Some(_)) => {
            let message = "count doesn't go with allocationMode All: remove one of the two";
            add(request.path.key("count"), message.to_owned());
        }
        (Some(mode), _) if mode != "All" && mode != "ExactCount" => {
            let message = format!("{mode:?} is no allocationMode: use ExactCount or All");
            add(request.path.key("allocationMode"), message);
        }
        (_, Some(count)) if count < 1 => {
            add(request.path.key("count"), format!("count {count}: ask for at least 1"));
        }
        (_, Some(count)) if count > 32 => add(
            request.path.key("count"),
            format!("count {count} is more than the 32 devices of a claim: use several claims"),
        ),
        _ => {}
    }
}

/// Capacities are looked up as devices write them, without the domain.
fn capacity(
    object: &Object<'_>,
    request: &Asked<'_>,
    world: &mut World<'_>,
    findings: &mut Findings,
) {
    let Some(selected) = world.selected_by(request.class) else { return };
    let names = request.capacity.iter().flat_map(|capacity| capacity.requests.iter().flatten());
    for (name, _) in names {
        let devices = || selected.iter().filter_map(|place| world.devices.get(*place));
        let has = |name: &str| {
            devices().any(|judged| {
                judged.plain().capacity.as_ref().is_some_and(|known| known.contains_key(name))
            })
        };
        if has(name) || devices().next().is_none() {
            continue;
        }
        let bare = name.split_once('/').map_or(name.as_str(), |(_, bare)| bare);
        let known: BTreeSet<&str> = devices()
            .flat_map(|j| j.plain().capacity.iter().flatten())
            .map(|(n, _)| n.as_str())
            .collect();
        let known: Vec<&str> = known.into_iter().collect();
        let fix = if has(bare) {
            format!("write it as the devices do: {bare}")
        } else {
            match nearest(bare, &known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", known.join(", ")),
            }
        };
        let message = format!("devices of class {} have no capacity {name}: {fix}", request.class);
        let path = request.path.keys("capacity.requests").key(name);
        findings.add(object, &path, Severity::Warning, Rule::CapacityName, message);
    }
}

/// What the selectors do on the devices that the class selects.
fn selectors(
    object: &Object<'_>,
    request: &Asked<'_>,
    selectors: &[Placed],
    world: &mut World<'_>,
    findings: &mut Findings,
) {
    let selected = world.selected_by(request.class);
    let world = &*world;
    let origin = |place: &usize| world.devices.get(*place).map(|judged| judged.origin);
    let usual = |place: &usize| matches!(origin(place), Some(Origin::Fleet | Origin::Reference));
    let is_known = selected.is_some();
    // Of a class that isn't known any device may be.
    let selected = selected.unwrap_or_else(|| (0..world.devices.len()).collect());
    let among: Vec<usize> = selected.iter().copied().filter(usual).collect();
    let verdict = judge::judge(selectors, &world.devices, among.iter().copied());
    let fails_at_all = is_known || verdict.judged == 0;
    if fails_at_all && !verdict.failures.is_empty() {
        failures(object, selectors, &verdict, is_known || world.is_whole(), world, findings);
        return;
    }
    let bare = selected.iter().copied().filter(|place| origin(place) == Some(Origin::Bare));
    let on_bare = judge::judge(selectors, &world.devices, bare);
    may_be_missing(object, selectors, &on_bare, Severity::Hint, findings);
    if is_known && world.has_fleet() && verdict.matched.is_empty() {
        // Another alternative may match; whether one does is asked at the end.
        let severity = if request.is_alternative() { Severity::Hint } else { Severity::Warning };
        if !among.is_empty() {
            nothing(object, selectors, &among, severity, world, findings);
        } else if !world.faulty.contains(request.class) {
            let message = format!(
                "class {} selects no device of {}: use a class that does",
                request.class,
                world.fleet_name()
            );
            let path = request.path.key("deviceClassName");
            findings.add(object, &path, severity, Rule::MatchesNothing, message);
        }
        return;
    }
    capacity_ignored(object, request, &verdict, world, findings);
    values::lint(object, selectors, &among, world, findings);
}

/// Field report E06: on a device that can't be shared the scheduler ignores what is asked of
/// its capacity, and gives it whole.
fn capacity_ignored(
    object: &Object<'_>,
    request: &Asked<'_>,
    verdict: &Verdict,
    world: &World<'_>,
    findings: &mut Findings,
) {
    let asks =
        request.capacity.is_some_and(|capacity| capacity.requests.iter().any(|r| !r.is_empty()));
    let matched = || verdict.matched.iter().filter_map(|place| world.devices.get(*place));
    let is_shared = || matched().any(|j| j.plain().allow_multiple_allocations == Some(true));
    if !asks || !world.has_fleet() || matched().next().is_none() || is_shared() {
        return;
    }
    let message = format!(
        "no device of {} that matches can be shared, so the claim gets a whole one: offer shares \
         on the nodes (--shares), or leave capacity out",
        world.fleet_name()
    );
    let path = request.path.keys("capacity.requests");
    findings.add(object, &path, Severity::Warning, Rule::CapacityIgnored, message);
}

/// Selectors that fail on a device stop the pod on all nodes.
fn failures(
    object: &Object<'_>,
    selectors: &[Placed],
    verdict: &Verdict,
    is_sure: bool,
    world: &World<'_>,
    findings: &mut Findings,
) {
    for failure in &verdict.failures {
        let Some(placed) = selectors.get(failure.selector) else { continue };
        let advice = ask::failed(world, placed.selector.text(), failure, false);
        // The devices of a class that isn't known may have it.
        if !is_sure && advice.as_ref().is_none_or(|advice| advice.fix.is_none()) {
            continue;
        }
        let message = advice.map_or_else(|| failure.error.to_string(), |advice| sentence(&advice));
        let message =
            format!("{message} (CEL error {}, stops the pod on all nodes)", failure.error);
        findings.add(object, &placed.path, Severity::Error, Rule::CelRuntime, message);
    }
}

/// What is fine on usual devices, and fails on one that lacks what may be missing.
pub(crate) fn may_be_missing(
    object: &Object<'_>,
    selectors: &[Placed],
    on_bare: &Verdict,
    severity: Severity,
    findings: &mut Findings,
) {
    for failure in &on_bare.failures {
        let Some(placed) = selectors.get(failure.selector) else { continue };
        let lacking = match &failure.error {
            gpu_dra_cel::EvalError::NoSuchKey(name) => name.as_str(),
            _ => continue,
        };
        let message = format!(
            "a GPU on which {lacking} is unknown doesn't have it, which stops the pod on all \
             nodes: read it with a default, .?{lacking}.orValue(...)"
        );
        findings.add(object, &placed.path, severity, Rule::MayBeMissing, message);
    }
}

/// Selectors that match nothing of the fleet.
pub(crate) fn nothing(
    object: &Object<'_>,
    selectors: &[Placed],
    among: &[usize],
    severity: Severity,
    world: &World<'_>,
    findings: &mut Findings,
) {
    let texts: Vec<&str> = selectors.iter().map(|placed| placed.selector.text()).collect();
    let samples = judge::samples(selectors, &world.devices, among);
    let advice = ask::unmatched(world, &texts, &samples);
    let fleet = world.fleet_name();
    if advice.is_empty() {
        let path = selectors.first().map(|placed| placed.path.clone()).unwrap_or_default();
        let message = format!(
            "no device of {fleet} matches, of {} that were tried: see gpu-dra explain for each",
            among.len()
        );
        findings.add(object, &path, severity, Rule::MatchesNothing, message);
    }
    for (place, sentence) in advice {
        let placed = selectors.get(place.unwrap_or(0));
        let path = placed.map(|placed| placed.path.clone()).unwrap_or_default();
        findings.add(object, &path, severity, Rule::MatchesNothing, sentence);
    }
}

/// Whether any node could give each claim its devices, had nobody else any.
pub(crate) fn fit(claims: &[(&Object<'_>, &Claim)], world: &World<'_>, findings: &mut Findings) {
    let Some(fleet) = world.fleet.filter(|fleet| !fleet.nodes.is_empty()) else { return };
    if claims.is_empty() {
        return;
    }
    let classes: Vec<_> = world.classes.values().cloned().collect();
    let explainer = Explainer::new(Cluster {
        slices: &fleet.slices,
        classes: &classes,
        claims: &[],
        nodes: &fleet.nodes,
        admin_access: None,
    });
    for (object, claim) in claims {
        fits(object, claim, &explainer, findings);
    }
}

fn fits(object: &Object<'_>, claim: &Claim, explainer: &Explainer<'_>, findings: &mut Findings) {
    let mut asked = claim.claim.clone();
    asked.status = None;
    asked.metadata.namespace = Some(object.namespace.clone());
    let report = explainer.explain(&Question::of_claim(&asked), &mut |_| {});
    let severity = match report.verdict {
        Outcome::DoesNotFit => Severity::Warning,
        Outcome::Stopped | Outcome::Rejected => Severity::Error,
        _ => return,
    };
    let path = requests::devices_path(object, claim);
    let fix = report.nearest.first().map(|nearest| format!("; {}", nearest.text));
    let message = format!("{}{}", report.sentence, fix.unwrap_or_default());
    findings.add(object, &path, severity, Rule::NeverFits, message);
}
