//! Short programs of the driver that are run and waited for, with a time limit.
//!
//! Never a shell, never a program found by PATH, never one that outlives its limit.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program by its absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// How long it may take.
    pub limit: Duration,
}

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; None when a signal ended it.
    pub code: Option<i32>,
    /// Standard output and standard error, at most 16 KiB of each.
    pub text: String,
}

/// A program that could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started.
    #[error("{} can't be started; is the driver's folder complete?", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It ran past its limit and was killed.
    #[error("{} did not end within {} s and was killed", program.display(), limit.as_secs())]
    TimedOut {
        /// The program.
        program: PathBuf,
        /// The limit.
        limit: Duration,
    },
}

/// Runs programs.
pub trait Processes: Send + Sync {
    /// Runs `command` to its end.
    ///
    /// # Errors
    /// When it can't be started or doesn't end in time. A non-zero exit code is no error here.
    fn run(&self, command: &Command) -> Result<Output, ProcessError>;
}

/// The node's own processes.
#[derive(Debug, Default)]
pub struct RealProcesses;

impl Processes for RealProcesses {
    fn run(&self, command: &Command) -> Result<Output, ProcessError> {
        let start = |source| ProcessError::Start { program: command.program.clone(), source };
        let mut child = std::process::Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(command.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        // Read on threads: a program that fills one pipe must not wait for us for ever.
        let out = child.stdout.take().map(|pipe| std::thread::spawn(|| capture(pipe)));
        let err = child.stderr.take().map(|pipe| std::thread::spawn(|| capture(pipe)));
        let deadline = Instant::now() + command.limit;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(start)? {
                break status;
            }
            if Instant::now() >= deadline {
                child.kill().map_err(start)?;
                child.wait().map_err(start)?;
                return Err(ProcessError::TimedOut {
                    program: command.program.clone(),
                    limit: command.limit,
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = [out, err].into_iter().flatten().filter_map(|thread| thread.join().ok());
        Ok(Output { code: status.code(), text: text.collect() })
    }
}

fn capture(pipe: impl io::Read) -> String {
    const LIMIT: u64 = 16 * 1024;
    let mut bytes = Vec::new();
    let mut limited = pipe.take(LIMIT);
    if let Err(error) = limited.read_to_end(&mut bytes) {
        tracing::debug!(%error, "output of a program was cut off");
    }
    // The rest is read and thrown away, so that the program doesn't die of a closed pipe.
    if let Err(error) = io::copy(&mut limited.into_inner(), &mut io::sink()) {
        tracing::debug!(%error, "rest of a program's output not read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<Output, ProcessError> {
        RealProcesses.run(&Command {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![],
            limit,
        })
    }

    #[test]
    fn code_and_text_come_back() {
        let output = sh("echo out; echo err >&2; exit 3", Duration::from_secs(10)).unwrap();
        assert_eq!(output, Output { code: Some(3), text: "out\nerr\n".into() });
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let error = sh("exec sleep 60", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
    }

    #[test]
    fn a_flood_of_output_is_cut_and_does_not_block() {
        let output = sh("yes | head -c 1000000", Duration::from_secs(10)).unwrap();
        assert_eq!((output.code, output.text.len()), (Some(0), 16 * 1024));
    }
}
