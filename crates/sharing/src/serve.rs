//! The MPS host's socket: who may ask, and one thread for each who does.
//!
//! Only root and the host's own user may ask, whatever the socket's mode has become.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::board::News;
use crate::host::MpsHost;
use crate::protocol::{Call, ProtocolError, Refusal, RefusalKind, Reply, read_call, write_reply};
use crate::wake::{Wake, ready};

/// Connections at a time. The node agent has one to watch and one for each call.
const MOST_CONNECTIONS: usize = 128;

/// A connection that asks nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A caller that doesn't read for so long is gone.
const UNREAD: Duration = Duration::from_secs(10);

/// How often a watcher hears that the host lives.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Answers until it is stopped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    path: PathBuf,
    thread: JoinHandle<()>,
}

struct Shared {
    host: Arc<MpsHost>,
    stop: Wake,
    connections: Mutex<HashMap<u64, UnixStream>>,
}

impl Server {
    /// Listens on `path`, whose folder is made. A socket that an earlier life has left there
    /// is replaced: the caller holds the lock that says that it lives no more.
    pub(crate) fn start(path: &Path, host: Arc<MpsHost>) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::symlink_metadata(path) {
            Ok(data) if data.file_type().is_socket() => fs::remove_file(path)?,
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared { host, stop: Wake::new()?, connections: Mutex::default() });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("mps-accept".to_owned())
            .spawn(move || accept(&accepting, &listener))?;
        Ok(Self { shared, path: path.to_owned(), thread })
    }

    /// Closes socket and connections.
    pub(crate) fn stop(self) {
        self.shared.stop.set();
        if self.thread.join().is_err() {
            tracing::error!("the MPS host's listener has panicked");
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(socket = %self.path.display(), %error, "socket stays");
        }
        for stream in self.shared.connections().values() {
            // Fails where the other side was first.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, UnixStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(shared: &Arc<Shared>, listener: &UnixListener) {
    let mut serial = 0;
    loop {
        if let Err(error) = ready(&[listener.as_fd(), shared.stop.fd()], None) {
            tracing::error!(%error, "the MPS host can't wait for callers");
            std::thread::sleep(Duration::from_secs(1));
        }
        if shared.stop.clear() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                serial += 1;
                if let Err(error) = admit(shared, serial, stream) {
                    tracing::warn!(%error, "an MPS caller is turned away");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // No descriptors left, say: others may be closed meanwhile.
                tracing::warn!(%error, "the MPS host can't take a caller");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, serial: u64, mut stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(UNREAD))?;
    let peer = socket_peercred(&stream)?;
    let refusal = if !(peer.uid.is_root() || peer.uid == geteuid()) {
        let uid = peer.uid.as_raw();
        tracing::warn!(uid, pid = peer.pid.as_raw_nonzero().get(), "stranger on the MPS socket");
        Some((RefusalKind::Forbidden, format!("user {uid} may not ask the MPS host; root may")))
    } else if shared.connections().len() >= MOST_CONNECTIONS {
        Some((RefusalKind::Busy, "the MPS host has too many callers; try again".to_owned()))
    } else {
        None
    };
    if let Some((kind, message)) = refusal {
        return write_reply(&mut stream, &Reply::Refused(Refusal { kind, message }));
    }
    shared.connections().insert(serial, stream.try_clone()?);
    let serving = Arc::clone(shared);
    let spawned = std::thread::Builder::new().name("mps-caller".to_owned()).spawn(move || {
        if let Err(error) = converse(&serving.host, &stream) {
            tracing::debug!(%error, "an MPS caller's connection ended");
        }
        serving.connections().remove(&serial);
    });
    if let Err(error) = spawned {
        shared.connections().remove(&serial);
        return Err(error);
    }
    Ok(())
}

fn converse(host: &MpsHost, stream: &UnixStream) -> Result<(), ProtocolError> {
    let mut calls = BufReader::new(stream);
    let mut answers = stream;
    loop {
        let reply = match read_call(&mut calls) {
            Ok(None) => return Ok(()),
            Ok(Some(Call::Watch)) => return watch(host, stream),
            Ok(Some(call)) => answer(host, call),
            Err(ProtocolError::Io(error)) => return Err(error.into()),
            Err(error) => {
                // Nobody knows where the next call would begin.
                let message = format!("the MPS host doesn't understand: {error}");
                let kind = RefusalKind::NotUnderstood;
                write_reply(&mut answers, &Reply::Refused(Refusal { kind, message }))?;
                return Err(error);
            }
        };
        write_reply(&mut answers, &reply)?;
    }
}

fn answer(host: &MpsHost, call: Call) -> Reply {
    let outcome = match call {
        Call::Ensure { id, spec } => host.ensure(&id, &spec).map(Reply::Ready),
        Call::Stop { id } => host.stop(&id).map(|()| Reply::Stopped),
        Call::List | Call::Watch => Ok(Reply::Daemons(host.list())),
    };
    outcome.unwrap_or_else(Reply::Refused)
}

fn watch(host: &MpsHost, mut stream: &UnixStream) -> Result<(), ProtocolError> {
    let board = &host.shared.board;
    let (all, mut seen) = board.all();
    write_reply(&mut stream, &Reply::Daemons(all))?;
    loop {
        match board.news(&mut seen, HEARTBEAT) {
            News::Changes(replies) => {
                for reply in replies {
                    write_reply(&mut stream, &reply)?;
                }
            }
            News::Nothing => write_reply(&mut stream, &Reply::Alive)?,
            News::Closed => return Ok(()),
        }
    }
}
