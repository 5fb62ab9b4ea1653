//! Taking over from NVIDIA's driver (the incumbent) in place: what its state file says of the
//! claims that it has prepared, and what of it becomes a record of ours.
//!
//! ```text
//! checkpoint.json ──read──▶ Checkpoint ─┐
//! its CDI specs ───remains─▶ Checkpoint ┴─take_over (this boot, GPUs, claims)──▶ TakeOver
//!                                                                records for the journal ─┘└─ notes
//! ```
//!
//! The file is read tolerantly and its checksums are ignored: they cover what later versions
//! add. A claim that can't be understood never keeps the others from being taken over. Nothing
//! here is torn down; half-made things become records that the executor undoes as its own.

mod checkpoint;
mod held;
mod mig;
mod note;
mod remains;
mod rollback;
mod take_over;

pub use checkpoint::{Checkpoint, Entry, Group, Prepared, Progress, Unreadable, What};
pub use mig::{AdoptedMig, Origin};
pub use note::Note;
pub use remains::{claim_of_spec, remains};
pub use take_over::{NameDevice, NeedsGpus, Node, TakeOver, UNKNOWN_NAMESPACE, take_over};
