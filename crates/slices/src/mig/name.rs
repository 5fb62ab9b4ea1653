//! Names of MIG devices, in the incumbent's form. A name says what the device is and never
//! depends on what else is there, so that it still fits after a restart.

use gpu_dra_model::inventory::{ComputeInstance, MigProfile};
use gpu_dra_model::{DeviceName, Partition};

/// What is left of 63 bytes beside `gpu-<u32>-mig-`, profile id, start and compute instance.
const PROFILE_BYTES: usize = 20;

/// `gpu-<n>-mig-<profile>-<profile id>-<start>`. Profiles whose names look alike as a label
/// (`+me` and `-me`) differ by their ids.
pub(crate) fn partition(
    gpu: &DeviceName,
    profile: &MigProfile,
    partition: Partition,
) -> Option<DeviceName> {
    let label = label(&profile.name);
    let Partition { profile_id, placement } = partition;
    DeviceName::new(format!("{gpu}-mig-{label}-{profile_id}-{}", placement.start)).ok()
}

/// As for a partition. A compute instance that is smaller than its GPU instance has
/// siblings, so its number follows.
pub(crate) fn compute_instance(
    gpu: &DeviceName,
    profile: &MigProfile,
    place: Partition,
    compute: &ComputeInstance,
) -> Option<DeviceName> {
    if compute.slices == profile.slices {
        return partition(gpu, profile, place);
    }
    let label = label(&compute_profile(profile, compute));
    let Partition { profile_id, placement } = place;
    let (start, id) = (placement.start, compute.id);
    DeviceName::new(format!("{gpu}-mig-{label}-{profile_id}-{start}-{id}")).ok()
}

/// `3g.40gb`, or `1c.3g.40gb` where it has not all compute slices of its GPU instance.
pub(crate) fn compute_profile(profile: &MigProfile, compute: &ComputeInstance) -> String {
    if compute.slices == profile.slices {
        profile.name.clone()
    } else {
        format!("{}c.{}", compute.slices, profile.name)
    }
}

fn label(profile: &str) -> String {
    let kept = profile.chars().filter(|c| *c != '.').take(PROFILE_BYTES);
    kept.map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn profiles_become_parts_of_a_label() {
        for (profile, expected) in [
            ("1g.10gb", "1g10gb"),
            ("1g.24gb+me.all", "1g24gb-meall"),
            ("1g.24gb-me", "1g24gb-me"),
            ("2g.48GB+gfx", "2g48gb-gfx"),
            ("1c.3g.40gb", "1c3g40gb"),
            ("größer", "gr--er"),
        ] {
            assert_eq!(label(profile), expected);
        }
        assert_eq!(label(&"x".repeat(99)).len(), 20);
    }
}
