//! The MPS host: supervises one `nvidia-cuda-mps-control` for each claim (or shared GPU) that
//! the node agent asks for.
//!
//! ```text
//! node agent ── MpsClient ──unix socket──▶ serve ──▶ MpsHost ──▶ one Supervisor a daemon
//!                                                                   └▶ Lifecycle: journal, folders,
//!                                                                      tmpfs, process, limits
//! ```
//!
//! It lives in a process of its own, so that an upgrade of the node agent touches no daemon.
//! It knows neither Kubernetes nor claims, and decides nothing: what a daemon serves is said
//! by its [`DaemonSpec`], and a daemon that nobody asked to stop is never stopped.

#![forbid(unsafe_code)]

mod backoff;
mod board;
mod client;
mod container;
mod daemons;
mod folders;
mod follow;
mod host;
mod journal;
mod lifecycle;
mod limits;
mod mounts;
mod places;
mod protocol;
mod real;
mod run;
mod serve;
mod spec;
mod supervisor;
mod wake;

pub use client::{Follow, MpsClient, MpsError, MpsEvent};
pub use container::{ClientLimits, client_edits};
pub use daemons::{DaemonError, Daemons, Launch, Process, Waited};
pub use folders::{Folders, RealFolders};
pub use host::{HostError, MpsHost};
pub use journal::{Journal, JournalError, Record, Wish};
pub use lifecycle::{Lifecycle, LifecycleError, Patience, Recovered, Up};
pub use mounts::{Mounts, RealMounts, Shm};
pub use places::{Places, RunDir, RunDirError};
pub use protocol::{Call, DaemonState, Refusal, RefusalKind, Reply, Status, VERSION};
pub use real::RealDaemons;
pub use run::{RunError, Settings, run};
pub use spec::{DaemonId, DaemonSpec, SpecError, VisibleDevice};
pub use wake::Wake;
