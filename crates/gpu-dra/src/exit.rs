//! Errors on their way to people and to scripts: one place that prints them, and exit codes
//! that are an interface. 0 all right, 1 it failed, 2 wrong usage (clap's own).

use std::process::ExitCode;

/// Prints the error with its causes and gives the exit code.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("gpu-dra: {error:#}");
            ExitCode::FAILURE
        }
    }
}
