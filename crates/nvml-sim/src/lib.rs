//! A `libnvidia-ml.so.1` by its C ABI that serves simulated GPUs.
//!
//! ```text
//! C caller ─▶ exports/*  one function each, written with the `exports!` macro
//!               │ entry: initialised? log, faults, lost GPU, panics stop here
//!               ▼
//!             session: node.json, state.json, control.json of gpu-dra-sim-data
//! ```
//!
//! It must never let a panic out, never believe a handle that it didn't give, and never
//! keep state of the hardware in the process: that lies in the state directory.
// The exported names are NVML's.
#![allow(non_snake_case)]

mod abi;
mod code;
mod entry;
mod events;
mod exports;
mod garbage;
mod handles;
mod locate;
mod session;
