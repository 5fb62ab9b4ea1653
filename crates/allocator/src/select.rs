//! Selectors: each expression is compiled once, and evaluated once for all devices that are
//! equal in what it reads.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::rc::Rc;

use gpu_dra_cel::{CompileError, EvalError, Field, Selector, Term};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceClass, DeviceSelector};

use crate::candidate::{Candidate, device_location};
use crate::reason::{AllocateError, Fit, Reason};
use crate::request::Request;
use crate::survey::Obstacle;

/// Verdicts kept for one expression: a bound on memory, not on what is judged.
const MAX_VERDICTS: usize = 100_000;
/// As above; they are larger.
const MAX_TERMS: usize = 10_000;

/// Compiled expressions by their text.
#[derive(Debug, Default)]
pub(crate) struct Selectors(HashMap<String, Known>);

#[derive(Debug)]
struct Known {
    compiled: Result<Selector, CompileError>,
    /// By the values of all fields that it reads.
    verdicts: HashMap<String, Result<bool, EvalError>>,
    /// Why not, kept in the same way.
    terms: HashMap<String, Rc<[Term]>>,
    /// It took too long on one device, and isn't tried on others.
    given_up: bool,
}

impl Selectors {
    /// Whether the class and the request select the device, and it is for this node.
    ///
    /// # Errors
    /// A selector that doesn't compile or fails: no verdict at all.
    pub(crate) fn judge(
        &mut self,
        candidate: &Candidate<'_>,
        class: &DeviceClass,
        request: &Request<'_>,
        node: &Node,
        claim: &str,
    ) -> Result<Fit, AllocateError> {
        let name = class_name(class);
        for (index, selector) in of_class(class).iter().enumerate() {
            let verdict = self.verdict(selector, candidate);
            if !verdict.map_err(|e| e.error(format!("class {name}"), index, candidate))? {
                let class = name.to_owned();
                return Ok(Err(Box::new(Reason::ClassSelector { class, index })));
            }
        }
        for (index, selector) in request.selectors.iter().enumerate() {
            let verdict = self.verdict(selector, candidate);
            if !verdict.map_err(|e| e.error(format!("claim {claim}"), index, candidate))? {
                return Ok(Err(Box::new(Reason::Selector { index })));
            }
        }
        let reaches = reaches(candidate, node)?;
        Ok(if reaches { Ok(()) } else { Err(Box::new(Reason::OtherNode)) })
    }

    /// All that class and request have against the device; whether the class selects it.
    pub(crate) fn obstacles(
        &mut self,
        candidate: &Candidate<'_>,
        class: &DeviceClass,
        request: &Request<'_>,
        node: &Node,
        claim: &str,
        into: &mut Vec<Obstacle>,
    ) -> bool {
        let name = class_name(class);
        for (index, selector) in of_class(class).iter().enumerate() {
            match self.verdict(selector, candidate) {
                Ok(true) => {}
                Ok(false) => {
                    let reason = Reason::ClassSelector { class: name.to_owned(), index };
                    into.push(Obstacle { reason, terms: self.terms(selector, candidate) });
                }
                Err(failed) => {
                    let error = Box::new(failed.error(format!("class {name}"), index, candidate));
                    let reason = Reason::SelectorError { error };
                    into.push(Obstacle { reason, terms: self.terms(selector, candidate) });
                }
            }
            if !into.is_empty() {
                return false;
            }
        }
        for (index, selector) in request.selectors.iter().enumerate() {
            match self.verdict(selector, candidate) {
                Ok(true) => {}
                Ok(false) => {
                    let reason = Reason::Selector { index };
                    into.push(Obstacle { reason, terms: self.terms(selector, candidate) });
                }
                // The scheduler doesn't come to those after one that doesn't match.
                Err(failed) if into.is_empty() => {
                    let error = Box::new(failed.error(format!("claim {claim}"), index, candidate));
                    let reason = Reason::SelectorError { error };
                    into.push(Obstacle { reason, terms: self.terms(selector, candidate) });
                }
                Err(_) => {}
            }
        }
        match reaches(candidate, node) {
            Ok(true) => {}
            Ok(false) => into.push(Reason::OtherNode.into()),
            Err(error) => into.push(Reason::SelectorError { error: Box::new(error) }.into()),
        }
        true
    }

    fn verdict(
        &mut self,
        selector: &DeviceSelector,
        candidate: &Candidate<'_>,
    ) -> Result<bool, Failed> {
        let text = selector.cel.as_ref().map_or("", |cel| cel.expression.as_str());
        if !self.0.contains_key(text) {
            let compiled = Selector::compile(text);
            let known = Known {
                compiled,
                verdicts: HashMap::new(),
                terms: HashMap::new(),
                given_up: false,
            };
            self.0.insert(text.to_owned(), known);
        }
        let Some(Known { compiled, verdicts, given_up, .. }) = self.0.get_mut(text) else {
            return Ok(false);
        };
        if *given_up {
            return Err(Failed::Evaluate(EvalError::TooMuchWork));
        }
        let selector = compiled.as_ref().map_err(|error| Failed::Compile(error.clone()))?;
        let Some(key) = key(selector, candidate) else {
            let verdict = selector.matches(candidate.view());
            *given_up = verdict == Err(EvalError::TooMuchWork);
            return verdict.map_err(Failed::Evaluate);
        };
        if let Some(known) = verdicts.get(&key) {
            return known.clone().map_err(Failed::Evaluate);
        }
        let verdict = selector.matches(candidate.view());
        *given_up = verdict == Err(EvalError::TooMuchWork);
        if verdicts.len() < MAX_VERDICTS {
            verdicts.insert(key, verdict.clone());
        }
        verdict.map_err(Failed::Evaluate)
    }

