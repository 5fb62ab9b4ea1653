//! Keeps the pool's ResourceSlices in the API server equal to the desired ones: one watch
//! on our own slices, writes only where something differs, and back-off where the server
//! doesn't let us.
//!
//! It never polls, never lists without need, never gives up, and leaves the slices alone
//! when it stops: a restart within 30 s must find them as they were. What the pool should
//! be, and which writes lead there, is decided in `gpu-dra-slices`.

#![forbid(unsafe_code)]

mod backoff;
mod cache;
mod effective;
mod error;
mod follower;
mod owner;
mod publisher;
mod status;
mod writer;

pub use error::PublishError;
pub use publisher::Publisher;
pub use status::PublishStatus;
