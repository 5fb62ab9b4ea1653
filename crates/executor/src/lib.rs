//! Does what a claim's plan says, so that a crash at any instruction converges.
//!
//! ```text
//! prepare:    lock claim ─ lock GPUs ─ plan ─ JOURNAL preparing ─ steps ─ CDI spec ─ JOURNAL prepared
//! unprepare:  lock claim ─ lock GPUs ─ JOURNAL unpreparing ─ undo steps ─ remove CDI spec ─ remove from JOURNAL
//! start:      half-done claims are undone, prepared ones get their CDI spec back
//! ```
//!
//! It blocks (files, hardware), so call it from a thread that may. It knows neither the API
//! server nor the kubelet, and decides nothing: `claims` does.

#![forbid(unsafe_code)]

pub mod adopt;
pub mod effects;
pub mod execute;
pub mod journal;

pub use adopt::adopt;
pub use effects::{Done, EffectError, Effects};
pub use execute::{CdiNaming, ClaimLock, ExecuteError, Executor};
pub use journal::{Journal, JournalError, MovedAside};
