//! The controller against an API server: the embedded control plane's for the kinds it knows,
//! and a small store for GpuClasses and webhook configurations in front of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod admission;
mod api;
mod extra;
mod keeping;
mod leading;
mod world;
