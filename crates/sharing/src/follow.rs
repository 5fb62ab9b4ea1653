//! Follows the MPS host: all daemons at each connection, each change after it, and when the
//! host itself is away.

use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::client::{MpsError, connect, read};
use crate::protocol::{Call, Reply, Status, write_call};
use crate::serve::HEARTBEAT;
use crate::spec::DaemonId;
use crate::supervisor::in_full;
use crate::wake::Wake;

/// The pause before the first try to connect again; doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// However long the host is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Without a word for so long, the host is taken for dead.
const SILENCE: Duration = Duration::from_secs(3 * HEARTBEAT.as_secs());

/// What is told while following.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MpsEvent {
    /// All daemons there are: the host is there (again). Its daemons may have been restarted
    /// meanwhile, which [`Status::starts`] says.
    Daemons(Vec<Status>),
    /// One is new or has another state.
    Changed(Status),
    /// One is gone, as asked.
    Gone(DaemonId),
    /// The host can't be reached, and why. Said once each time it goes away; daemons may run
    /// or not.
    Away(String),
}

/// Follows until it is dropped.
pub struct Follow {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stopped: AtomicBool,
    wake: Wake,
    stream: Mutex<Option<UnixStream>>,
}

type Tell = Box<dyn FnMut(MpsEvent) + Send>;

impl Follow {
    pub(crate) fn start(socket: PathBuf, mut tell: Tell) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            stopped: AtomicBool::new(false),
            wake: Wake::new()?,
            stream: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("mps-follow".to_owned())
            .spawn(move || own.run(&socket, &mut tell))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.wake.set();
        if let Some(stream) = &*self.shared.stream() {
            // Fails where the host was first.
            drop(stream.shutdown(Shutdown::Both));
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("who follows the MPS host has panicked");
        }
    }
}

impl Shared {
    fn run(&self, socket: &Path, tell: &mut Tell) {
        let mut pause = FIRST_PAUSE;
        let mut away = false;
        while !self.is_stopped() {
            let mut reached = false;
            let ended = self.follow(socket, &mut |event| {
                reached = true;
                tell(event);
            });
            self.stream().take();
            if self.is_stopped() {
                return;
            }
            if reached {
                pause = FIRST_PAUSE;
                away = false;
            }
            if let Err(error) = ended
                && !std::mem::replace(&mut away, true)
            {
                tell(MpsEvent::Away(in_full(&error)));
            }
            if let Err(error) = self.wake.wait(pause) {
                tracing::warn!(%error, "who follows the MPS host can't be woken");
                std::thread::sleep(pause);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One connection from its beginning to its end, which is always an error.
    fn follow(&self, socket: &Path, tell: &mut dyn FnMut(MpsEvent)) -> Result<(), MpsError> {
        let stream = connect(socket, SILENCE)?;
        *self.stream() = Some(stream.try_clone().map_err(MpsError::NoAnswer)?);
        if self.is_stopped() {
            return Ok(());
        }
        write_call(&mut &stream, &Call::Watch).map_err(MpsError::NoAnswer)?;
        let mut replies = BufReader::new(&stream);
        loop {
            match read(&mut replies)? {
                Reply::Daemons(daemons) => tell(MpsEvent::Daemons(daemons)),
                Reply::Changed(status) => tell(MpsEvent::Changed(status)),
                Reply::Gone { id } => tell(MpsEvent::Gone(id)),
                Reply::Alive => {}
                other => return Err(MpsError::NotUnderstood(format!("{other:?}"))),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn stream(&self) -> std::sync::MutexGuard<'_, Option<UnixStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
