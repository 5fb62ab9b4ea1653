//! The controller against an API server: the embedded control plane's for the kinds it knows,
//! and a small store for GpuClasses and webhook configurations in front of it.

mod admission;
mod api;
mod extra;
mod keeping;
mod leading;
mod world;
