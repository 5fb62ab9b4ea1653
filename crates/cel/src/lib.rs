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
//! ([`CompileError::Unsupported`], [`CompileError::TooDeep`]), never a wrong one. An error of
//! an evaluation is not "doesn't match". Nothing here does I/O; the tests compare with a
//! table recorded from Kubernetes' own code, which e2e puts to a real cluster too.

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
