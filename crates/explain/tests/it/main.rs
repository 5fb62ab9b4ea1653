//! Reports on the case files, on made-up clusters, and agreement with the allocator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod confusions;
mod verdicts;
mod world;
