//! Driver roots as they are on nodes: staged, damaged, replaced, and at last given to a
//! container by a runtime that we did not write.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod edits;
mod files;
mod mig;
mod nodes;
mod nvml;
mod podman;
mod podman_root;
mod support;
