//! Keeps a process small that does much at its start and little afterwards: tells the C
//! library not to hoard, and gives back what isn't in use.
//!
//! The only place for the `unsafe` that this takes. It decides nothing about when, and does
//! nothing where the C library isn't glibc.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use glibc::{be_frugal, give_back};

/// Tells the C library not to hoard: nothing to tell here.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn be_frugal() {}

/// Gives back what isn't in use: nothing to give here.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}
