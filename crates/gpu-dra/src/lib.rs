//! The program behind the `gpu-dra` binary: commands, and the rig that demo, bench and tests
//! share. It finds out what was asked and wires the parts together.

#![forbid(unsafe_code)]

mod cli;
mod cluster;
mod commands;
mod exit;
pub mod rig;

/// Runs what the command line says.
#[must_use]
pub fn main() -> std::process::ExitCode {
    exit::code(cli::Cli::of_command_line().run())
}
