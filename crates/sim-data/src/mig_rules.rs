//! Which GPU and compute instances may be created beside those that exist, and where.
//!
//! Values in, values out. The limits are the recorded tables': placements must not overlap,
//! a profile has a greatest count, and engines can't be handed out twice.

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
    /// Others are in the way, or the engines are used up.
    #[error("the place or the engines are taken")]
    NoRoom,
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
    let Some(whole) = table.engines() else { return true };
    taken
        .iter()
        .filter_map(|other| table.profiles.get(&other.profile))
        .fold(profile.engines(), |sum, other| sum.plus(other.engines()))
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

    #[test]
    fn the_recorded_transcripts_of_an_a100_come_out() {
        let a100 = table("a100-80");
        assert_eq!(create(&a100, &[9]), Ok(vec![(1, 4)]), "3g goes to 4:4");
        assert_eq!(create(&a100, &[9, 5]), Ok(vec![(1, 4), (2, 0)]), "then 4g to 0:4");
        assert_eq!(create(&a100, &[9, 14, 19, 19]).unwrap()[1..3], [(3, 0), (9, 2)]);
        let mut two = create(&a100, &[14, 14]).unwrap();
        two.sort_unstable();
        assert_eq!(two, [(3, 0), (5, 4)]);
    }

    #[test]
    fn small_ones_first_leave_no_room_for_3g() {
        let a100 = table("a100-80");
        assert!(create(&a100, &[9, 14, 19, 19]).is_ok());
        assert_eq!(create(&a100, &[19, 19, 14, 9]), Err(Refusal::NoRoom));
    }

    #[test]
    fn the_recorded_ids_of_an_h100_come_out() {
        let h100 = table("h100-80");
        let mut ids: Vec<_> =
            create(&h100, &[19; 7]).unwrap().into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(create(&h100, &[19; 8]), Err(Refusal::NoRoom));
        let mut ids: Vec<_> =
            create(&h100, &[14, 14, 14, 19]).unwrap().into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [3, 4, 5, 13]);
    }

    #[test]
    fn an_engine_is_handed_out_once() {
        let rtx = table("rtx-pro-6000");
        assert_eq!(create(&rtx, &[65, 14]), Err(Refusal::NoRoom), "+me.all takes all of them");
        assert!(create(&rtx, &[65, 67, 67, 67]).is_ok(), "-me needs none");
        assert_eq!(create(&table("a100-40"), &[20, 20]), Err(Refusal::NoRoom));
    }

    #[test]
    fn the_count_of_every_profile_is_what_an_empty_gpu_holds() {
        for (name, node_type) in NodeType::all() {
            let Some(table) = &node_type.mig else { continue };
            for (id, profile) in &table.profiles {
                assert_eq!(remaining(table, &[], *id), profile.max, "{name} {}", profile.name);
            }
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
