//! What is wrong with DeviceClasses, ResourceClaims, ResourceClaimTemplates and pods before
//! they are applied.
//!
//! ```text
//! text ─parse─▶ Documents ─┐
//!                          ├─lint─▶ Findings: place, severity, rule, a sentence with the fix
//! Fleet, if there is one ──┘
//! ```
//!
//! The verdicts are those of the CEL, the allocator and the config decoder that decide later
//! on, and most words are `explain`'s. Without a fleet, the devices that this driver publishes
//! stand in for one: names are checked, values hardly. Nothing here does I/O, knows a cluster
//! or changes a document; what can't be judged gives no finding.

#![forbid(unsafe_code)]

mod ask;
mod claims;
mod classes;
mod configs;
mod constraints;
mod declared;
mod document;
mod extended;
mod finding;
mod judge;
mod judged;
mod literals;
mod object;
mod path;
mod pods;
mod reference;
mod requests;
mod shape;
mod values;
mod world;

pub use declared::{Compile, Fault};
pub use document::{Document, ParseError};
pub use finding::{Finding, Rule, Severity};
pub use world::Fleet;

use finding::Findings;
use object::{Body, Object};
use world::World;

/// Everything that is wrong with the documents, in their order, the worst of each first.
///
/// Documents are seen together: a claim may use the class, a pod the template, of another.
#[must_use]
pub fn lint(documents: &[Document], fleet: Option<&Fleet>) -> Vec<Finding> {
    lint_with(documents, fleet, &|_| None)
}

/// As [`lint`], with DeviceClasses that other kinds of objects declare: they are judged as if
/// they were written out.
#[must_use]
pub fn lint_with(
    documents: &[Document],
    fleet: Option<&Fleet>,
    compile: &Compile<'_>,
) -> Vec<Finding> {
    let mut findings = Findings::default();
    let mut objects = Vec::new();
    for document in documents {
        objects.extend(Object::all_of(document, compile, &mut findings));
    }
    let mut world = World::new(fleet, &objects);
    // Classes first: what is wrong with a class isn't told again of each claim.
    for object in &objects {
        if let Body::Class(class) = &object.body {
            classes::lint(object, class, &mut world, &mut findings);
            if findings.any_in(object) {
                world.faulty.insert(object.name.clone());
            }
        }
    }
    let mut clean = Vec::new();
    for object in &objects {
        match &object.body {
            Body::Claim(claim) => {
                if claims::lint(object, claim, &mut world, &mut findings) {
                    clean.push((object, claim));
                }
            }
            Body::Pod => pods::lint(object, &world, &mut findings),
            Body::Class(_) | Body::Other => {}
        }
    }
    claims::fit(&clean, &world, &mut findings);
    extended::lint(&objects, &world, &mut findings);
    findings.into_sorted()
}
