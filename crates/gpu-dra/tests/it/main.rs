//! The program itself: a node agent as a process of its own, on the simulated NVML, against
//! the embedded API server over HTTP, called through its real sockets.

// Helpers outside #[test] functions count as tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod cleanup;
mod command_line;
#[cfg(feature = "die-at")]
mod crash;
mod docs;
mod doctor;
mod exposition;
mod health;
mod inventory;
mod metrics;
mod mig;
mod mps;
mod publish;
mod shared;
mod soak;
mod takeover;
mod world;

#[cfg(not(feature = "die-at"))]
#[test]
fn crash() {
    use std::io::Write as _;
    let note = "SKIPPED: the crash test needs --features gpu-dra/die-at; use cargo xtask test\n";
    std::io::stderr().write_all(note.as_bytes()).unwrap();
}
