//! The whole MPS host: lock, daemons, socket. Decides nothing; wires.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_driverroot::DriverRoot;
use gpu_dra_host::{Boundary, LockError, Locks, RealFiles};

use crate::folders::RealFolders;
use crate::host::{HostError, MpsHost};
use crate::journal::{Journal, JournalError};
use crate::lifecycle::{Lifecycle, Patience};
use crate::mounts::RealMounts;
use crate::places::{RunDir, RunDirError};
use crate::real::RealDaemons;
use crate::serve::Server;

/// How long is waited for an earlier host's end.
const TAKE_OVER: Duration = Duration::from_secs(10);

/// How the MPS host runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the daemons' folders lie: on a tmpfs, under the same path on the host and for
    /// the node agent, with mounts propagated to the host. `/run/gpu-dra/mps`.
    pub run_dir: PathBuf,
    /// The journal's folder, which outlives a boot: `/var/lib/gpu-dra/mps`.
    pub state_dir: PathBuf,
    /// The socket for the node agent: `/run/gpu-dra/mps-host.sock`.
    pub socket: PathBuf,
    /// The driver's root.
    pub root: DriverRoot,
    /// How long is waited for what.
    pub patience: Patience,
    /// The points between effects.
    pub boundary: Boundary,
}

/// The MPS host can't start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run folder can't hold daemons.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The journal's folder.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another MPS host has the journal.
    #[error("MPS host: {0}; another MPS host may be running on this node")]
    Lock(#[from] LockError),
    /// Its threads.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The socket.
    #[error("MPS host can't listen on {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Runs the MPS host until `until_stopped` returns. Its daemons run on, as far as the end of
/// its container lets them, and the next life adopts them.
///
/// # Errors
/// When it can't start.
pub fn run(settings: Settings, until_stopped: impl FnOnce()) -> Result<(), RunError> {
    let run = RunDir::new(settings.run_dir)?;
    let files = Arc::new(RealFiles::new(settings.boundary.clone()));
    let journal = Journal::open(&settings.state_dir, files)?;
    let _sole = Locks::open(&settings.state_dir.join("lock"))?.lock("mps-host", TAKE_OVER)?;
    let host = MpsHost::start(Lifecycle {
        run,
        journal,
        folders: Arc::new(RealFolders),
        mounts: Arc::new(RealMounts),
        daemons: Arc::new(RealDaemons::new(settings.root)),
        patience: settings.patience,
        boundary: settings.boundary,
    })?;
    let host = Arc::new(host);
    let server = Server::start(&settings.socket, Arc::clone(&host))
        .map_err(|source| RunError::Socket { path: settings.socket, source })?;
    tracing::info!("MPS host is ready");
    until_stopped();
    host.leave();
    server.stop();
    Ok(())
}
