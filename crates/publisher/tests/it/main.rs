//! The publisher against an API server in this process: lists, watches with resource
//! versions, preconditions, and faults on demand. Time is paused, so hours pass at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod faults;
mod harness;
mod publishing;
mod server;
