//! One module a command.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod inventory;
pub(crate) mod node;
pub(crate) mod place;
pub(crate) mod simulated;
