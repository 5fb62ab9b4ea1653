//! DeviceClasses. A class is asked about every device of the cluster, also those of drivers
//! that are installed later: where it fails on one, all its pods wait.

use k8s_openapi::api::resource::v1::DeviceClass;

use crate::finding::{Findings, Rule, Severity};
use crate::judge::{self, Placed};
use crate::judged::Origin;
use crate::object::Object;
use crate::reference::{DRIVER, STANDARD};
use crate::shape::sentence;
use crate::world::World;
use crate::{ask, claims, configs, values};

pub(crate) fn lint(
    object: &Object<'_>,
    class: &DeviceClass,
    world: &mut World<'_>,
    findings: &mut Findings,
) {
    let base = object.root.key("spec");
    let selectors = class.spec.as_ref().and_then(|spec| spec.selectors.as_deref());
    let selectors = selectors.unwrap_or_default();
    configs::of_class(object, class, world, findings);
    if selectors.is_empty() {
        let message = format!(
            "takes the devices of every driver: add a selector, device.driver == '{DRIVER}'"
        );
        findings.add(object, &base, Severity::Warning, Rule::DriverGuard, message);
        return;
    }
    let Some(selectors) = judge::compile(object, &base, selectors, world, findings) else { return };
    let domains = judge::domains(&selectors);
    let drivers: Vec<&str> = domains
        .iter()
        .map(String::as_str)
        .filter(|domain| world.devices.iter().any(|judged| judged.driver == *domain))
        .collect();
    let guard = drivers.first().copied();
    let guard = guard.or(domains.iter().map(String::as_str).find(|domain| *domain != STANDARD));
    guarded(object, &selectors, &drivers, guard.unwrap_or(DRIVER), world, findings);
    on_devices(object, &selectors, &drivers, &domains, world, findings);
}

/// What the selectors do on devices of drivers that they aren't about.
fn guarded(
    object: &Object<'_>,
    selectors: &[Placed],
    drivers: &[&str],
    driver: &str,
    world: &World<'_>,
    findings: &mut Findings,
) {
    let foreign = world.devices.iter().enumerate().filter(|(_, judged)| {
        judged.origin == Origin::Foreign || !drivers.is_empty() && !drivers.contains(&judged.driver)
    });
    let verdict = judge::judge(selectors, &world.devices, foreign.map(|(place, _)| place));
    if let Some(failure) = verdict.failures.first()
        && let Some(placed) = selectors.get(failure.selector)
    {
        let message = format!(
            "has no driver guard: on another driver's device it fails ({}), which stops every pod \
             of the class: put device.driver == '{driver}' && before it",
            failure.error
        );
        findings.add(object, &placed.path, Severity::Error, Rule::DriverGuard, message);
    } else if verdict.matched.iter().any(|place| {
        world.devices.get(*place).is_some_and(|judged| judged.origin == Origin::Foreign)
    }) {
        let path = selectors.first().map(|placed| placed.path.clone()).unwrap_or_default();
        let message = format!(
            "has no driver guard and takes other drivers' devices too: put device.driver == \
             '{driver}' && before it"
        );
        findings.add(object, &path, Severity::Warning, Rule::DriverGuard, message);
    }
}

/// What they do on those that they are about.
fn on_devices(
    object: &Object<'_>,
    selectors: &[Placed],
    drivers: &[&str],
    domains: &[String],
    world: &World<'_>,
    findings: &mut Findings,
) {
    let is_about = |driver: &str| drivers.is_empty() || drivers.contains(&driver);
    let places = |origins: &[Origin]| -> Vec<usize> {
        let all = world.devices.iter().enumerate();
        let own =
            all.filter(|(_, judged)| origins.contains(&judged.origin) && is_about(judged.driver));
        own.map(|(place, _)| place).collect()
    };
    let usual = places(&[Origin::Fleet, Origin::Reference]);
    let verdict = judge::judge(selectors, &world.devices, usual.iter().copied());
    // A driver that the stand-in doesn't have may have anything.
    let is_unknown = !world.is_whole()
        && drivers.is_empty()
        && domains.iter().any(|domain| !world.knows(domain));
    for failure in &verdict.failures {
        let Some(placed) = selectors.get(failure.selector) else { continue };
        let advice = ask::failed(world, placed.selector.text(), failure, true);
        if is_unknown && advice.as_ref().is_none_or(|advice| advice.fix.is_none()) {
            continue;
        }
        let message = advice.map_or_else(|| failure.error.to_string(), |advice| sentence(&advice));
        let message =
            format!("{message} (CEL error {}, stops every pod of the class)", failure.error);
        findings.add(object, &placed.path, Severity::Error, Rule::CelRuntime, message);
    }
    if !verdict.failures.is_empty() {
        return;
    }
    let on_bare = judge::judge(selectors, &world.devices, places(&[Origin::Bare]));
    claims::may_be_missing(object, selectors, &on_bare, Severity::Warning, findings);
    if world.has_fleet() && verdict.matched.is_empty() {
        claims::nothing(object, selectors, &usual, Severity::Warning, world, findings);
    } else {
        values::lint(object, selectors, &usual, world, findings);
    }
}
