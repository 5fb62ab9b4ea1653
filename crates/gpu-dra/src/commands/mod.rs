//! One module a command.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod explain;
mod explain_cluster;
pub(crate) mod explain_fleet;
pub(crate) mod inventory;
pub(crate) mod log;
mod mig_policy;
pub(crate) mod mps_host;
pub(crate) mod node;
pub(crate) mod place;
pub(crate) mod simulated;
pub(crate) mod stop;
