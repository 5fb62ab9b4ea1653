//! Inventory and policy to the pool's ResourceSlices, and old against new to the least
//! API writes.
//!
//! The way through: [`Names::assign`] gives each GPU its name, [`build`] makes the
//! [`DesiredPool`] and says what its devices are, [`plan_writes`] compares it with what the
//! API server has, and [`dropped_fields`] compares what it stored with what it was sent.
//! This crate never talks to the API server, never reads a clock or a file, and never lets a
//! slice out that the server would refuse ([`validate`]).

#![forbid(unsafe_code)]

pub mod attributes;
mod build;
mod echo;
mod mig;
mod names;
mod note;
mod packed;
mod plan;
mod pool;
pub mod shares;
mod slice_name;
mod taints;
mod validate;

pub use build::{Built, MigPolicy, OwnInstance, Policy, build};
pub use echo::{FieldPath, dropped_fields, same_meaning};
pub use names::{Names, NamesError};
pub use note::{InstanceLeftOut, LeftOut, Note};
pub use packed::{PackError, Packed, PackedPool};
pub use plan::{Owner, PoolRef, Write, plan_writes};
pub use pool::{DesiredPool, Feature, SliceContent};
pub use slice_name::{generate_name, index_of};
pub use taints::tainted;
pub use validate::{Violation, validate, validate_pool};
