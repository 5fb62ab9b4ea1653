//! `nvidia-cuda-mps-server`: a process that is there while clients are served. It outlives a
//! control daemon that is killed, as the real one does, and ends with the pipe directory.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use crate::Places;
use crate::log::Log;

pub(crate) const NAME: &str = "nvidia-cuda-mps-server";

/// How often a server looks whether anybody can still reach it.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn run(places: &Places) -> ExitCode {
    let log = Log::server(places);
    log.line("New server");
    while places.pipe.is_dir() {
        std::thread::sleep(LOOK);
    }
    ExitCode::SUCCESS
}

/// Starts one with this process's environment.
pub(crate) fn start() -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg0(NAME)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
