//! Classes that take no device at all: what they have against those that come nearest. Of a
//! class that takes any, what it leaves out is no news.

use std::collections::HashSet;
use std::rc::Rc;

use gpu_dra_allocator::Surveyed;
use gpu_dra_cel::Term;

use super::Adviser;
use crate::by_class::{self, About, ByClass};

/// Different terms looked at for one request.
const MOST_TERMS: usize = 256;

/// What the class of a request has against devices, until it takes one.
#[derive(Default)]
pub(super) struct OfClass {
    takes_any: bool,
    /// How near those come that come nearest.
    nearest: Option<About>,
    /// The selector, and the terms of these devices; by address each is there once, and stays
    /// at its address.
    terms: Vec<(String, Rc<[Term]>)>,
    known: HashSet<usize>,
}

impl Adviser<'_> {
    /// Looks at what the class of a request says of a node's devices.
    pub(super) fn class_of(&mut self, request: &Surveyed<'_>) {
        let key = (request.claim, request.request.clone());
        let of_class = self.of_class.entry(key).or_default();
        for candidate in &request.devices {
            if of_class.takes_any {
                return;
            }
            match by_class::of(candidate) {
                ByClass::Taken => *of_class = OfClass { takes_any: true, ..OfClass::default() },
                ByClass::Refused { class, index, terms } => of_class.add(class, index, terms),
                ByClass::Failed => {}
            }
        }
    }

    /// What is to be said of those classes.
    pub(crate) fn classes(&mut self) {
        for of_class in std::mem::take(&mut self.of_class).into_values() {
            let nearest = of_class.nearest;
            for (about, terms) in of_class.terms {
                // On a device of another driver or type the other terms mean nothing.
                let is_meant = |term: &&Term| Some(by_class::about_term(term)) == nearest;
                self.values(&about, terms.iter().filter(is_meant));
            }
        }
    }
}

impl OfClass {
    fn add(&mut self, class: &str, index: usize, terms: &Rc<[Term]>) {
        let about = by_class::about(terms);
        if self.nearest.is_some_and(|nearest| about > nearest) {
            return;
        }
        if self.nearest != Some(about) {
            *self = Self { nearest: Some(about), ..Self::default() };
        }
        let address = Rc::as_ptr(terms).cast::<()>().addr();
        if self.terms.len() < MOST_TERMS && self.known.insert(address) {
            self.terms.push((format!("class {class}, selector #{index}"), Rc::clone(terms)));
        }
    }
}
