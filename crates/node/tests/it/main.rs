//! The node agent's own logic, on simulated files and GPUs.

// Helpers outside #[test] functions count as tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod health;
mod logs;
mod neighbours;
mod release;
mod survey;
mod sweep;
mod turns;
