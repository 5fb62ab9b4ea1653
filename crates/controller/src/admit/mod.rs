//! Admission: opaque configs are checked when claims, templates and classes are created, with
//! the node agent's decoder. It only ever refuses what the node agent would refuse later, so it
//! may fail open: without it the same sentence comes as an event of the pod.

mod bundle;
mod certificate;
mod review;
mod serve;
mod trust;

pub use certificate::{Certificate, CertificateError, make};
pub use review::{NoReview, review};
pub use serve::PATH;
pub(crate) use serve::{bind, probes, webhook};
pub(crate) use trust::Trust;
