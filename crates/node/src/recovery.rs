//! What an earlier process left half done is undone before the kubelet is served, and what
//! can't be mended at once whenever the GPUs have changed.

use std::sync::Arc;

use gpu_dra_executor::Executor;
use gpu_dra_model::BootId;
use tokio::sync::watch;

use crate::events::{Announcer, Severity};
use crate::survey::Survey;

/// True where nothing is left to mend.
pub(crate) async fn recover_once(executor: &Arc<Executor>, boot_id: &BootId) -> bool {
    let (executor, boot_id) = (Arc::clone(executor), boot_id.clone());
    match tokio::task::spawn_blocking(move || executor.recover(&boot_id)).await {
        Ok(Ok(failures)) => {
            if !failures.is_empty() {
                tracing::warn!(claims = failures.len(), "not all recovered yet");
            }
            failures.is_empty()
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "journal can't be read");
            false
        }
        Err(error) => {
            tracing::error!(%error, "recovery failed inside");
            false
        }
    }
}

/// Recovers again whenever the GPUs have changed, until nothing is left to mend.
pub(crate) async fn keep_recovering(
    mut recovered: bool,
    executor: Arc<Executor>,
    boot_id: BootId,
    mut survey: watch::Receiver<Option<Arc<Survey>>>,
) {
    while !recovered && survey.changed().await.is_ok() {
        recovered = recover_once(&executor, &boot_id).await;
    }
}

/// Tells of journal files that are no records.
pub(crate) fn tell(executor: &Executor, announcer: &Announcer) {
    for moved in executor.journal.take_moved_aside() {
        announcer.announce(Severity::Warning, "JournalFileUnreadable", moved.to_string());
    }
}
