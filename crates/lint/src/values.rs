//! Values that selectors ask for and that devices are unlikely to have. What a fleet has is
//! known; without one these are the words and sizes that NVML uses.

use std::collections::BTreeSet;

use gpu_dra_cel::{Comparison, Field, Operator, Shown};
use gpu_dra_explain::Fold;
use gpu_dra_model::Quantity;
use gpu_dra_model::config::nearest;

use crate::finding::{Findings, Rule, Severity};
use crate::judge::{self, Placed};
use crate::judged::Judged;
use crate::object::Object;
use crate::reference::DRIVER;
use crate::world::World;

/// How NVML's product names begin.
const BRANDS: &[&str] = &["NVIDIA", "Tesla", "Quadro", "GeForce", "GRID", "TITAN", "Unknown"];
/// `architecture` as it is published.
const ARCHITECTURES: &[&str] = &[
    "Kepler",
    "Maxwell",
    "Pascal",
    "Volta",
    "Turing",
    "Ampere",
    "Ada Lovelace",
    "Hopper",
    "Blackwell",
    "Orin",
    "Rubin",
    "Unknown",
];
/// Sizes in GB that products are named by; what the driver reports is less.
const SIZES: &[i64] = &[8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 144, 180, 192, 288];
/// Devices looked at.
const MOST: usize = 256;

/// Hints on the comparisons of the selectors, as they are met on these devices.
pub(crate) fn lint(
    object: &Object<'_>,
    selectors: &[Placed],
    among: &[usize],
    world: &World<'_>,
    findings: &mut Findings,
) {
    let among = among.get(..MOST).unwrap_or(among);
    let samples = judge::samples(selectors, &world.devices, among);
    for placed in selectors {
        let samples = samples.iter().filter_map(|place| world.devices.get(*place));
        let views = samples.filter_map(Judged::view);
        let terms = views.flat_map(|view| placed.selector.explain(&view));
        for comparison in terms.flat_map(|term| term.comparisons) {
            if let Some((severity, message)) = unlikely(&comparison, world) {
                findings.add(object, &placed.path, severity, Rule::UnlikelyValue, message);
            }
        }
    }
}

fn unlikely(comparison: &Comparison, world: &World<'_>) -> Option<(Severity, String)> {
    match comparison.field.as_ref()? {
        Field::Attribute { domain, name } if domain == DRIVER => {
            let wanted = match comparison.wanted.as_ref()? {
                Shown::Text(text) => text.clone(),
                Shown::Other(list) if comparison.operator == Operator::In => list.clone(),
                _ => return None,
            };
            // A list is written with brackets; its first value speaks for it.
            let first = wanted.trim_start_matches(['[', '"']).trim_end_matches([']', '"']);
            let fold = Fold::of(comparison);
            match (name.as_str(), comparison.operator) {
                ("productName", operator) => product(first, operator, fold, world),
                ("architecture", Operator::Equals) => architecture(first, fold),
                // Both are in lower case.
                ("profile" | "type", Operator::Equals) if fold == Fold::Upper => None,
                ("profile", Operator::Equals) => profile(first),
                ("type", Operator::Equals) => kind(first),
                _ => None,
            }
        }
        Field::Capacity { domain, name } if domain == DRIVER && name == "memory" => {
            // A fleet's largest is known, and said where nothing matches.
            if world.has_fleet() { None } else { memory(comparison) }
        }
        _ => None,
    }
}

fn product(
    wanted: &str,
    operator: Operator,
    fold: Fold,
    world: &World<'_>,
) -> Option<(Severity, String)> {
    if !matches!(operator, Operator::Equals | Operator::In | Operator::StartsWith)
        || BRANDS.iter().any(|brand| wanted.starts_with(&*fold.apply(brand)))
        || wanted.is_empty()
    {
        return None;
    }
    let published: BTreeSet<&str> = world
        .catalog
        .iter()
        .flat_map(|slice| slice.spec.devices.iter().flatten())
        .filter_map(|device| device.attributes.as_ref()?.get("productName")?.string.as_deref())
        .collect();
    if published.iter().any(|name| fold.apply(name).starts_with(wanted)) {
        return None;
    }
    let lower = wanted.split('"').next().unwrap_or(wanted).to_lowercase();
    let example = published.iter().find(|name| name.to_lowercase().contains(&lower));
    let example = example.copied().unwrap_or("NVIDIA H100 80GB HBM3");
    let message = format!(
        "productName is the full NVML name, such as {example:?}: write \
         .productName.lowerAscii().contains('{lower}')"
    );
    Some((Severity::Warning, message))
}

fn architecture(wanted: &str, fold: Fold) -> Option<(Severity, String)> {
    let known: Vec<_> = ARCHITECTURES.iter().map(|name| fold.apply(name)).collect();
    let known: Vec<&str> = known.iter().map(|name| &**name).collect();
    if known.contains(&wanted) {
        return None;
    }
    let fix = match nearest(wanted, &known) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("there are {}", known.join(", ")),
    };
    Some((Severity::Warning, format!("no architecture is called {wanted:?}: {fix}")))
}

/// `1g.10gb`, `1g.10gb+me`, `1c.3g.40gb`.
fn profile(wanted: &str) -> Option<(Severity, String)> {
    let (size, extra) = wanted.split_once('+').map_or((wanted, None), |(s, e)| (s, Some(e)));
    let parts: Vec<&str> = size.split('.').collect();
    let number = |part: &str, unit: &str| {
        part.strip_suffix(unit)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_profile = match parts.as_slice() {
        [slices, memory] => number(slices, "g") && number(memory, "gb"),
        [compute, slices, memory] => {
            number(compute, "c") && number(slices, "g") && number(memory, "gb")
        }
        _ => false,
    };
    let is_extra = extra.is_none_or(|extra| !extra.is_empty());
    (!is_profile || !is_extra).then(|| {
        let message = format!(
            "{wanted:?} is no name of a MIG profile: write it as the driver does, such as '1g.10gb'"
        );
        (Severity::Warning, message)
    })
}

fn kind(wanted: &str) -> Option<(Severity, String)> {
    let kinds = ["gpu", "mig", "vfio", "monitor"];
    (!kinds.contains(&wanted)).then(|| {
        let fix = match nearest(wanted, &kinds) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are {}", kinds.join(", ")),
        };
        (Severity::Warning, format!("no device has type {wanted:?}: {fix}"))
    })
}

/// An "80 GB" card has 81559Mi, which is less than 80Gi.
fn memory(comparison: &Comparison) -> Option<(Severity, String)> {
    let Some(Shown::Quantity(wanted)) = &comparison.wanted else { return None };
    let asks = matches!(
        comparison.operator,
        Operator::GreaterEquals | Operator::Greater | Operator::Equals
    );
    let size = SIZES.iter().find(|size| {
        let exact = Quantity::from_bytes_binary((**size).unsigned_abs() << 30);
        asks && exact.as_integer() == wanted.as_integer()
    })?;
    let message = format!(
        "a card sold with {size} GB has less than {wanted}: write quantity('{}Gi') to take it in",
        size - (size / 16).max(1)
    );
    Some((Severity::Hint, message))
}
