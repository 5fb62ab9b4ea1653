//! Rules of planning, by tables.

// Helpers outside #[test] functions count as tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod planning;
mod records;
