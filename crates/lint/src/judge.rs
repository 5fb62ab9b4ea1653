//! Selectors judged on devices: which match, and the first device on which each fails.

use std::collections::HashSet;

use gpu_dra_cel::{CompileError, EvalError, Field, Selector};
use k8s_openapi::api::resource::v1::DeviceSelector;

use crate::ask;
use crate::finding::{Findings, Rule, Severity};
use crate::judged::{Judged, Verdicts};
use crate::literals;
use crate::object::Object;
use crate::path::Path;
use crate::world::World;

/// A selector with its place.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) path: Path,
    pub(crate) selector: Selector,
}

/// A selector's failure on a device.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// Which of the selectors.
    pub(crate) selector: usize,
    /// The first device it failed on.
    pub(crate) device: usize,
    pub(crate) error: EvalError,
}

/// What came of selectors.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The devices that all match.
    pub(crate) matched: Vec<usize>,
    /// How many devices they gave a verdict on.
    pub(crate) judged: usize,
    /// The first failure of each selector.
    pub(crate) failures: Vec<Failure>,
}

/// Compiles the selectors, and reports those that the API server would refuse. None: some
/// didn't compile, so that nothing can be said of the devices.
pub(crate) fn compile(
    object: &Object<'_>,
    base: &Path,
    selectors: &[DeviceSelector],
    world: &World<'_>,
    findings: &mut Findings,
) -> Option<Vec<Placed>> {
    let mut placed = Vec::new();
    for (place, selector) in selectors.iter().enumerate() {
        let path = base.key("selectors").index(place).keys("cel.expression");
        let text = selector.cel.as_ref().map_or("", |cel| cel.expression.as_str());
        for message in literals::problems(text) {
            findings.add(object, &path, Severity::Error, Rule::CelLiteral, message);
        }
        match Selector::compile(text) {
            Ok(selector) => {
                advisory(object, &path, &selector, findings);
                placed.push(Placed { path, selector });
            }
            // Not the API server's verdict.
            Err(error @ (CompileError::Unsupported { .. } | CompileError::TooDeep { .. })) => {
                let message = error.to_string();
                findings.add(object, &path, Severity::Hint, Rule::CelCompile, message);
            }
            Err(error) => {
                let mut message = ask::refused(world, text).unwrap_or_else(|| error.to_string());
                if matches!(error, CompileError::TooCostly { .. }) && text.contains("orValue(") {
                    message.push_str(
                        "; a string from orValue() counts as endlessly long: compare it directly, \
                         or test has(...) first and read it without a default",
                    );
                }
                findings.add(object, &path, Severity::Error, Rule::CelCompile, message);
            }
        }
    }
    (placed.len() == selectors.len()).then_some(placed)
}

/// `index` works, and may mean another GPU after a reboot.
fn advisory(object: &Object<'_>, path: &Path, selector: &Selector, findings: &mut Findings) {
    let is_index = |field: &Field| matches!(field, Field::Attribute { domain, name } if domain == "gpu.nvidia.com" && name == "index");
    if selector.reads().fields.iter().any(|read| is_index(&read.field)) {
        let message = "index may change over a reboot, prefer uuid or \
                       device.attributes['resource.kubernetes.io'].pciBusID";
        findings.add(object, path, Severity::Warning, Rule::AdvisoryAttribute, message);
    }
}

/// Judges the selectors on these devices, one after the other as the scheduler does.
pub(crate) fn judge(
    selectors: &[Placed],
    devices: &[Judged<'_>],
    among: impl IntoIterator<Item = usize>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let mut verdicts = Verdicts::new(selectors.iter().map(|placed| &placed.selector));
    for place in among {
        let Some(judged) = devices.get(place) else { continue };
        let Some(matched) = verdicts.of(judged) else { continue };
        match matched {
            Ok(true) => {
                verdict.judged += 1;
                verdict.matched.push(place);
            }
            Ok(false) => verdict.judged += 1,
            Err((selector, error)) => {
                if !verdict.failures.iter().any(|known| known.selector == selector) {
                    verdict.failures.push(Failure { selector, device: place, error });
                }
            }
        }
    }
    verdict
}

/// The domains of attributes and capacities that the selectors read.
pub(crate) fn domains(selectors: &[Placed]) -> Vec<String> {
    let fields = selectors.iter().flat_map(|placed| &placed.selector.reads().fields);
    let mut domains: Vec<String> = fields
        .filter_map(|read| match &read.field {
            Field::Attribute { domain, .. } | Field::Capacity { domain, .. } => {
                Some(domain.clone())
            }
            _ => None,
        })
        .collect();
    domains.sort();
    domains.dedup();
    domains
}

/// Up to a number of devices that differ in what the selectors read, to be looked at closely.
pub(crate) fn samples(selectors: &[Placed], devices: &[Judged<'_>], among: &[usize]) -> Vec<usize> {
    const MOST: usize = 48;
    let verdicts = Verdicts::new(selectors.iter().map(|placed| &placed.selector));
    let (mut seen, mut alike) = (HashSet::new(), HashSet::new());
    let mut samples = Vec::new();
    for place in among {
        let Some(judged) = devices.get(*place) else { continue };
        if verdicts.alike(judged).is_some_and(|key| !alike.insert(key)) {
            continue;
        }
        let Some(view) = judged.view() else { continue };
        let explained = selectors.iter().map(|placed| placed.selector.explain(&view));
        let key = format!("{:?}", explained.collect::<Vec<_>>());
        if seen.insert(key) {
            samples.push(*place);
            if samples.len() == MOST {
                break;
            }
        }
    }
    samples
}