    /// What of the selector keeps the device off.
    fn terms(&mut self, selector: &DeviceSelector, candidate: &Candidate<'_>) -> Rc<[Term]> {
        let text = selector.cel.as_ref().map_or("", |cel| cel.expression.as_str());
        let known = self.0.get_mut(text);
        let Some(Known { compiled: Ok(selector), terms, given_up: false, .. }) = known else {
            return Rc::default();
        };
        let Some(key) = key(selector, candidate) else {
            return selector.explain(candidate.view()).into();
        };
        if let Some(known) = terms.get(&key) {
            return Rc::clone(known);
        }
        let found: Rc<[Term]> = selector.explain(candidate.view()).into();
        if terms.len() < MAX_TERMS {
            terms.insert(key, Rc::clone(&found));
        }
        found
    }
}

/// Why there is no verdict.
enum Failed {
    Compile(CompileError),
    Evaluate(EvalError),
}

impl Failed {
    fn error(self, of: String, index: usize, candidate: &Candidate<'_>) -> AllocateError {
        match self {
            Self::Compile(error) => AllocateError::Compile { of, index, error },
            Self::Evaluate(error) => {
                let device = Box::new(candidate.id.clone());
                AllocateError::Evaluate { of, index, device, error }
            }
        }
    }
}

fn class_name(class: &DeviceClass) -> &str {
    class.metadata.name.as_deref().unwrap_or_default()
}

fn of_class(class: &DeviceClass) -> &[DeviceSelector] {
    class.spec.as_ref().and_then(|spec| spec.selectors.as_deref()).unwrap_or_default()
}

fn reaches(candidate: &Candidate<'_>, node: &Node) -> Result<bool, AllocateError> {
    if candidate.slice.spec.per_device_node_selection != Some(true) {
        return Ok(true);
    }
    device_location(candidate.device).reaches(node).map_err(|reason| AllocateError::NodeSelector {
        slice: candidate.slice.metadata.name.clone().unwrap_or_default(),
        reason,
    })
}

/// The values of all that the expression reads of the device. None where they are not all
/// known by name, and for a device that no expression can read.
fn key(selector: &Selector, candidate: &Candidate<'_>) -> Option<String> {
    let reads = selector.reads();
    if reads.anything || !candidate.is_readable {
        return None;
    }
    let driver = candidate.slice.spec.driver.as_str();
    let mut key = String::new();
    for read in &reads.fields {
        match &read.field {
            Field::Driver => key.push_str(driver),
            Field::AllowMultipleAllocations if candidate.is_shareable() => key.push('y'),
            Field::AllowMultipleAllocations => key.push('n'),
            Field::Attribute { domain, name } => {
                let attributes = candidate.device.attributes.as_ref();
                let find = |name: &str| attributes.and_then(|all| all.get(name));
                write_attribute(&mut key, qualified(driver, domain, name, find))?;
            }
            Field::Capacity { domain, name } => {
                let capacities = candidate.device.capacity.as_ref();
                let find = |name: &str| capacities.and_then(|all| all.get(name));
                match qualified(driver, domain, name, find) {
                    Some(capacity) => write!(key, "q{}", capacity.value.0).ok()?,
                    None => key.push('-'),
                }
            }
        }
        key.push('\0');
    }
    Some(key)
}

/// A name in the driver's domain may be published bare, which then counts.
fn qualified<T>(
    driver: &str,
    domain: &str,
    name: &str,
    find: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let bare = if domain == driver { find(name) } else { None };
    bare.or_else(|| find(&format!("{domain}/{name}")))
}

/// None for a text that could be mistaken for two values.
fn write_attribute(key: &mut String, value: Option<&DeviceAttribute>) -> Option<()> {
    match value {
        None => key.push('-'),
        Some(DeviceAttribute { string: Some(text), .. }) if text.contains('\0') => return None,
        Some(DeviceAttribute { string: Some(text), .. }) => write!(key, "s{text}").ok()?,
        Some(DeviceAttribute { int: Some(number), .. }) => write!(key, "i{number}").ok()?,
        Some(DeviceAttribute { bool: Some(flag), .. }) => write!(key, "b{flag}").ok()?,
        Some(DeviceAttribute { version: Some(text), .. }) => write!(key, "v{text}").ok()?,
        Some(_) => return None,
    }
    Some(())
}
