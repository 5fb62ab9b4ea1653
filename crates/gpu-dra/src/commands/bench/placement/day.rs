//! A day of requests for profiles, and its random numbers. Whole numbers only, so that a
//! seed means the same day on every machine.

/// What is asked for: the name of a profile, or [`WHOLE`].
pub(super) type Wanted = &'static str;

/// A whole GPU.
pub(super) const WHOLE: Wanted = "gpu";

/// How often each kind is asked for, of 100 requests.
pub(super) struct Mix {
    /// In a word.
    pub(super) name: &'static str,
    /// The kinds.
    pub(super) kinds: &'static [(Wanted, u64)],
}

/// What clusters ask for: shared cards alone, those and whole ones, mostly large ones; and
/// one without the profile that only fits half of the places that others fit.
pub(super) const MIXES: &[Mix] = &[
    Mix {
        name: "partitions",
        kinds: &[
            ("1g.10gb", 35),
            ("1g.20gb", 10),
            ("2g.20gb", 25),
            ("3g.40gb", 15),
            ("4g.40gb", 15),
        ],
    },
    Mix {
        name: "mixed",
        kinds: &[
            ("1g.10gb", 30),
            ("1g.20gb", 10),
            ("2g.20gb", 20),
            ("3g.40gb", 15),
            ("4g.40gb", 10),
            ("7g.80gb", 5),
            (WHOLE, 10),
        ],
    },
    Mix {
        name: "large",
        kinds: &[
            ("1g.10gb", 20),
            ("2g.20gb", 15),
            ("3g.40gb", 15),
            ("4g.40gb", 15),
            ("7g.80gb", 10),
            (WHOLE, 25),
        ],
    },
    Mix { name: "no 4g", kinds: &[("1g.10gb", 50), ("2g.20gb", 20), ("3g.40gb", 20), (WHOLE, 10)] },
];

/// One request: when it comes, and when what it got is free again. In seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: u64,
    pub(super) until: u64,
    pub(super) wanted: Wanted,
}

const DAY: u64 = 24 * 60 * 60;

/// Minutes from, minutes to, and how many of 100 stay so long: jobs, long jobs, services.
const STAYS: [(u64, u64, u64); 3] = [(10, 60, 60), (60, 240, 30), (360, 1080, 10)];

/// A day on which `load` percent of the memory slices are asked for on average.
/// `slices` tells how many a request takes; `all` are those of the node.
pub(super) fn day(
    seed: u64,
    mix: &Mix,
    load: u64,
    all: u64,
    slices: impl Fn(Wanted) -> u64,
) -> Vec<Arrival> {
    let mut random = Random(seed);
    let total: u64 = mix.kinds.iter().map(|(_, share)| share).sum();
    let size: u64 = mix.kinds.iter().map(|(wanted, share)| slices(wanted) * share).sum();
    // Twice the mean stay in seconds, times 100.
    let stay: u64 = STAYS.iter().map(|(from, to, share)| (from + to) * 60 * share).sum();
    // The chance of a request within one second, as a fraction: load / 100 of the slices,
    // over the mean stay times the mean size.
    let (chance, of) = (2 * load * all * total, stay * size);
    let mut arrivals = Vec::new();
    for at in 0..DAY {
        if random.below(of) >= chance {
            continue;
        }
        let wanted = random.choose(mix.kinds, |(_, share)| *share).map_or(WHOLE, |kind| kind.0);
        let (from, to) = random.choose(&STAYS, |(.., share)| *share).map_or((1, 1), |s| (s.0, s.1));
        let until = at + from * 60 + random.below((to - from) * 60 + 1);
        arrivals.push(Arrival { at, until, wanted });
    }
    arrivals
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`, which is far below 2^64, so the skew doesn't matter.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn choose<'a, T>(&mut self, items: &'a [T], share: impl Fn(&T) -> u64) -> Option<&'a T> {
        let mut left = self.below(items.iter().map(&share).sum());
        items.iter().find(|item| {
            let here = left < share(item);
            left = left.saturating_sub(share(item));
            here
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_day_and_the_load_is_what_was_asked_for() {
        let slices = |wanted: Wanted| if wanted == WHOLE { 8 } else { 2 };
        let mix = &MIXES[3];
        assert_eq!(day(7, mix, 80, 64, slices), day(7, mix, 80, 64, slices));
        assert_ne!(day(7, mix, 80, 64, slices), day(8, mix, 80, 64, slices));
        let asked: u64 = (0..200)
            .flat_map(|seed| day(seed, mix, 80, 64, slices))
            .map(|arrival| (arrival.until - arrival.at) * slices(arrival.wanted))
            .sum();
        let percent = asked * 100 / (200 * DAY * 64);
        assert!((77..=83).contains(&percent), "{percent} percent");
    }
}
