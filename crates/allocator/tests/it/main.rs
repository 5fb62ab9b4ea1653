//! The allocator against what a real scheduler does.

// A test may panic, and reads its case files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod cases;
mod hostile;
mod newer;
mod recorded;
mod rules;
mod world;
