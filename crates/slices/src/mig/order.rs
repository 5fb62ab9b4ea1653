//! The order of partitions, which is the scheduler's preference: of the devices that match
//! it takes the first that is free. Two rules, chosen by what `gpu-dra bench placement`
//! measures:
//!
//! * On one GPU the next placement of a profile is always the one that blocks the fewest
//!   placements which weren't blocked yet. So a 1g goes beside the half in which alone a 4g
//!   fits, not into it.
//! * What shares a GPU starts at the last GPU, what takes all of one at the first, and each
//!   fills a GPU before it opens the next. They meet as late as can be.
//!
//! Nothing but the order is decided here.

use super::counters::Amounts;

/// Where a placement comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rank {
    /// No other partition can be had beside it.
    pub(crate) takes_all: bool,
    /// Its place among those of its profile on one GPU, from 0.
    pub(crate) nth: usize,
}

/// Ranks the placements of one GPU, each given as its profile's id and what it takes.
pub(crate) fn ranks(all: &[(u32, &Amounts)], totals: &Amounts) -> Vec<Rank> {
    let blocks = |(_, one): &(u32, &Amounts)| -> Vec<usize> {
        let excluded = all.iter().enumerate().filter(|(_, (_, o))| !one.plus(o).fits_in(totals));
        excluded.map(|(at, _)| at).collect()
    };
    let blocked_by: Vec<Vec<usize>> = all.iter().map(blocks).collect();
    let takes_all = |blocked: &Vec<usize>| blocked.len() == all.len();
    let mut ranks: Vec<_> =
        blocked_by.iter().map(|blocked| Rank { takes_all: takes_all(blocked), nth: 0 }).collect();

    let mut profiles: Vec<u32> = all.iter().map(|(profile, _)| *profile).collect();
    profiles.sort_unstable();
    profiles.dedup();
    for profile in profiles {
        let of_profile = all.iter().enumerate().filter(|(_, (id, _))| *id == profile);
        let candidates = of_profile.filter_map(|(at, _)| Some((at, blocked_by.get(at)?))).collect();
        for (nth, at) in least_blocking_first(candidates).into_iter().enumerate() {
            if let Some(rank) = ranks.get_mut(at) {
                rank.nth = nth;
            }
        }
    }
    ranks
}

/// The candidates, each with what it blocks; equals in the order in which they come.
fn least_blocking_first(mut left: Vec<(usize, &Vec<usize>)>) -> Vec<usize> {
    let mut blocked: Vec<usize> = Vec::new();
    let mut order = Vec::new();
    while let Some((place, &(at, blocks))) =
        left.iter().enumerate().min_by_key(|(_, (_, blocks))| {
            blocks.iter().filter(|other| !blocked.contains(other)).count()
        })
    {
        order.push(at);
        blocked.extend(blocks);
        left.remove(place);
    }
    order
}
