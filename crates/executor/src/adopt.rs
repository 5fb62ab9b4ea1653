//! Journals the claims that another driver prepared, and then puts its state file aside. In
//! that order: after a crash anywhere the file is still there to be read again, or all of its
//! claims are in the journal.
//!
//! It reads nothing of the file and does nothing to the machine: what is half made is undone
//! by [`Executor::recover`](crate::Executor::recover), and specs are written there.

use std::path::Path;

use gpu_dra_claims::Record;
use gpu_dra_host::Files;

use crate::journal::{Journal, JournalError};

/// Journals `records` and renames `state` to `aside`. A claim that is in the journal already
/// stays as it is there: an earlier attempt put it there, or it was prepared anew since.
///
/// The caller holds a lock that keeps other processes of ours from doing the same, and no
/// call of the kubelet's is served before it returns.
///
/// # Errors
/// When the file system refuses; it can be repeated.
pub fn adopt(
    journal: &Journal,
    files: &dyn Files,
    records: &[Record],
    state: &Path,
    aside: &Path,
) -> Result<(), JournalError> {
    for record in records {
        if journal.get(&record.claim.uid)?.is_none() {
            journal.put(record)?;
        }
    }
    Ok(files.rename(state, aside)?)
}
