//! One daemon's way up and down, so that a crash at any instruction converges.
//!
//! ```text
//! up:    look for processes of an earlier life ─ adopt the daemon, or end them all
//!        JOURNAL run, once ─ folders ─ mounts ─ note of the start ─ process ─ answers ─ limits
//! down:  JOURNAL stop ─ quit, then SIGKILL ─ unmount ─ remove folders ─ remove from JOURNAL
//! ```
//!
//! It blocks. It never runs two of these for one daemon at a time: its caller sees to that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_dra_host::{Boundary, FileError};

use crate::daemons::{DaemonError, Daemons, Launch, Process, Waited};
use crate::folders::Folders;
use crate::journal::{Journal, JournalError, Record, Wish};
use crate::limits;
use crate::mounts::{self, Mounts};
use crate::places::{Places, RunDir};
use crate::spec::DaemonId;

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A new daemon's first answer.
    pub start: Duration,
    /// One answer.
    pub answer: Duration,
    /// A daemon that was told to quit, or killed.
    pub end: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(10),
            answer: Duration::from_secs(2),
            end: Duration::from_secs(2),
        }
    }
}

/// A daemon that is not up, or not down.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Folders and mounts.
    #[error("MPS daemon's folder: {0}")]
    File(#[from] FileError),
    /// Processes.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// A daemon that serves.
pub struct Up {
    /// The control daemon.
    pub process: Box<dyn Process>,
    /// It was found running: its clients live on.
    pub adopted: bool,
}

/// What an earlier life has left.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Daemons to bring up, or down, as their wish says.
    pub records: Vec<Record>,
    /// Daemons that have folders and no record. They are left alone until somebody asks for
    /// them or stops them.
    pub unasked: Vec<DaemonId>,
}

/// Brings daemons up and down.
pub struct Lifecycle {
    /// Where the daemons' folders lie.
    pub run: RunDir,
    /// What was asked.
    pub journal: Journal,
    /// Makes folders.
    pub folders: Arc<dyn Folders>,
    /// Mounts.
    pub mounts: Arc<dyn Mounts>,
    /// Starts processes.
    pub daemons: Arc<dyn Daemons>,
    /// How long is waited for what.
    pub patience: Patience,
    /// The points between effects.
    pub boundary: Boundary,
}

impl Lifecycle {
    /// What is to be done at the start of a life.
    ///
    /// # Errors
    /// When journal or run folder can't be read.
    pub fn recover(&self) -> Result<Recovered, LifecycleError> {
        let records = self.journal.all()?;
        let names = self.folders.names(self.run.path())?;
        let unasked = names.into_iter().filter_map(|name| DaemonId::new(name).ok());
        let unasked = unasked.filter(|id| !records.iter().any(|record| record.id == *id));
        Ok(Recovered { unasked: unasked.collect(), records })
    }

    /// How often a daemon was started since it was first asked for, or since the node booted.
    /// Each start but the first may have lost the clients of the one before.
    ///
    /// # Errors
    /// When the note of it can't be read.
    pub fn starts(&self, id: &DaemonId) -> Result<u32, LifecycleError> {
        let note = self.folders.noted(&self.run.places(id).starts)?;
        // A note that was cut off by a crash is none.
        Ok(note.and_then(|note| note.trim().parse().ok()).unwrap_or(0))
    }

