//! Which GPU and compute instances may be created beside those that exist, and where.
//!
//! Values in, values out. The limits are the recorded tables': placements must not overlap,
//! a profile has a greatest count, and memory, multiprocessors and engines can't be handed
//! out twice. Nothing here knows how anybody else counts: these rules are what such counting
//! is checked against.

use crate::mig_table::{GiProfile, MigTable, Placement};

/// An existing GPU instance, as far as the rules care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied {
    /// The id of its profile.
    pub profile: u32,
    /// Where it lies.
    pub placement: Placement,
}

/// Why an instance can't be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The GPU has no such profile.
    #[error("the GPU has no such profile")]
    UnknownProfile,
    /// The profile can never lie there.
    #[error("the profile can't be placed there")]
    ImpossiblePlacement,
    /// Others are in the way, or have what it needs.
    #[error("the place is taken, or memory, multiprocessors or engines are used up")]
    NoRoom,
}

/// Whether the hardware creates a GPU instance of that profile at that place beside those
/// that exist. Profiles and places that the GPU doesn't have are refused.
///
/// This is the judge for property tests of other crates: walk through what can be created
/// beside what was created before, and compare each answer with their own.
///
/// ```
/// use gpu_dra_sim_data::NodeType;
/// use gpu_dra_sim_data::mig_rules::{Occupied, accepts};
///
/// for node_type in NodeType::all().values() {
///     let Some(table) = &node_type.mig else { continue };
///     let mut taken = Vec::new();
///     // In place of this order: every order, or a random one.
///     for (id, profile) in &table.profiles {
///         for placement in profile.placements() {
///             if accepts(table, &taken, *id, placement) {
///                 taken.push(Occupied { profile: *id, placement });
///             }
///         }
///     }
///     assert!(!taken.is_empty());
/// }
/// ```
#[must_use]
pub fn accepts(
    table: &MigTable,
    taken: &[Occupied],
    profile_id: u32,
    placement: Placement,
) -> bool {
    place(table, taken, profile_id, Some(placement)).is_ok()
}

/// Where a new GPU instance goes: at `wanted`, or where it hurts least.
///
/// # Errors
/// [`Refusal`], which NVML tells as INVALID_ARGUMENT or INSUFFICIENT_RESOURCES.
pub fn place(
    table: &MigTable,
    taken: &[Occupied],
    profile_id: u32,
    wanted: Option<Placement>,
) -> Result<Placement, Refusal> {
    let profile = table.profiles.get(&profile_id).ok_or(Refusal::UnknownProfile)?;
    if let Some(wanted) = wanted {
        if !profile.placements().any(|possible| possible == wanted) {
            return Err(Refusal::ImpossiblePlacement);
        }
        let free = fits(table, taken, profile_id, profile, wanted);
        return free.then_some(wanted).ok_or(Refusal::NoRoom);
    }
    // Real drivers choose so that the most other placements stay possible: 3g goes to 4:4
    // on an empty GPU, 1g to the last slice. The first of equals wins.
    let mut best: Option<(usize, Placement)> = None;
    for placement in profile.placements() {
        if !fits(table, taken, profile_id, profile, placement) {
            continue;
        }
        let mut after = taken.to_vec();
        after.push(Occupied { profile: profile_id, placement });
        let left = possibilities(table, &after);
        if best.is_none_or(|(most, _)| left > most) {
            best = Some((left, placement));
        }
    }
    best.map(|(_, placement)| placement).ok_or(Refusal::NoRoom)
}

/// How many more instances of a profile could be created now, all together.
#[must_use]
pub fn remaining(table: &MigTable, taken: &[Occupied], profile_id: u32) -> u32 {
    let Some(profile) = table.profiles.get(&profile_id) else { return 0 };
    let mut all = taken.to_vec();
    let mut count = 0;
    for placement in profile.placements() {
        if fits(table, &all, profile_id, profile, placement) {
            all.push(Occupied { profile: profile_id, placement });
            count += 1;
        }
    }
    count
}

/// The first free place for a compute instance of `slices` compute slices.
///
/// # Errors
/// [`Refusal`] as for GPU instances.
pub fn place_compute(
    starts: &[u32],
    slices: u32,
    taken: &[Placement],
    wanted: Option<Placement>,
) -> Result<Placement, Refusal> {
    let free = |placement: &Placement| !taken.iter().any(|other| other.overlaps(*placement));
    let mut possible = starts.iter().map(|start| Placement { start: *start, size: slices });
    match wanted {
        Some(wanted) if !possible.any(|placement| placement == wanted) => {
            Err(Refusal::ImpossiblePlacement)
        }
        Some(wanted) => Some(wanted).filter(free).ok_or(Refusal::NoRoom),
        None => possible.find(free).ok_or(Refusal::NoRoom),
    }
}

