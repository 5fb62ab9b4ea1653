//! GPUs that can't be read: how often in a row, and from when on that is told. What is wrong
//! with such a GPU isn't known, which is no verdict on it.

use crate::tracker::UnixSeconds;

/// Its taint, which goes with the first reading.
pub(crate) const KEY: &str = "gpu.nvidia.com/unreadable";

/// Rounds in a row without an answer, after which the GPU's health counts as unknown: one
/// failure of NVML's is none of the GPU's.
const TOLD_AFTER: u32 = 3;

/// Rounds in which a GPU couldn't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    rounds: u32,
    /// Since when it is told.
    pub(crate) since: UnixSeconds,
    /// Why, the last time.
    pub(crate) why: String,
}

impl Unread {
    /// One round more. Says whether what is told has changed.
    pub(crate) fn again(&mut self, why: &str, now: UnixSeconds) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds == TOLD_AFTER {
            self.since = now;
        }
        let is_news = self.is_told() && (self.rounds == TOLD_AFTER || self.why != why);
        why.clone_into(&mut self.why);
        is_news
    }

    pub(crate) fn is_told(&self) -> bool {
        self.rounds >= TOLD_AFTER
    }

    /// What is wrong and what to do, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("the GPU's health can't be read: {}; see `dmesg | grep NVRM`", self.why)
    }
}
