//! The program itself: a node agent as a process of its own, on the simulated NVML, against
//! the embedded API server over HTTP, called through its real sockets.

mod bad_input;
#[cfg(feature = "die-at")]
mod crash;
mod inventory;
mod publish;
mod world;

#[cfg(not(feature = "die-at"))]
#[test]
fn crash() {
    use std::io::Write as _;
    let note = "SKIPPED: the crash test needs --features gpu-dra/die-at; use cargo xtask test\n";
    std::io::stderr().write_all(note.as_bytes()).unwrap();
}
