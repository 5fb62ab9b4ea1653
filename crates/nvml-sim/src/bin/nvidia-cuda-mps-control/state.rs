//! What a running control daemon knows: defaults, servers, clients.
//!
//! One active server at a time, for one user, unless multi-user mode is on: clients of other
//! users wait.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits::Limits;
use crate::server;

/// How often a server's end is looked for.
const LOOK: Duration = Duration::from_millis(5);

pub(crate) struct Daemon {
    pub(crate) multi_user: bool,
    /// `CUDA_VISIBLE_DEVICES`.
    pub(crate) devices: Vec<String>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) defaults: Limits,
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
}

pub(crate) struct Server {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) limits: Limits,
    process: Arc<Mutex<Child>>,
}

impl Server {
    /// Ends it; [`Daemon`] forgets it and its clients when it has.
    pub(crate) fn kill(&self) -> Result<(), String> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.kill().map_err(|error| format!("Server {}: {error}", self.pid))
    }
}

pub(crate) struct Client {
    pub(crate) pid: u32,
    pub(crate) server: u32,
    stream: UnixStream,
}

impl Daemon {
    pub(crate) fn new(devices: Vec<String>, multi_user: bool) -> Arc<Self> {
        Arc::new(Self { multi_user, devices, inner: Mutex::default() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server for a user, started if there is none. None where another user's server is
    /// in the way.
    pub(crate) fn server_for(self: &Arc<Self>, uid: u32) -> Result<Option<u32>, String> {
        let mut inner = self.lock();
        let usable = |server: &&Server| self.multi_user || server.uid == uid;
        if let Some(server) = inner.servers.iter().find(usable) {
            return Ok(Some(server.pid));
        }
        if !inner.servers.is_empty() {
            return Ok(None);
        }
        let child = server::start().map_err(|error| format!("Failed to start server: {error}"))?;
        let pid = child.id();
        let limits = inner.defaults.clone();
        let process = Arc::new(Mutex::new(child));
        inner.servers.push(Server { pid, uid, limits, process: Arc::clone(&process) });
        let daemon = Arc::clone(self);
        std::thread::spawn(move || daemon.bury(pid, &process));
        Ok(Some(pid))
    }

    /// Waits for a server's end, which is its clients' end too.
    fn bury(&self, pid: u32, process: &Mutex<Child>) {
        let running = || {
            let mut process = process.lock().unwrap_or_else(PoisonError::into_inner);
            matches!(process.try_wait(), Ok(None))
        };
        while running() {
            std::thread::sleep(LOOK);
        }
        let mut inner = self.lock();
        inner.servers.retain(|server| server.pid != pid);
        for client in inner.clients.iter().filter(|client| client.server == pid) {
            client.close();
        }
        inner.clients.retain(|client| client.server != pid);
    }

    pub(crate) fn attach(&self, pid: u32, server: u32, stream: UnixStream) {
        self.lock().clients.push(Client { pid, server, stream });
    }

    pub(crate) fn detach(&self, pid: u32) {
        self.lock().clients.retain(|client| client.pid != pid);
    }

    /// The place of a device among the visible ones, by place or UUID.
    pub(crate) fn device(&self, name: &str) -> Option<usize> {
        match name.parse::<usize>() {
            Ok(index) => (index < self.devices.len()).then_some(index),
            Err(_) => self.devices.iter().position(|device| device == name),
        }
    }
}

impl Client {
    pub(crate) fn close(&self) {
        // Fails where the client has gone first: then it is closed.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}
