//! Keeps the agent small on every node: what the start, a publication or a burst of claims
//! took goes back to the kernel when there is calm. It never does so while there is work,
//! which would have to take it again.

use std::time::Duration;

use tokio::time::sleep;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// The serving thread waits less often than this between two looks when there is calm. One
/// call makes it wait a dozen times.
const CALM: u64 = 8;
/// KiB: less isn't worth the page faults that follow.
const WORTH: u64 = 1024;

/// Looks, and gives memory back, for ever. A look costs one read of `/proc`; where there is
/// none, nothing is ever given back.
pub(crate) async fn keep_small() {
    let mut before = Look::default();
    let mut least_kib = 0;
    loop {
        sleep(EVERY).await;
        let Some(now) = Look::now() else { continue };
        let is_calm = now.waits.saturating_sub(before.waits) < CALM;
        if is_calm && now.resident_kib > least_kib + WORTH {
            gpu_dra_memory::give_back();
            least_kib = Look::now().unwrap_or(now).resident_kib;
            tracing::debug!(from_kib = now.resident_kib, to_kib = least_kib, "gave memory back");
        }
        before = now;
    }
}

/// What the kernel says of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    resident_kib: u64,
    /// How often the first thread, the one that serves, has waited for something.
    waits: u64,
}

impl Look {
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let number = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self { resident_kib: number("VmRSS:")?, waits: number("voluntary_ctxt_switches:")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let text = "Name:\tgpu-dra\nVmHWM:\t  29000 kB\nVmRSS:\t    9012 kB\nThreads:\t2\n\
                    voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t14\n";
        assert_eq!(Look::parse(text), Some(Look { resident_kib: 9012, waits: 150 }));
        assert_eq!(Look::parse("VmRSS:\tmany kB\n"), None);
        assert!(Look::now().is_some_and(|look| look.resident_kib > 0));
    }
}
