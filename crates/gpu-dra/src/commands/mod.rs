//! One module a command.

pub(crate) mod bench;
pub(crate) mod cleanup;
pub(crate) mod clear_taint;
pub(crate) mod controller;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
mod explain_cluster;
pub(crate) mod explain_fleet;
mod health;
pub(crate) mod inventory;
pub(crate) mod lint;
mod lint_files;
mod lint_gpuclass;
pub(crate) mod log;
pub(crate) mod mps_host;
pub(crate) mod node;
pub(crate) mod pause;
pub(crate) mod place;
mod policy;
pub(crate) mod simulated;
pub(crate) mod stop;
