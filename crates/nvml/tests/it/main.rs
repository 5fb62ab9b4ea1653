//! Integration tests: against a small C library for what a driver can do wrong, and against
//! the simulated NVML for what GPUs can be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acts;
mod events;
mod faults;
mod geometry;
mod golden;
mod health;
mod mig_mode;
mod node;
mod nonsense;
mod open;
mod partitions;
mod processes;
mod stub;
