//! The documents judged by a CDI reader that we did not write, and by recorded files.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]
#![allow(clippy::disallowed_methods, reason = "tests write the files that readers want")]

mod golden;
mod oracle;
mod rules;
mod support;
