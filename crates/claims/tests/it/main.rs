//! Rules of planning, by tables.

mod planning;
mod records;
