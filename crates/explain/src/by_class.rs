//! What a class has against a device: that it is of another driver or type, which is no news
//! of a class that works, or a value, which is as worth telling as a request's selector.

use std::rc::Rc;

use gpu_dra_allocator::{AllocateError, Candidate, Reason};
use gpu_dra_cel::{Field, Term};

/// What keeps a device from a class, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    /// Values: it is the kind of device that the class is about.
    Value,
    /// It is of another type, such as a MIG device of a class of whole GPUs.
    Type,
    /// It is another driver's.
    Driver,
}

/// A class's word on a device.
pub(crate) enum ByClass<'s> {
    /// It is of the class.
    Taken,
    /// It isn't.
    Refused { class: &'s str, index: usize, terms: &'s Rc<[Term]> },
    /// A selector of the class fails on it.
    Failed,
}

/// What the class says.
pub(crate) fn of<'s>(candidate: &'s Candidate<'_>) -> ByClass<'s> {
    let Some(first) = candidate.obstacles.first() else { return ByClass::Taken };
    match &first.reason {
        Reason::ClassSelector { class, index } => {
            ByClass::Refused { class, index: *index, terms: &first.terms }
        }
        Reason::SelectorError { error } => match &**error {
            AllocateError::Evaluate { of, .. } | AllocateError::Compile { of, .. }
                if of.starts_with("class") =>
            {
                ByClass::Failed
            }
            _ => ByClass::Taken,
        },
        _ => ByClass::Taken,
    }
}

/// What the terms are about, the farthest.
pub(crate) fn about(terms: &[Term]) -> About {
    terms.iter().map(about_term).max().unwrap_or(About::Value)
}

/// What one term is about.
pub(crate) fn about_term(term: &Term) -> About {
    let fields = term.comparisons.iter().filter_map(|comparison| comparison.field.as_ref());
    let about = fields.map(|field| match field {
        Field::Driver => About::Driver,
        Field::Attribute { name, .. } if name == "type" => About::Type,
        _ => About::Value,
    });
    about.max().unwrap_or(About::Value)
}
