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
mod names;
mod plan;
mod support;
mod validation;
