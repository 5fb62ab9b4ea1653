//! What is said on the MPS host's socket: one JSON object a line, version first.
//!
//! ```text
//! ▶ {"v":1,"call":{"ensure":{"id":"0f6c…-1a2b","spec":{"devices":["GPU-…"]}}}}
//! ◀ {"v":1,"reply":{"ready":{"id":"0f6c…-1a2b","state":{"is":"ready","pid":71},"starts":1}}}
//! ▶ {"v":1,"call":"watch"}
//! ◀ {"v":1,"reply":{"daemons":[…]}}      all there are
//! ◀ {"v":1,"reply":{"changed":{…}}}      each time one changes
//! ◀ {"v":1,"reply":"alive"}              now and then, that the host lives
//! ```
//!
//! Calls are read strictly: a host that doesn't know a limit must not seem to hold it.
//! Replies are read leniently: a host may be newer than the node agent, and say more.

use std::io::{self, BufRead, Read as _, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::spec::{DaemonId, DaemonSpec};

/// The only version so far.
pub const VERSION: u32 = 1;

/// The longest call in bytes: the spec of a daemon on as many devices as are allowed.
pub(crate) const LONGEST_CALL: u64 = 32 * 1024;

/// The longest reply in bytes: the states of all daemons that a host runs.
pub(crate) const LONGEST_REPLY: u64 = 1024 * 1024;

/// What the node agent asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Call {
    /// Has the daemon serve. Repeating it changes nothing.
    Ensure {
        /// Its name.
        id: DaemonId,
        /// What it serves.
        spec: DaemonSpec,
    },
    /// Has nothing left of the daemon. Repeating it changes nothing; an unknown one is fine.
    Stop {
        /// Its name.
        id: DaemonId,
    },
    /// All daemons.
    List,
    /// All daemons, then each change until the connection ends. Nothing else can be asked on
    /// that connection.
    Watch,
}

/// What the host answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// To ensure: it serves.
    Ready(Status),
    /// To stop: nothing is left.
    Stopped,
    /// To list, and first to watch.
    Daemons(Vec<Status>),
    /// To watch: one is new or has another state.
    Changed(Status),
    /// To watch: one is gone, as asked.
    Gone {
        /// Its name.
        id: DaemonId,
    },
    /// To watch: nothing has changed, and the host lives.
    Alive,
    /// It can't be done.
    Refused(Refusal),
}

/// How a daemon is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its name.
    pub id: DaemonId,
    /// What it does.
    pub state: DaemonState,
    /// How often it was started since it was first asked for (or since the node booted). If
    /// this isn't what it was when a claim was prepared, the claim's clients were lost in
    /// between.
    pub starts: u32,
    /// Why it isn't ready, or was not before its last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a daemon does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DaemonState {
    /// It doesn't answer yet.
    Starting,
    /// It serves clients.
    Ready {
        /// The control daemon's process id.
        pid: u32,
    },
    /// It has ended or can't be started; its clients are lost.
    Failed {
        /// The next try, in milliseconds from when this was said.
        retry_ms: u64,
    },
    /// Nobody wants it any more.
    Stopping,
    /// An earlier life of the host has left it, and its record is lost.
    Unasked,
    /// A state that this reader doesn't know.
    #[serde(other)]
    Other,
}

/// Why something can't be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// What kind of reason.
    pub kind: RefusalKind,
    /// A sentence for the pod's event.
    pub message: String,
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalKind {
    /// The host doesn't understand the call: it is of another version than the caller.
    NotUnderstood,
    /// The caller may not ask.
    Forbidden,
    /// The daemon serves something else; stop it first.
    Conflict,
    /// The host runs as many daemons as it may, or stops itself.
    Busy,
    /// The daemon isn't ready. The host goes on trying.
    NotReady,
    /// The daemon isn't stopped. The host goes on trying.
    NotStopped,
    /// A kind that this reader doesn't know.
    #[serde(other)]
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    v: u32,
    call: Call,
}

#[derive(Serialize, Deserialize)]
struct Answered {
    v: u32,
    reply: Reply,
}

/// A line that is no message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("connection failed")]
    Io(#[from] io::Error),
    #[error("more than {0} bytes in one line")]
    TooLong(u64),
    #[error("{0}")]
    NotUnderstood(String),
}

pub(crate) fn write_call(to: &mut impl Write, call: &Call) -> io::Result<()> {
    write_line(to, &Asked { v: VERSION, call: call.clone() })
}

pub(crate) fn write_reply(to: &mut impl Write, reply: &Reply) -> io::Result<()> {
    write_line(to, &Answered { v: VERSION, reply: reply.clone() })
}

/// None when the other side has closed.
pub(crate) fn read_call(from: &mut impl BufRead) -> Result<Option<Call>, ProtocolError> {
    let Some(line) = read_line(from, LONGEST_CALL)? else { return Ok(None) };
    decode::<Asked>(&line).map(|asked| Some(asked.call))
}

/// None when the other side has closed.
pub(crate) fn read_reply(from: &mut impl BufRead) -> Result<Option<Reply>, ProtocolError> {
    let Some(line) = read_line(from, LONGEST_REPLY)? else { return Ok(None) };
    decode::<Answered>(&line).map(|answered| Some(answered.reply))
}

/// One write, so that no half message is sent by itself.
fn write_line(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

fn read_line(from: &mut impl BufRead, longest: u64) -> Result<Option<Vec<u8>>, ProtocolError> {
    let mut line = Vec::new();
    from.take(longest).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 + 1 >= longest => Err(ProtocolError::TooLong(longest)),
        Some(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let version = serde_json::from_slice::<Version>(line);
    match version {
        Ok(Version { v: VERSION }) => serde_json::from_slice(line)
            .map_err(|error| ProtocolError::NotUnderstood(error.to_string())),
        Ok(Version { v }) => Err(ProtocolError::NotUnderstood(format!(
            "version {v}, and this side speaks {VERSION}"
        ))),
        Err(_) => Err(ProtocolError::NotUnderstood("no JSON object with a version".to_owned())),
    }
}