    /// Has the record's daemon serve, with its limits. Counts a start, unless it is found
    /// serving. Gives up before the next step once `give_up` says so.
    ///
    /// # Errors
    /// When it doesn't serve; then no process of it is left, and all else waits for the next
    /// try or for [`Lifecycle::tear_down`].
    pub fn bring_up(
        &self,
        record: &Record,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Up, LifecycleError> {
        let places = self.run.places(&record.id);
        if self.folders.exists(&places.base)? {
            if let Some(process) = self.adopt(record, &places)? {
                return Ok(Up { process, adopted: true });
            }
            self.kill_all(&places)?;
        }
        self.journal.put(record)?;
        self.boundary.pass("make daemon folders");
        self.folders.create(&places.base, 0o700)?;
        self.folders.create(&places.pipe, 0o755)?;
        self.folders.create(&places.log, 0o755)?;
        self.folders.create(&places.shm, 0o1777)?;
        self.boundary.pass("mount daemon logs");
        self.mounts.tmpfs(&places.log, mounts::LOGS)?;
        self.boundary.pass("mount daemon shm");
        let shm = self.mounts.tmpfs(&places.shm, mounts::SHM)?;
        let launch = Launch { places, spec: record.spec.clone(), shm };
        let starts = self.starts(&record.id)?.saturating_add(1);
        self.folders.note(&launch.places.starts, &starts.to_string())?;
        self.boundary.pass("spawn daemon");
        let process = self.daemons.spawn(&launch)?;
        self.boundary.pass("daemon is spawned");
        let serves = self.wait_for_answer(process.as_ref(), &launch.places, give_up);
        match serves.and_then(|()| self.set_limits(record, &launch.places)) {
            Ok(()) => Ok(Up { process, adopted: false }),
            Err(error) => {
                self.kill_all(&launch.places)?;
                Err(error.into())
            }
        }
    }

    /// Ends the daemon and removes everything of it, record last. Nothing to undo is success.
    ///
    /// # Errors
    /// When something stays; the record stays too, and the call can be repeated.
    pub fn tear_down(&self, id: &DaemonId) -> Result<(), LifecycleError> {
        let places = self.run.places(id);
        let record = self.journal.get(id)?;
        if let Some(record) = record.filter(|record| record.wish == Wish::Run) {
            self.journal.put(&Record { wish: Wish::Stop, ..record })?;
        }
        if self.folders.exists(&places.base)? {
            self.quit(&places)?;
            self.kill_all(&places)?;
            self.boundary.pass("unmount daemon shm");
            self.mounts.unmount(&places.shm)?;
            self.boundary.pass("unmount daemon logs");
            self.mounts.unmount(&places.log)?;
            self.boundary.pass("remove daemon folders");
            self.folders.remove_tree(&places.base)?;
        }
        self.journal.remove(id)?;
        Ok(())
    }

    /// The daemon of an earlier life, if it serves what the record says.
    fn adopt(
        &self,
        record: &Record,
        places: &Places,
    ) -> Result<Option<Box<dyn Process>>, LifecycleError> {
        let found = self.daemons.find(places)?;
        if found.is_empty() {
            return Ok(None);
        }
        // It is there already where the daemon is.
        let shm = self.mounts.tmpfs(&places.shm, mounts::SHM)?;
        let launch = Launch { places: places.clone(), spec: record.spec.clone(), shm };
        let mut controls: Vec<_> =
            found.into_iter().filter(|process| process.is_control_of(&launch)).collect();
        let (Some(process), true) = (controls.pop(), controls.is_empty()) else { return Ok(None) };
        let answer = self.daemons.ask(places, &[limits::PROBE.to_owned()], self.patience.answer);
        let serves = answer.and_then(|answer| limits::number(&answer, limits::PROBE));
        // The life that started it may have ended before it had set them.
        match serves.and_then(|_| self.set_limits(record, places)) {
            Ok(()) => {
                self.journal.put(record)?;
                Ok(Some(process))
            }
            Err(reason) => {
                tracing::warn!(daemon = %record.id, %reason, "MPS daemon of an earlier life is ended");
                Ok(None)
            }
        }
    }

    fn wait_for_answer(
        &self,
        process: &dyn Process,
        places: &Places,
        give_up: &dyn Fn() -> bool,
    ) -> Result<(), DaemonError> {
        let said = || self.daemons.last_words(places).unwrap_or_else(|| "no word".to_owned());
        let deadline = Instant::now() + self.patience.start;
        let mut pause = Duration::from_millis(1);
        loop {
            let answer =
                self.daemons.ask(places, &[limits::PROBE.to_owned()], self.patience.answer);
            let served = answer.and_then(|answer| limits::number(&answer, limits::PROBE));
            let Err(refusal) = served else { return Ok(()) };
            if let Waited::Ended(how) = process.wait(None, Some(pause))? {
                return Err(DaemonError::Ended { how, said: said() });
            }
            if give_up() {
                return Err(DaemonError::GivenUp);
            }
            if Instant::now() >= deadline {
                return Err(match refusal {
                    refused @ DaemonError::Refused { .. } => refused,
                    _ => DaemonError::Silent { limit: self.patience.start, said: said() },
                });
            }
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    fn set_limits(&self, record: &Record, places: &Places) -> Result<(), DaemonError> {
        let commands = limits::commands(&record.spec);
        if commands.is_empty() {
            return Ok(());
        }
        self.boundary.pass("set daemon limits");
        let answers = self.daemons.ask(places, &commands, self.patience.answer)?;
        limits::check(&record.spec, &answers)
    }

    /// Asks the daemon to end itself and its servers.
    fn quit(&self, places: &Places) -> Result<(), DaemonError> {
        let found = self.daemons.find(places)?;
        if found.is_empty() {
            return Ok(());
        }
        self.boundary.pass("quit daemon");
        if let Err(reason) = self.daemons.ask(places, &["quit".to_owned()], self.patience.answer) {
            tracing::info!(folder = %places.base.display(), %reason, "MPS daemon doesn't quit; it is killed");
            return Ok(());
        }
        let deadline = Instant::now() + self.patience.end;
        for process in found {
            process.wait(None, Some(deadline.saturating_duration_since(Instant::now())))?;
        }
        Ok(())
    }

    /// Ends every process that uses the pipe directory, also those started meanwhile.
    fn kill_all(&self, places: &Places) -> Result<(), DaemonError> {
        const ROUNDS: u32 = 5;
        let mut survivor = 0;
        for _ in 0..ROUNDS {
            let found = self.daemons.find(places)?;
            if found.is_empty() {
                return Ok(());
            }
            for process in found {
                self.boundary.pass("kill daemon process");
                process.kill()?;
                survivor = process.pid();
                process.wait(None, Some(self.patience.end))?;
            }
        }
        Err(DaemonError::Survives { pid: survivor })
    }
}
