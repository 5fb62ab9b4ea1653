//! An obstacle in words: the rule, what was asked and what was seen.

use gpu_dra_allocator::{AllocateError, Conflict, Obstacle, Reason};

use crate::report::{Cause, CauseKind};
use crate::words;

/// The obstacle in words.
pub(crate) fn cause(obstacle: &Obstacle) -> Cause {
    let terms = &obstacle.terms;
    let with_terms = |kind: CauseKind, of: String| {
        let rules: Vec<String> = terms.iter().map(words::rule).collect();
        let comparisons = terms.iter().flat_map(|term| &term.comparisons);
        let mut seen = Vec::new();
        for comparison in comparisons {
            let value = words::seen(comparison);
            let text = if terms.len() > 1 {
                format!("{} {value}", words::subject(comparison))
            } else {
                value
            };
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        let wanted = Some(rules.join(" and ")).filter(|rules| !rules.is_empty());
        Cause { kind, rule: of, wanted, seen }
    };
    match &obstacle.reason {
        Reason::ClassSelector { class, index } => {
            with_terms(CauseKind::Class, format!("selector #{index} of class {class}"))
        }
        Reason::Selector { index } => with_terms(CauseKind::Selector, format!("selector #{index}")),
        Reason::SelectorError { error } => with_terms(CauseKind::SelectorError, error_rule(error)),
        other => plain(other),
    }
}

/// A reason that isn't a selector's.
pub(crate) fn plain(reason: &Reason) -> Cause {
    let cause = |kind, rule: String, wanted: Option<String>, seen: Vec<String>| Cause {
        kind,
        rule,
        wanted,
        seen,
    };
    match reason {
        Reason::InUse { claim } => {
            cause(CauseKind::InUse, "held by a claim".to_owned(), None, vec![claim.clone()])
        }
        Reason::Taken => {
            cause(CauseKind::Taken, "taken by another request of the pod".to_owned(), None, vec![])
        }
        Reason::OtherNode => {
            cause(CauseKind::OtherNode, "not for this node".to_owned(), None, vec![])
        }
        Reason::NoCapacity { name } => {
            cause(CauseKind::Capacity, format!("has no capacity named {name}"), None, vec![])
        }
        Reason::CapacityPolicy { name, wanted } => cause(
            CauseKind::Capacity,
            format!("its policy for {name} doesn't allow {}", words::quantity(wanted)),
            None,
            vec![],
        ),
        Reason::Capacity { name, wanted, left } => cause(
            CauseKind::Capacity,
            format!("capacity {name}"),
            Some(words::quantity(wanted)),
            vec![format!("{} left", words::quantity(left))],
        ),
        Reason::Counters { set, counter, wanted, available } => cause(
            CauseKind::Counter,
            format!("counter {counter} ({set}, shared with other devices)"),
            Some(wanted.to_string()),
            vec![format!("{available} left")],
        ),
        Reason::Taint { key, value, effect } => cause(
            CauseKind::Taint,
            format!("taint {key}={value}:{effect} is not tolerated"),
            None,
            vec![],
        ),
        Reason::Constraint { index, attribute, conflict } => {
            let (what, seen) = match conflict {
                Conflict::Missing => ("the device hasn't the attribute", vec![]),
                Conflict::Differs { value, others } => {
                    ("must be the same on all", vec![format!("{value}, beside {others}")])
                }
                Conflict::Repeats { value } => ("must be different on all", vec![value.clone()]),
            };
            let rule = format!("constraint #{index} on {attribute}: {what}");
            cause(CauseKind::Constraint, rule, None, seen)
        }
        Reason::SelectorError { error } => {
            cause(CauseKind::SelectorError, error_rule(error), None, vec![])
        }
        other @ (Reason::ClassSelector { .. } | Reason::Selector { .. }) => {
            cause(CauseKind::Selector, other.to_string(), None, vec![])
        }
    }
}

/// An error of a selector in the scheduler's words, without the device, which differs.
pub(crate) fn error_rule(error: &AllocateError) -> String {
    match error {
        AllocateError::Evaluate { of, index, error, .. } => {
            format!("{of}: selector #{index}: CEL runtime error: {error}")
        }
        AllocateError::Compile { of, index, error } => {
            format!("{of}: selector #{index}: CEL compile error: {error}")
        }
        AllocateError::AllUnknown { claim, request, pool } => {
            format!("claim {claim}, request {request} asks for all devices, but {pool}")
        }
        AllocateError::AllConstrained { claim, request, reason, .. } => {
            format!("claim {claim}, request {request} asks for all devices, but {reason}")
        }
        AllocateError::TooLong { .. } => NOT_DECIDED.to_owned(),
        other => other.to_string(),
    }
}

/// What is said of an attempt that was given up. After how many tries differs by node.
const NOT_DECIDED: &str = "not decided: its devices can be combined in more ways than explain \
                           tries, which is a limit of its own (the scheduler gives up after 10 \
                           seconds)";

/// The cause as part of a sentence: rule, what was asked, what was seen.
pub(crate) fn sentence(cause: &Cause) -> String {
    let mut text = cause.rule.clone();
    match &cause.wanted {
        Some(wanted) if cause.kind == CauseKind::SelectorError => {
            return format!("{text} (in {wanted})");
        }
        Some(wanted) => text.push_str(&format!(" wants {wanted}")),
        None => {}
    }
    if !cause.seen.is_empty() {
        let joined = if cause.kind == CauseKind::InUse { ":" } else { ", has" };
        text.push_str(&format!("{joined} {}", words::list(&cause.seen, 3)));
    }
    text
}
