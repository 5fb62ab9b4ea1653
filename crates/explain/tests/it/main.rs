//! Reports on the case files, on made-up clusters, and agreement with the allocator.

// A test may panic, and reads its case files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod cases;
mod confusions;
mod near;
mod verdicts;
mod world;
