//! Health: what GPUs report ([`GpuEvent`]) and say when asked ([`HealthReading`]) becomes the
//! taints, state and message of devices ([`Report`]), by a [`Policy`], in a [`Tracker`].
//!
//! Values in, values out: time and boot are given, and whoever has the device list, the
//! files and the GPUs asks here. An event never makes a device better than it was: only
//! recovery does, or a person who says so ([`Tracker::clear`]).

#![forbid(unsafe_code)]

mod catalogue;
mod cause;
mod event;
mod policy;
mod reading;
mod report;
mod stored;
mod tracker;
mod unread;

pub use event::{EventInstance, EventKind, GpuEvent};
pub use policy::{Policy, Verdict};
pub use reading::{FailedCall, HealthReading, NvLinks, Occasion, RecoveryAction, RowRemap};
pub use report::{Report, State, Taint};
pub use stored::StoredError;
pub use tracker::{Cleared, Part, Tracker, UnixSeconds};
