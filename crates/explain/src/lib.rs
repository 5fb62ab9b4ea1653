//! Why a pod or claim gets no device, or that it gets one: node by node, request by request,
//! what removed which device, the value seen beside the value asked, and what would help.
//!
//! ```text
//! objects (slices, classes, claims, nodes) ─▶ Explainer ─explain(Question)─▶ Report ─▶ text, JSON
//!                                                 │
//!                                    the allocator and the CEL that decide
//! ```
//!
//! Contract: "fits" is said of a node exactly when the allocator allocates there, since the
//! allocator is asked. Advice is about the words of an object; it changes a verdict only where
//! the API server refuses an object, of which no node is looked at, or the node agent a config.
//! Nothing here does I/O or knows a cluster; CPU and memory of nodes are not looked at.

#![forbid(unsafe_code)]

mod advice;
mod batches;
mod by_class;
mod catalog;
mod causes;
mod explainer;
mod extended;
mod folded;
mod holders;
pub mod manifest;
mod misses;
mod nodes;
mod on_node;
mod question;
mod report;
mod slices;
pub mod text;
mod values;
mod verdict;
mod words;

pub use catalog::MAX_VALUES;
pub use explainer::{Cluster, Explainer};
pub use folded::Fold;
pub use question::{Known, Question};
pub use report::{
    Advice, Cause, CauseKind, Nearest, NodeGroup, NodeOutcome, Removed, Report, RequestOnNode,
    Verdict,
};
pub use slices::{SliceDevice, Slices};
