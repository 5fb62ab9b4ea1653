//! The MPS host from outside: its crash points on a simulated machine, and everything else
//! with real processes of the simulated driver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
mod faults;
mod guests;
mod processes;
mod protocol;
mod restart;
mod sequences;
mod staged;
mod world;
