//! A stand-in for the driver's `nvidia-cuda-mps-control`: daemon, client and server in one
//! program, with the real one's commands, answers, files and log lines as far as they are
//! known. It shares no GPU; it keeps the limits that it is told.
//!
//! What goes wrong is said in the file `mps-faults` of the node's state directory; see
//! [`faults`].
#![forbid(unsafe_code)]

mod client;
mod commands;
mod daemon;
mod faults;
mod limits;
mod log;
mod server;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::log::Log;

const USAGE: &str = "nvidia-cuda-mps-control of a simulated driver.
  -d                    start the control daemon in the background
  -f                    start it in the foreground
  -M, -m, --multiuser   with -d or -f: one server serves all users
  without options       send the commands of standard input to the running daemon";

/// Where a daemon and its clients meet, from the environment.
pub(crate) struct Places {
    pub(crate) pipe: PathBuf,
    pub(crate) log: PathBuf,
}

impl Places {
    fn from_environment() -> Self {
        let place = |name, default: &str| {
            std::env::var_os(name)
                .filter(|path| !path.is_empty())
                .map_or_else(|| PathBuf::from(default), PathBuf::from)
        };
        Self {
            pipe: place("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),
            log: place("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.pipe.join("control")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Client,
    Background,
    Foreground,
}

fn main() -> ExitCode {
    let mut args = std::env::args();
    let own_name = args.next().unwrap_or_default();
    let places = Places::from_environment();
    if Path::new(&own_name).file_name().is_some_and(|name| name == server::NAME) {
        return server::run(&places);
    }
    let mut mode = Mode::Client;
    let mut multi_user = false;
    for arg in args {
        match arg.as_str() {
            "-d" => mode = Mode::Background,
            "-f" => mode = Mode::Foreground,
            "-M" | "-m" | "--multiuser" => multi_user = true,
            "-h" | "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            other => {
                println!("Unrecognized option {other}\n{USAGE}");
                return ExitCode::FAILURE;
            }
        }
    }
    let done = match mode {
        Mode::Client => client::run(&places),
        Mode::Background => daemon::start_in_background(&places, multi_user),
        Mode::Foreground => daemon::run(&places, multi_user),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            if mode == Mode::Foreground {
                Log::control(&places).line(&reason);
            }
            ExitCode::FAILURE
        }
    }
}
