//! The kubelet's plugin APIs: registration, DRA v1 and v1beta1, health; and the client side,
//! for the simulated kubelet, the bench and tests.
//!
//! ```text
//!            <root>/plugins_registry/<driver>@reg.sock      <root>/plugins/<driver>/dra@plugin.sock
//!  kubelet ──GetInfo, NotifyRegistrationStatus──▶ registration
//!          ──NodePrepareResources, NodeUnprepareResources───────────▶ calls ──▶ ClaimService
//!          ──NodeWatchResources─────────────────────────────────────▶ health ─▶ ClaimService
//! ```
//!
//! [`Server::start`] serves a [`ClaimService`] on the sockets that [`Paths`] names;
//! [`RegistrationState`] tells where we stand with the kubelet. This crate carries calls. It
//! never decides what a claim gets, never reads a claim from the API server, and never lets
//! a kubelet's impatience cut work short.
#![forbid(unsafe_code)]

mod answers;
mod calls;
pub mod client;
mod health;
mod paths;
pub mod proto;
mod registration;
mod route;
mod server;
mod service;
mod socket;

pub use paths::{MAX_SOCKET_PATH, Paths, PathsError};
pub use registration::{RegistrationState, SILENCE_LIMIT};
pub use server::{Server, Stopped};
pub use service::{ClaimService, DeviceHealth, HEALTH_TIMEOUT, HealthState, PreparedDevice};
pub use socket::SocketError;
