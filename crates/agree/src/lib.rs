//! Whether CEL and the allocator say what a real API server and scheduler say: the questions,
//! our answers, theirs, and what differs. A tool of the e2e suite; nothing here is shipped.
//!
//! ```text
//! agreement.tsv ──table──▶ rows ────┐                 ┌─▶ the row's verdicts
//!                                   ├──cluster──▶ pods┤
//! seed ──generate──▶ small worlds ──┘   (real ones)   └─▶ judge: our allocator's verdicts
//! ```
//!
//! Pods are never bound: the scheduler that is asked looks at devices first and at the nodes'
//! CPU last, of which each pod wants more than any node has. What it says a node lacks is its
//! verdict, and no case changes the next one's world.

#![forbid(unsafe_code)]

pub mod allocator;
pub mod cel;
pub mod cluster;
pub mod generate;
pub mod judge;
pub mod table;

use k8s_openapi::serde::de::DeserializeOwned;

/// What the scheduler, or we, make of claims on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The node has the devices.
    Can,
    /// It hasn't.
    Cannot,
    /// The attempt ended in an error.
    Error,
}

/// A Kubernetes object from JSON that is written in this crate.
///
/// # Errors
/// The JSON is no such object.
pub(crate) fn object<T: DeserializeOwned>(value: serde_json::Value) -> anyhow::Result<T> {
    serde_json::from_value(value).map_err(Into::into)
}
