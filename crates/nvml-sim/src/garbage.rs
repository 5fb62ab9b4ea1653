//! Answers that are nonsense, where the control file says so: what a call has written for its
//! caller is overwritten when the call is over.
//!
//! Never a byte outside of the memory that the caller gave the call, by NVML's contract.

use std::cell::RefCell;

use crate::code::Answer;

thread_local! {
    /// What the call under way has written; None where nobody wants to know.
    static WRITTEN: RefCell<Option<Vec<Region>>> = const { RefCell::new(None) };
}

/// Memory of the caller's.
struct Region {
    at: *mut u8,
    length: usize,
}

/// Notes that a call has written to its caller's memory, or that the memory that it has begun
/// to write to is so long. It must be the caller's, for the time of the call.
pub(crate) fn wrote(at: *mut u8, length: usize) {
    WRITTEN.with_borrow_mut(|written| {
        let Some(written) = written else { return };
        match written.last_mut() {
            Some(last) if last.at == at => last.length = last.length.max(length),
            Some(last) if last.at.wrapping_add(last.length) == at => last.length += length,
            _ => written.push(Region { at, length }),
        }
    });
}

/// Runs the body of a call and makes nonsense of what it wrote; the same seed makes the same.
pub(crate) fn instead(seed: u64, body: impl FnOnce() -> Answer) -> Answer {
    /// Ends the noting, also when the body panics.
    struct Noting;

    impl Drop for Noting {
        fn drop(&mut self) {
            WRITTEN.set(None);
        }
    }

    WRITTEN.set(Some(Vec::new()));
    let _noting = Noting;
    let answer = body();
    let mut random = Random(seed);
    for Region { at, length } in WRITTEN.take().unwrap_or_default() {
        random.spoil(length, |nth, byte| {
            // SAFETY: `wrote` was told that so many bytes from there are the caller's; `spoil`
            // stays below `length`.
            unsafe { at.wrapping_add(nth).write(byte) };
        });
    }
    answer
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Puts bytes at places below `length`, in one of the ways in which an answer can be wrong.
    fn spoil(&mut self, length: usize, mut put: impl FnMut(usize, u8)) {
        let all = 0..length;
        match self.next() % 10 {
            // As it was: what comes with it may be wrong.
            0 | 1 => {}
            2 => all.for_each(|nth| put(nth, self.byte())),
            3 => all.for_each(|nth| put(nth, 0xff)),
            4 => all.for_each(|nth| put(nth, 0)),
            // A small number.
            5 => all.for_each(|nth| put(nth, if nth == 0 { self.byte() } else { 0 })),
            // A text without an end.
            6 => all.for_each(|nth| put(nth, self.byte().max(1))),
            7 => all.for_each(|nth| put(nth, b'a' + self.byte() % 26)),
            // Nearly right.
            _ => {
                let near = u64::try_from(length.min(48)).unwrap_or_default();
                for _ in 0..=self.next() % 3 {
                    let place = self.next().checked_rem(near).map(usize::try_from);
                    if let Some(Ok(place)) = place {
                        put(place, self.byte());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of eight bytes of which the caller gave the first six.
    fn spoilt(seed: u64) -> [u8; 8] {
        let mut memory = [7; 8];
        let at = memory.as_mut_ptr();
        let answer = instead(seed, || {
            wrote(at, 2);
            wrote(at.wrapping_add(2), 2);
            wrote(at, 6);
            Ok(())
        });
        assert_eq!(answer, Ok(()));
        memory
    }

    #[test]
    fn it_is_nonsense_and_nothing_beyond() {
        let all: Vec<_> = (0..200).map(spoilt).collect();
        assert!(all.iter().all(|memory| memory[6..] == [7, 7]));
        for way in [[0xff; 6], [0; 6], [7; 6]] {
            assert!(all.iter().any(|memory| memory[..6] == way), "{way:?}");
        }
        assert!(all.iter().any(|memory| memory[..6].iter().all(u8::is_ascii_lowercase)));
        assert_eq!(all, (0..200).map(spoilt).collect::<Vec<_>>());
    }

    #[test]
    fn calls_after_it_are_left_alone() {
        let mut memory = [7; 4];
        let _answer = instead(3, || Ok(()));
        wrote(memory.as_mut_ptr(), 4);
        let _answer = instead(3, || Ok(()));
        assert_eq!(memory, [7; 4]);
    }
}
