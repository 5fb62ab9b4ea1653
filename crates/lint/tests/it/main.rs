//! The case files, the selectors seen in public, a document for each rule, the docs, and the
//! schemas of the config kinds.

// A test may panic, and reads its files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod authoring;
mod cases;
mod declared;
mod rules;
mod schemas;
mod selectors;
mod world;
