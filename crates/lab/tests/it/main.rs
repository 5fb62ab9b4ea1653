//! Tests of the embedded control plane through its public API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client;
mod deletion;
mod faults;
mod kubectl;
mod pods;
mod rejections;
mod scheduling;
mod support;
mod watches;
