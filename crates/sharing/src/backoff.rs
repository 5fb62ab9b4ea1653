//! How long to wait before a daemon is started again.

use std::time::Duration;

/// After the second failure in a row; doubled by each further one.
const FIRST: Duration = Duration::from_millis(250);

/// However often it fails.
const LONGEST: Duration = Duration::from_secs(30);

/// A daemon that ran so long starts with a clean slate.
pub(crate) const STABLE: Duration = Duration::from_secs(60);

/// The pause after so many failures in a row. A daemon that dies after it was ready is
/// started at once: new clients must not wait.
pub(crate) fn pause(failures: u32, was_ready: bool) -> Duration {
    match failures {
        0 | 1 if was_ready => Duration::ZERO,
        0 => FIRST,
        _ => FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_then_slower_and_slower() {
        assert_eq!(pause(1, true), Duration::ZERO);
        assert_eq!(pause(1, false), FIRST);
        assert_eq!(pause(2, true), Duration::from_millis(500));
        assert_eq!(pause(3, false), Duration::from_secs(1));
        assert_eq!(pause(1000, true), LONGEST);
    }
}
