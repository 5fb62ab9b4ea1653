//! Metrics: their text as Prometheus reads it, and whose a process on a GPU is.
//!
//! ```text
//! NVML's processes ─┐
//! /proc/PID/cgroup ─┼─▶ attribute ──▶ Usage: what each claim's pods use, and what nobody claims
//! claims held ──────┘
//! counters, histograms, gauges ──▶ page ──▶ text
//! ```
//!
//! Values in, values out: whoever serves a page reads files, asks GPUs and keeps time.

#![forbid(unsafe_code)]

mod cgroup;
mod page;
mod usage;

pub use cgroup::{PodUid, pods_of};
pub use page::{CONTENT_TYPE, Gauges, page, text};
pub use prometheus_client as client;
pub use usage::{Held, Load, Pod, Process, Row, Usage, attribute, unknown_to};
