//! The container hook's entry: arguments, standard input, exit status. See the library.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use gpu_dra_hook::args::{Action, PROGRAM};

fn main() -> ExitCode {
    let result = Action::parse(std::env::args().skip(1))
        .map_err(Box::<dyn Error>::from)
        .and_then(|action| Ok(gpu_dra_hook::run(&action, std::io::stdin().lock())?));
    match result {
        Ok(warnings) => {
            for warning in warnings {
                eprintln!("{PROGRAM}: {warning}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{PROGRAM}: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The error with its causes, in one line: runtimes show the last line.
fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
