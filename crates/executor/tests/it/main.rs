//! The executor on simulated files and a simulated GPU: every crash point, every failing
//! effect, and random sequences with named invariants after each event.

mod crash;
mod sequences;
mod world;
