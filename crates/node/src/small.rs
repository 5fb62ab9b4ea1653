//! Keeps the agent small on every node: what the start, a publication or a burst of claims
//! took goes back to the kernel once it is worth the while. A quiet agent gives nothing back,
//! since it has nothing; looking costs one read of `/proc`.

use std::time::Duration;

use tokio::time::sleep;

/// By then the first pool is published, if the API server is well.
const FIRST: Duration = Duration::from_millis(500);
/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// KiB: less is not worth the page faults that follow.
const WORTH: u64 = 1024;

/// Looks and gives back, for ever.
pub(crate) async fn keep_small() {
    let mut least = 0;
    let mut pause = FIRST;
    loop {
        sleep(pause).await;
        pause = EVERY;
        let Some(now) = resident_kib() else { continue };
        if now > least + WORTH {
            gpu_dra_memory::give_back();
            least = resident_kib().unwrap_or(now);
            tracing::debug!(before_kib = now, after_kib = least, "gave memory back");
        }
    }
}

/// This process's resident memory, in KiB; None where there is no `/proc`.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
