//! Device selectors of Kubernetes DRA: CEL as kube-apiserver and kube-scheduler 1.36 have it.
//!
//! ```text
//! text ──parse (cel crate)──▶ syntax tree ──check──▶ checked expression ──cost──▶ Selector
//!                                                                                   │
//! DeviceView ───────────────────────────────────────────────────────────eval───▶ matches?
//! ```
//!
//! The `cel` crate parses and expands the standard macros. Checking and evaluating are our
//! own, since the verdict must be the API server's: it has no static types and no cost limit
//! (a nested `all` of a few hundred bytes runs for hours), and it overflows the stack.
//!
//! Contract: an expression gets the API server's verdict or is refused by name
//! ([`CompileError::Unsupported`], [`CompileError::TooDeep`], [`EvalError::TooMuchWork`]),
//! never a wrong one. An error of an evaluation is not "doesn't match". Nothing here does
//! I/O; the tests compare with a table recorded from Kubernetes' own code, which e2e puts to
//! a real cluster too, and regular expressions with one recorded from Go.
//!
//! Not judged though the API server knows them: `format` of strings, `sortBy`, URLs (`url`,
//! `isURL` and what is asked of one), addresses (`ip`, `isIP`, `cidr`, `isCIDR` and what is
//! asked of them), named formats (`format.dns1123Label()` and its like, `validate`),
//! `duration` and `timestamp` with their accessors, the authorizer's functions, messages
//! (`google.protobuf.Int32Value{}`), and patterns and types that are very large.
//!
//! Time and memory are bounded by work, not by the API's cost alone: cel-go compares shared
//! lists for years and charges nothing for it. An expression that is compiled, evaluated and
//! explained takes less than a second.

#![forbid(unsafe_code)]

mod check;
mod cost;
mod device;
mod error;
mod eval;
mod explain;
mod functions;
mod ir;
mod parse;
mod reads;
mod regex;
mod selector;
mod semver;
mod signatures;
mod source;
mod types;
mod value;

pub use device::{Attribute, DeviceView, is_version};
pub use error::{CompileError, EvalError, Position};
pub use explain::{Comparison, Operator, Shown, Term};
pub use reads::{Field, Read, Reads};
pub use selector::{MAX_COST, MAX_EXPRESSION_BYTES, Selector};
