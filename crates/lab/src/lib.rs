//! The embedded control plane of `gpu-dra demo` and of the tests: an API server subset over real HTTP, a claim
//! controller, a scheduler and a kubelet that speaks to drivers through their real sockets.
//!
//! ```text
//!  kubectl, node agent ──HTTP──▶ http ──▶ ┌─────────────┐
//!  kube::Client ──tower Service──▶ http ──▶ │  ApiServer  │◀── claims, scheduler (in process)
//!                                         │ rules, store│◀── kubelet ──sockets──▶ driver
//!                                         └─────────────┘
//! ```
//!
//! It stands in for a cluster: objects, verdicts and error texts are those of a Kubernetes 1.36 with default
//! feature gates. It runs no containers; what one would get (environment, devices, mounts) is recorded. It
//! keeps nothing on disk, knows no users and listens on loopback only. Never use it as a cluster.

#![forbid(unsafe_code)]

mod api;
mod apply;
mod control;
mod error;
mod events;
mod faults;
mod http;
mod json;
pub mod kinds;
mod kubelet;
mod lab;
mod narrator;
mod requests;
mod runtime;
mod schema;
mod selector;
mod store;
mod validate;

pub use api::{
    ApiServer, DeleteOptions, FieldValidation, KUBERNETES_VERSION, Notice, PatchType, Subresource,
    Watch, WriteOptions, Written,
};
pub use error::{ApiError, FieldError, FieldReason};
pub use events::LabEvent;
pub use faults::{Fault, Faults, Trouble};
pub use http::{Listener, Service};
pub use kubelet::{KubeletTiming, StartError};
pub use lab::{Applied, ApplyError, Lab, LabError, LabOptions};
pub use requests::Requests;
pub use runtime::{Container, Mount, Unresolvable};
pub use selector::Selector;
pub use store::{Change, Key, Record};
