//! The values that a server makes up: times, UIDs, name suffixes. Random enough to be unique, not to be secret.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::jiff::Timestamp;

/// The time in seconds, as metadata has it: `2026-11-29T15:08:01Z`.
pub(crate) fn now() -> String {
    after(0)
}

/// The time that many seconds from now.
pub(super) fn after(seconds: i64) -> String {
    let now = Timestamp::now().as_second();
    let at = Timestamp::from_second(now.saturating_add(seconds)).unwrap_or(Timestamp::MAX);
    at.to_string()
}

fn random() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // Each RandomState has keys of its own, seeded by the operating system once per thread.
    RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed))
}

/// A random UUID of version 4.
pub(crate) fn uid() -> String {
    let (high, low) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 50),
        low & 0xffff_ffff_ffff
    )
}

/// Five characters for a generated name; no vowels, so that no words come out.
pub(super) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = random();
    let mut text = String::new();
    for _ in 0..5 {
        let count = ALPHABET.len() as u64;
        let index = usize::try_from(rest % count).unwrap_or_default();
        text.push(char::from(*ALPHABET.get(index).unwrap_or(&b'x')));
        rest /= count;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn uids_are_version_4_and_unique() {
        let uids: BTreeSet<String> = (0..1000).map(|_| uid()).collect();
        assert_eq!(uids.len(), 1000);
        for uid in uids {
            let parts: Vec<&str> = uid.split('-').collect();
            assert_eq!(
                parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
                [8, 4, 4, 4, 12],
                "{uid}"
            );
            assert!(
                parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']),
                "{uid}"
            );
        }
    }

    #[test]
    fn times_have_whole_seconds() {
        assert_eq!(now().len(), "2026-11-29T15:08:01Z".len());
    }
}
