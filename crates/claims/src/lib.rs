//! What a claim needs on this node, decided from values.
//!
//! ```text
//! ResourceClaim ──allocation──▶ Allocation ──plan (held records, node's devices)──▶ Record
//!                                    └─ configs resolved by precedence               │
//!                                              journal ◀── encode/decode ────────────┘
//! ```
//!
//! A [`Record`] is what the journal keeps of one claim: the devices it holds, the steps that
//! were or will be done for it, and how far it got. This crate never does a step, reads a
//! file or asks anyone: the node agent does, in the order that the record says.

#![forbid(unsafe_code)]

pub mod adopted;
pub mod allocation;
pub mod check;
pub mod incumbent;
mod newer;
pub mod plan;
pub mod record;
pub mod refusal;
pub mod resolve;
mod share;
mod steps;
pub mod sweep;

pub use allocation::{AllocatedDevice, Allocation};
pub use plan::{GpuFacts, NodeView, plan};
pub use record::{HeldDevice, HeldPart, HeldShare, KnownStep, Phase, Record, Step, share_daemon};
pub use refusal::Refusal;
