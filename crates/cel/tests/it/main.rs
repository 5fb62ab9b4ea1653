//! Selectors against what Kubernetes makes of them.

// A test may panic, and measures time where it must not hang.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod agreement;
mod explain;
mod hostile;
mod public;
mod slices;
