//! Which DeviceClasses there should be: the standard ones, those that GpuClasses declare and
//! those made from the fleet. Values in, values out; no cluster is asked.

mod compile;
mod expression;
mod from_fleet;
mod gpuclass;
mod origin;
mod problem;
mod standard;
mod syntax;
#[cfg(test)]
mod tests;

pub use compile::{Compiled, compile};
pub use from_fleet::fleet_classes;
pub use gpuclass::{DeviceType, GROUP, GpuClass, GpuClassSpec, GpuClassStatus, Model, VERSION};
pub use origin::{MADE_FROM, Origin};
pub(crate) use origin::{extended_resource, owner};
pub use problem::{Problem, joined};
pub use standard::standard_classes;
