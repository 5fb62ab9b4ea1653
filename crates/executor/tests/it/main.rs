//! The executor on simulated files and a simulated GPU: every crash point, every failing
//! effect, and random sequences with named invariants after each event.

// Helpers outside #[test] functions count as tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adopt;
mod crash;
mod sequences;
mod shares;
mod world;
