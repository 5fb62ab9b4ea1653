//! `gpu-dra controller`: DeviceClasses kept in the API server, and configs checked when they
//! are created.
//!
//! ```text
//! GpuClass ──compile──▶ DeviceClass ──judge──▶ server-side apply, delete, or leave alone
//! slices, claims ──Fleet──▶ counts ──▶ GpuClass.status
//! AdmissionReview ──review (the node agent's decoder)──▶ allowed, or a sentence
//! ```
//!
//! `declare`, `fleet` and the deciding half of `keep` and `admit` are values in, values out. One
//! replica leads, by a Lease; all serve admission. It writes DeviceClasses that it made itself,
//! the status of GpuClasses, its Lease and the certificates of one webhook: never another
//! owner's object. Idle it asks nothing of the API server but its watches and the lease.

#![forbid(unsafe_code)]

pub mod admit;
pub mod declare;
mod error;
pub mod fleet;
mod keep;
mod lease;
mod metrics;
mod run;

pub use declare::{Compiled, GpuClass, Problem, compile};
pub use error::RequestError;
pub use lease::LeaseTiming;
pub use run::{RunError, Settings, Webhook, run};
