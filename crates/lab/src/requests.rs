//! Counts what clients asked, so that a test can say "nothing was written in that time".

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Requests by verb and resource (`resourceclaims/status` for a subresource).
#[derive(Debug, Default)]
pub struct Requests {
    counts: Mutex<BTreeMap<(&'static str, String), u64>>,
}

impl Requests {
    pub(crate) fn count(&self, verb: &'static str, resource: String) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((verb, resource)).or_default() += 1;
    }

    /// All counts so far; subtract an earlier answer to see a period.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<(&'static str, String), u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often a verb was asked of a resource.
    #[must_use]
    pub fn of(&self, verb: &str, resource: &str) -> u64 {
        let counts = self.snapshot();
        counts.iter().filter(|((v, r), _)| *v == verb && r == resource).map(|(_, n)| n).sum()
    }

    /// How many requests could have changed something.
    #[must_use]
    pub fn writes(&self) -> u64 {
        let reads = ["get", "list", "watch"];
        let counts = self.snapshot();
        counts.iter().filter(|((verb, _), _)| !reads.contains(verb)).map(|(_, n)| n).sum()
    }
}
