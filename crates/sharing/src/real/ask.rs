//! Asks a control daemon through the driver's own client: commands on standard input,
//! answers on standard output. The socket's protocol is NVIDIA's own affair.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::environment;
use super::process::RealProcess;
use crate::daemons::{DaemonError, Process as _, Waited};
use crate::places::Places;

/// More than all answers together; a pipe holds it, so that nobody has to read meanwhile.
const LONGEST_ANSWER: u64 = 32 * 1024;

pub(super) fn ask(
    program: &Path,
    places: &Places,
    commands: &[String],
    limit: Duration,
) -> Result<String, DaemonError> {
    let start = |source| DaemonError::Start { program: program.to_owned(), source };
    let (answers, writer) = io::pipe().map_err(start)?;
    let errors = writer.try_clone().map_err(start)?;
    let mut child = Command::new(program)
        .env_clear()
        .envs(environment(program, places))
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(errors)
        .spawn()
        .map_err(start)?;
    let process = RealProcess::open(child.id()).map_err(start)?;
    let process = process.ok_or_else(|| start(io::ErrorKind::NotFound.into()))?;
    let mut text = commands.join("\n");
    text.push('\n');
    if let Some(mut stdin) = child.stdin.take()
        && let Err(error) = stdin.write_all(text.as_bytes())
    {
        tracing::debug!(%error, "MPS client didn't read all commands");
    }
    let how = match process.wait(None, Some(limit))? {
        Waited::Ended(how) => how,
        Waited::Woken | Waited::TimedOut => {
            process.kill()?;
            process.wait(None, None)?;
            let said = format!("{} is not answered", commands.first().map_or("", |c| c.as_str()));
            return Err(DaemonError::Silent { limit, said });
        }
    };
    let mut said = Vec::new();
    answers.take(LONGEST_ANSWER).read_to_end(&mut said).map_err(start)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    if how == "ended with 0" {
        return Ok(said);
    }
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no word");
    Err(DaemonError::Ended { how: format!("client {how}"), said: line.chars().take(100).collect() })
}
