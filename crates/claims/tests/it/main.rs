//! Rules of planning, by tables.

// Helpers outside #[test] functions count as tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Tests read their data; the crate itself doesn't.
#![allow(clippy::disallowed_methods)]

mod cases;
mod incumbent;
mod planning;
mod records;
mod sharing;
mod sweep;
mod versions;
