//! The node agent's side: blocking calls with time limits, one connection each.
//!
//! It keeps nothing: what the MPS host says is believed now and asked again later.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::follow::{Follow, MpsEvent};
use crate::protocol::{Call, ProtocolError, RefusalKind, Reply, Status, read_reply, write_call};
use crate::spec::{DaemonId, DaemonSpec};

/// A call to the MPS host that failed.
#[derive(Debug, thiserror::Error)]
pub enum MpsError {
    /// Nobody listens.
    #[error("the MPS host isn't running ({}); is its pod up on this node?", socket.display())]
    Away {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The connection ended before the answer, or the time was over. The call may have been
    /// heard; it can be repeated.
    #[error("the MPS host didn't answer; it will be asked again")]
    NoAnswer(#[source] io::Error),
    /// It can't be done.
    #[error("{message}")]
    Refused {
        /// What kind of reason.
        kind: RefusalKind,
        /// A sentence for the pod's event.
        message: String,
    },
    /// The answer makes no sense.
    #[error("the MPS host's answer isn't understood ({0}); is it of another version?")]
    NotUnderstood(String),
}

/// Asks the MPS host of this node.
#[derive(Debug, Clone)]
pub struct MpsClient {
    socket: PathBuf,
    limit: Duration,
}

impl MpsClient {
    /// Asks on `socket`, and waits at most `limit` for an answer. The kubelet gives up a call
    /// after 45 s, so that is less.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, limit: Duration) -> Self {
        Self { socket: socket.into(), limit }
    }

    /// Has the daemon serve; returns when it does. Repeating it changes nothing.
    ///
    /// # Errors
    /// When it doesn't serve (the host goes on trying until [`MpsClient::stop`]), when it
    /// serves something else, or when the host can't be asked.
    pub fn ensure(&self, id: &DaemonId, spec: &DaemonSpec) -> Result<Status, MpsError> {
        match self.ask(&Call::Ensure { id: id.clone(), spec: spec.clone() })? {
            Reply::Ready(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Has nothing left of the daemon; returns when it is so. An unknown one is fine.
    ///
    /// # Errors
    /// When something stays, or when the host can't be asked.
    pub fn stop(&self, id: &DaemonId) -> Result<(), MpsError> {
        match self.ask(&Call::Stop { id: id.clone() })? {
            Reply::Stopped => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// All daemons.
    ///
    /// # Errors
    /// When the host can't be asked.
    pub fn list(&self) -> Result<Vec<Status>, MpsError> {
        match self.ask(&Call::List)? {
            Reply::Daemons(daemons) => Ok(daemons),
            other => Err(unexpected(&other)),
        }
    }

    /// Has `tell` called on a thread of its own with all daemons, then with each change,
    /// until the result is dropped. Connects again by itself.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn follow(&self, tell: impl FnMut(MpsEvent) + Send + 'static) -> io::Result<Follow> {
        Follow::start(self.socket.clone(), Box::new(tell))
    }

    fn ask(&self, call: &Call) -> Result<Reply, MpsError> {
        let stream = connect(&self.socket, self.limit)?;
        write_call(&mut &stream, call).map_err(MpsError::NoAnswer)?;
        read(&mut BufReader::new(&stream))
    }
}

pub(crate) fn connect(socket: &Path, limit: Duration) -> Result<UnixStream, MpsError> {
    let connected = UnixStream::connect(socket).and_then(|stream| {
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(stream)
    });
    connected.map_err(|source| MpsError::Away { socket: socket.to_owned(), source })
}

pub(crate) fn read(from: &mut BufReader<&UnixStream>) -> Result<Reply, MpsError> {
    match read_reply(from) {
        Ok(Some(Reply::Refused(refusal))) => {
            Err(MpsError::Refused { kind: refusal.kind, message: refusal.message })
        }
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err(MpsError::NoAnswer(io::ErrorKind::UnexpectedEof.into())),
        Err(ProtocolError::Io(error)) => Err(MpsError::NoAnswer(error)),
        Err(error) => Err(MpsError::NotUnderstood(error.to_string())),
    }
}

fn unexpected(reply: &Reply) -> MpsError {
    let text: String = format!("{reply:?}").chars().take(60).collect();
    MpsError::NotUnderstood(text)
}
