//! Slices as the API server and the scheduler see them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod attributes;
mod dropped;
mod golden;
mod golden_mig;
mod layouts;
mod mig_names;
mod mig_tables;
mod names;
mod plan;
mod simulated;
mod support;
mod validation;
