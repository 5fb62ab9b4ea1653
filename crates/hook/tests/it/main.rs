//! The hook as runtimes call it, judged by the real loader and the real ldconfig, and
//! against images that try to lead it out of their root.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod hostile;
mod ldcache;
mod links;
mod mounts;
mod musl;
mod support;