fn fits(
    table: &MigTable,
    taken: &[Occupied],
    profile_id: u32,
    profile: &GiProfile,
    placement: Placement,
) -> bool {
    if taken.iter().any(|other| other.placement.overlaps(placement)) {
        return false;
    }
    let same = taken.iter().filter(|other| other.profile == profile_id).count();
    if u32::try_from(same).is_ok_and(|same| same >= profile.max) {
        return false;
    }
    let Some(whole) = table.resources() else { return false };
    taken
        .iter()
        .filter_map(|other| table.profiles.get(&other.profile))
        .fold(profile.resources(), |sum, other| sum.plus(other.resources()))
        .fits_in(whole)
}

fn possibilities(table: &MigTable, taken: &[Occupied]) -> usize {
    table
        .profiles
        .iter()
        .map(|(id, profile)| {
            profile
                .placements()
                .filter(|placement| fits(table, taken, *id, profile, *placement))
                .count()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_type::NodeType;

    fn table(name: &str) -> MigTable {
        NodeType::named(name).unwrap().mig.clone().unwrap()
    }

    /// Creates by id in order, as `nvidia-smi mig -cgi` does; gives ids and starts.
    fn create(table: &MigTable, profiles: &[u32]) -> Result<Vec<(u32, u32)>, Refusal> {
        let mut taken = Vec::new();
        let mut made = Vec::new();
        for &profile in profiles {
            let placement = place(table, &taken, profile, None)?;
            taken.push(Occupied { profile, placement });
            made.push((table.instance_id(placement), placement.start));
        }
        Ok(made)
    }

    /// Node type, profile ids in the order of creation, instance ids and starts.
    type Transcript = (&'static str, &'static [u32], &'static [(u32, u32)]);

    #[test]
    fn the_recorded_transcripts_come_out() {
        let recorded: &[Transcript] = &[
            // A100-80: 3g goes to the upper half, 4g can only go to the lower.
            ("a100-80", &[9], &[(1, 4)]),
            ("a100-80", &[5], &[(2, 0)]),
            ("a100-80", &[9, 5], &[(1, 4), (2, 0)]),
            // 3-2-1-1: the 1g beside 2g is 2:1.
            ("a100-80", &[9, 14, 19], &[(1, 4), (3, 0), (9, 2)]),
            ("a100-80", &[9, 14, 19, 19], &[(1, 4), (3, 0), (9, 2), (10, 3)]),
            ("a100-80", &[0], &[(0, 0)]),
            ("h100-80", &[0], &[(0, 0)]),
            ("h100-80", &[9, 9], &[(1, 4), (2, 0)]),
            ("a30", &[0], &[(0, 0)]),
        ];
        for (name, profiles, made) in recorded {
            assert_eq!(create(&table(name), profiles), Ok(made.to_vec()), "{name} {profiles:?}");
        }
    }

    /// Of these boards it's known which ids were handed out, but not in which order.
    #[test]
    fn the_recorded_sets_of_ids_come_out() {
        for (name, profiles, ids) in [
            ("a100-80", &[14, 14][..], &[3, 5][..]),
            ("h100-80", &[19; 7], &[7, 8, 9, 10, 11, 12, 13]),
            ("h100-80", &[14, 14, 14, 19], &[3, 4, 5, 13]),
            ("a30", &[14; 4], &[3, 4, 5, 6]),
            ("rtx-pro-6000", &[14; 4], &[3, 4, 5, 6]),
            ("rtx-pro-6000", &[5, 5], &[1, 2]),
        ] {
            let made = create(&table(name), profiles).unwrap();
            let mut made: Vec<_> = made.into_iter().map(|(id, _)| id).collect();
            made.sort_unstable();
            assert_eq!(made, ids, "{name} {profiles:?}");
        }
    }

    #[test]
    fn what_a_gpu_holds_and_what_is_one_too_many() {
        let fits = |name: &str, profiles: &[u32]| match create(&table(name), profiles) {
            Ok(_) => true,
            Err(Refusal::NoRoom) => false,
            Err(other) => panic!("{name} {profiles:?}: {other}"),
        };
        for (name, most, over) in [
            ("a100-40", &[19; 7][..], 19),
            ("h100-80", &[15; 4], 19),
            ("h100-80", &[14; 3], 14),
            ("h100-80", &[9; 2], 19),
            ("h100-80", &[5], 5),
            ("h100-80", &[0], 19),
            // Small ones first leave no room for 3g.
            ("a100-80", &[19, 19, 14], 9),
            // One +me: there is one set of media engines.
            ("a100-40", &[20], 20),
            ("h100-80", &[20, 19, 19, 19, 19, 19, 19], 19),
            ("a30", &[21], 21),
            ("a30", &[21], 6),
            // +me.all takes every media engine and leaves the -me kinds.
            ("rtx-pro-6000", &[65], 14),
            ("rtx-pro-6000", &[65], 47),
            ("rtx-pro-6000", &[65], 5),
            ("rtx-pro-6000", &[64], 65),
            ("rtx-pro-6000", &[64], 35),
            ("rtx-pro-6000", &[65, 67, 67, 67], 67),
            ("rtx-pro-6000", &[65, 66], 14),
            ("rtx-pro-6000", &[66, 64], 67),
            ("rtx-pro-6000", &[21, 14, 14, 14], 67),
            ("rtx-pro-6000", &[14, 47, 67, 21], 14),
        ] {
            assert!(fits(name, most), "{name} {most:?}");
            let more: Vec<_> = most.iter().copied().chain([over]).collect();
            assert!(!fits(name, &more), "{name} {more:?}");
        }
    }

    #[test]
    fn the_count_of_every_profile_is_what_an_empty_gpu_holds() {
        for (name, node_type) in NodeType::all() {
            let Some(table) = &node_type.mig else { continue };
            assert!(table.resources().is_some(), "{name} needs a profile of the whole GPU");
            for (id, profile) in &table.profiles {
                assert_eq!(remaining(table, &[], *id), profile.max, "{name} {}", profile.name);
            }
        }
    }

    /// Visits every set of instances that can exist on a GPU, once.
    fn all_sets(table: &MigTable, mut visit: impl FnMut(&[Occupied])) {
        let candidates: Vec<_> = table
            .profiles
            .iter()
            .flat_map(|(id, profile)| {
                profile.placements().map(|placement| Occupied { profile: *id, placement })
            })
            .collect();
        let mut open = vec![(Vec::new(), 0)];
        while let Some((taken, from)) = open.pop() {
            visit(&taken);
            for (at, next) in candidates.iter().enumerate().skip(from) {
                if accepts(table, &taken, next.profile, next.placement) {
                    let mut more = taken.clone();
                    more.push(*next);
                    open.push((more, at + 1));
                }
            }
        }
    }

    /// What NVML calls instanceCount limits nothing that room and resources don't limit too.
    #[test]
    fn the_greatest_count_follows_from_the_rest() {
        for (name, node_type) in NodeType::all() {
            let Some(table) = &node_type.mig else { continue };
            let mut uncounted = table.clone();
            uncounted.profiles.values_mut().for_each(|profile| profile.max = u32::MAX);
            let mut sets = 0;
            all_sets(table, |taken| {
                sets += 1;
                for (id, profile) in &table.profiles {
                    for placement in profile.placements() {
                        assert_eq!(
                            accepts(table, taken, *id, placement),
                            accepts(&uncounted, taken, *id, placement),
                            "{name}: {} at {placement} beside {taken:?}",
                            profile.name
                        );
                    }
                }
            });
            assert!(sets > 50, "{name}: {sets} sets");
        }
    }

    #[test]
    fn a_placement_is_refused_by_the_right_reason() {
        let h100 = table("h100-80");
        let at = |start, size| Some(Placement { start, size });
        assert_eq!(place(&h100, &[], 9, at(2, 4)), Err(Refusal::ImpossiblePlacement));
        assert_eq!(place(&h100, &[], 99, None), Err(Refusal::UnknownProfile));
        let taken = [Occupied { profile: 9, placement: Placement { start: 0, size: 4 } }];
        assert_eq!(place(&h100, &taken, 9, at(0, 4)), Err(Refusal::NoRoom));
        assert_eq!(place(&h100, &taken, 9, at(4, 4)), Ok(Placement { start: 4, size: 4 }));
        assert!(!accepts(&h100, &taken, 5, Placement { start: 4, size: 4 }), "4g lies low");
        assert!(!accepts(&h100, &[], 99, Placement { start: 0, size: 8 }));
    }

    #[test]
    fn each_resource_is_handed_out_once() {
        let takes_all: [fn(&mut GiProfile); 7] = [
            |p| p.memory_mib = 80_000,
            |p| p.multiprocessors = 132,
            |p| p.copy_engines = 8,
            |p| p.decoders = 7,
            |p| p.encoders = 3,
            |p| p.jpeg_engines = 7,
            |p| p.ofa_engines = 1,
        ];
        let taken = [Occupied { profile: 19, placement: Placement { start: 0, size: 1 } }];
        let at = Placement { start: 6, size: 1 };
        for (nth, change) in takes_all.iter().enumerate() {
            let mut table = table("h100-80");
            table.profiles.get_mut(&0).unwrap().encoders = 3;
            table.profiles.get_mut(&19).unwrap().encoders = 1;
            table.profiles.get_mut(&19).unwrap().ofa_engines = 1;
            table.profiles.get_mut(&20).unwrap().ofa_engines = 0;
            assert!(accepts(&table, &taken, 20, at));
            change(table.profiles.get_mut(&20).unwrap());
            assert!(accepts(&table, &[], 20, at), "{nth}: alone it has room");
            assert!(!accepts(&table, &taken, 20, at), "{nth}");
        }
    }

    #[test]
    fn quarters_of_other_gpus_are_numbered_from_three() {
        let starts = |name: &str, profile: u32| {
            let table = table(name);
            table.profiles[&profile]
                .placements()
                .map(|placement| table.instance_id(placement))
                .collect::<Vec<_>>()
        };
        assert_eq!(starts("a30", 14), [3, 4, 5, 6]);
        assert_eq!(starts("rtx-pro-6000", 47), [3, 4, 5, 6]);
        assert_eq!(starts("rtx-pro-6000", 5), [2, 1]);
        assert_eq!(starts("h100-80", 19), [7, 8, 9, 10, 11, 12, 13]);
    }
}
