//! How long to wait: exponential back-off with full jitter after errors, and a brake on
//! repairs when someone keeps undoing them. Nothing here gives up.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Delays that double from `base` to `cap`; each is drawn evenly between zero and that, so
/// that the nodes of a cluster don't come back all at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    pub(crate) const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, attempt: 0 }
    }

    /// The delay before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let doubled = 2_u32.saturating_pow(self.attempt);
        let ceiling = self.base.saturating_mul(doubled).min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        ceiling.mul_f64(random_fraction())
    }

    /// It worked: start from the base again.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// Even enough between 0 and 1: the standard library seeds its hashers randomly.
fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    // 32 bits fit an f64 exactly.
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

/// Repairs that are made at once before the brake sets in.
const FREE_REPAIRS: u32 = 5;

/// After so much peace the brake is off again.
const PEACE: Duration = Duration::from_secs(60);

/// The brake: a few repairs are immediate, but against another writer that undoes each of
/// them (a second driver of the same name) they get rarer.
#[derive(Debug)]
pub(crate) struct Pace {
    repairs: u32,
    last: Option<Instant>,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { repairs: 0, last: None }
    }

    /// How long to wait before the next repair, at least `debounce`, at most 30 s.
    pub(crate) fn delay(&self, debounce: Duration) -> Duration {
        let over = self.repairs.saturating_sub(FREE_REPAIRS);
        if over == 0 {
            return debounce;
        }
        let doubled = Duration::from_millis(100).saturating_mul(2_u32.saturating_pow(over));
        doubled.clamp(debounce, Duration::from_secs(30))
    }

    /// A repair was made now.
    pub(crate) fn repaired(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.duration_since(last) > PEACE) {
            self.repairs = 0;
        }
        self.repairs = self.repairs.saturating_add(1);
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_and_start_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        for attempt in 0..200 {
            let ceiling = Duration::from_millis(100).saturating_mul(1 << attempt.min(20));
            assert!(backoff.next() <= ceiling.min(Duration::from_secs(30)));
        }
        let late: Vec<_> = (0..50).map(|_| backoff.next()).collect();
        assert!(late.iter().max() > Some(&Duration::from_secs(15)), "no growth: {late:?}");
        assert!(late.iter().min() < Some(&Duration::from_secs(15)), "no jitter: {late:?}");
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn repairs_get_rarer_against_a_rival_and_free_after_peace() {
        let debounce = Duration::from_millis(5);
        let mut pace = Pace::new();
        for _ in 0..FREE_REPAIRS {
            assert_eq!(pace.delay(debounce), debounce);
            pace.repaired(Instant::now());
        }
        pace.repaired(Instant::now());
        assert_eq!(pace.delay(debounce), Duration::from_millis(200));
        for _ in 0..100 {
            pace.repaired(Instant::now());
        }
        assert_eq!(pace.delay(debounce), Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(61)).await;
        pace.repaired(Instant::now());
        assert_eq!(pace.delay(debounce), debounce);
    }
}
