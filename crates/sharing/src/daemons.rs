//! Control daemons as processes, behind traits so that crash tests have a simulated side.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gpu_dra_host::FileError;

use crate::mounts::Shm;
use crate::places::Places;
use crate::spec::DaemonSpec;
use crate::wake::Wake;

/// A control daemon that can't be started, asked or found.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The driver root has no control daemon.
    #[error("MPS: no nvidia-cuda-mps-control under {}; is the driver installed whole?", root.display())]
    NoProgram {
        /// The driver root as the host sees it.
        root: PathBuf,
    },
    /// The driver's files can't be collected.
    #[error("MPS: {0}")]
    Driver(String),
    /// A folder or file of the daemon.
    #[error("MPS: {0}")]
    File(#[from] FileError),
    /// The program can't be started.
    #[error("MPS: {} can't be started", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It ended before it answered.
    #[error("MPS control daemon {how}: {said}")]
    Ended {
        /// `ended with 1`, …
        how: String,
        /// The last line that it left.
        said: String,
    },
    /// It has made no socket, so nothing can be asked.
    #[error("MPS control daemon has no socket")]
    NoSocket,
    /// It runs and doesn't answer.
    #[error("MPS control daemon didn't answer within {} s: {said}", limit.as_secs_f32())]
    Silent {
        /// How long was waited.
        limit: Duration,
        /// The last line that it left.
        said: String,
    },
    /// It answered with a sentence where a number was due.
    #[error("MPS control daemon refused {command}: {answer}")]
    Refused {
        /// What it was told.
        command: String,
        /// Its answer, one line.
        answer: String,
    },
    /// It was told to stop while it started.
    #[error("MPS daemon was stopped while it started")]
    GivenUp,
    /// A process of the daemon that SIGKILL doesn't end.
    #[error("MPS process {pid} doesn't end; is the GPU's driver stuck? See dmesg on the node")]
    Survives {
        /// Its process id.
        pid: u32,
    },
    /// The kernel refused to tell about processes.
    #[error("MPS: processes can't be looked at")]
    Processes(#[source] io::Error),
}

/// How a control daemon is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Its folders.
    pub places: Places,
    /// What it serves.
    pub spec: DaemonSpec,
    /// What its shm folder is.
    pub shm: Shm,
}

impl Launch {
    /// `CUDA_VISIBLE_DEVICES`.
    #[must_use]
    pub fn visible_devices(&self) -> String {
        let uuids: Vec<&str> = self.spec.devices().iter().map(|device| device.as_str()).collect();
        uuids.join(",")
    }
}

/// What a wait ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The process has ended: `ended with 1`, `was killed by signal 9`.
    Ended(String),
    /// Somebody woke the waiter.
    Woken,
    /// The time is over.
    TimedOut,
}

/// A process of a daemon: the control daemon or one of its servers. Another process never
/// takes its place, even with the same process id.
pub trait Process: Send {
    /// Its process id.
    fn pid(&self) -> u32;

    /// Whether it is a control daemon that was started by just this launch.
    fn is_control_of(&self, launch: &Launch) -> bool;

    /// Ends it at once; it may have ended.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn kill(&self) -> Result<(), DaemonError>;

    /// Waits for its end, at most `limit`, or until woken.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn wait(&self, wake: Option<&Wake>, limit: Option<Duration>) -> Result<Waited, DaemonError>;
}

/// Starts, asks and finds control daemons.
pub trait Daemons: Send + Sync {
    /// Starts one in the foreground.
    ///
    /// # Errors
    /// When the driver root is incomplete or the kernel refuses.
    fn spawn(&self, launch: &Launch) -> Result<Box<dyn Process>, DaemonError>;

    /// Every process, of this life or an earlier one, that uses the pipe directory of these
    /// places: the control daemon and its servers. Never a client, never a stranger.
    ///
    /// # Errors
    /// When processes can't be looked at.
    fn find(&self, places: &Places) -> Result<Vec<Box<dyn Process>>, DaemonError>;

    /// Gives the daemon's answers to these commands.
    ///
    /// # Errors
    /// When it isn't there or doesn't answer in time.
    fn ask(
        &self,
        places: &Places,
        commands: &[String],
        limit: Duration,
    ) -> Result<String, DaemonError>;

    /// The last line that a daemon left in its logs.
    fn last_words(&self, places: &Places) -> Option<String>;
}
