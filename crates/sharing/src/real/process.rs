//! A process held by its pidfd, so that a signal or a wait can never meet another one that
//! was given its number.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use super::CONTROL;
use crate::daemons::{DaemonError, Launch, Process, Waited};
use crate::wake::{Wake, ready};

#[derive(Debug)]
pub(super) struct RealProcess {
    pid: u32,
    fd: OwnedFd,
}

impl RealProcess {
    /// None where there is no such process.
    pub(super) fn open(pid: u32) -> io::Result<Option<Self>> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self { pid, fd })),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn words(&self, file: &str) -> Vec<String> {
        let bytes = fs::read(format!("/proc/{}/{file}", self.pid)).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// How it ended. One that isn't our child has no more to say; one that is doesn't stay as
    /// a zombie.
    fn ending(&self) -> String {
        let status = waitid(WaitId::PidFd(self.fd.as_fd()), WaitIdOptions::EXITED);
        match status {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("ended with {code}"),
                (_, Some(signal)) => format!("was killed by signal {signal}"),
                _ => "has ended".to_owned(),
            },
            Ok(None) | Err(_) => "has ended".to_owned(),
        }
    }
}

impl Process for RealProcess {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_control_of(&self, launch: &Launch) -> bool {
        let args = self.words("cmdline");
        let Some((program, options)) = args.split_first() else { return false };
        let expected: &[&str] = if launch.spec.multi_user() { &["-f", "-M"] } else { &["-f"] };
        Path::new(program).file_name().is_some_and(|name| name == CONTROL)
            && options == expected
            && self
                .words("environ")
                .contains(&format!("CUDA_VISIBLE_DEVICES={}", launch.visible_devices()))
    }

    fn kill(&self) -> Result<(), DaemonError> {
        match pidfd_send_signal(&self.fd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(DaemonError::Processes(error.into())),
        }
    }

    fn wait(&self, wake: Option<&Wake>, limit: Option<Duration>) -> Result<Waited, DaemonError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let fds: Vec<_> =
            std::iter::once(self.fd.as_fd()).chain(wake.map(|wake| wake.fd())).collect();
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let any = ready(&fds, left).map_err(DaemonError::Processes)?;
            if ready(&[self.fd.as_fd()], Some(Duration::ZERO)).map_err(DaemonError::Processes)? {
                return Ok(Waited::Ended(self.ending()));
            }
            if wake.is_some_and(Wake::clear) {
                return Ok(Waited::Woken);
            }
            if !any {
                return Ok(Waited::TimedOut);
            }
        }
    }
}
