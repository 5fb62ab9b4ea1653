//! The tracker from outside: what happens to GPUs, and what is then told of their devices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod events;
mod mig;
mod properties;
mod readings;
mod recovery;
mod stored;
mod support;
