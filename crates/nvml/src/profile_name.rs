//! The name of a MIG profile, `1g.10gb+me`, by the formula that the incumbent uses. The
//! driver's own names drift with its version (`3g.39gb` and `3g.40gb` are one profile), so
//! manifests select on the formula's.

/// `NVML_GPU_INSTANCE_PROFILE_COUNT` of the newest header; older ones stop earlier.
pub(crate) const PROFILE_COUNT: u32 = 18;

/// Compute slices and suffix of each `NVML_GPU_INSTANCE_PROFILE_*`, by its index.
const PROFILES: [(u32, &str); PROFILE_COUNT as usize] = [
    (1, ""),
    (2, ""),
    (3, ""),
    (4, ""),
    (7, ""),
    (8, ""),
    (6, ""),
    (1, "+me"),
    (2, "+me"),
    (1, ""),
    (1, "+gfx"),
    (2, "+gfx"),
    (4, "+gfx"),
    (1, "-me"),
    (2, "-me"),
    (1, "+me.all"),
    (2, "+me.all"),
    (3, "+gfx"),
];

/// Names the profile at NVML's enum `index` with `memory_mib` of memory on a GPU of
/// `total_bytes`: the memory is rounded up to eighths of the GPU, in GiB of the GPU's size
/// rounded up. None for an unlisted index or a GPU without memory of its own.
#[must_use]
pub fn profile_name(index: u32, memory_mib: u64, total_bytes: u64) -> Option<String> {
    let (slices, suffix) = PROFILES.get(usize::try_from(index).ok()?)?;
    if total_bytes == 0 {
        return None;
    }
    let total = u128::from(total_bytes);
    let eighths = (u128::from(memory_mib) * 8 * (1 << 20)).div_ceil(total);
    let total_gib = total.div_ceil(1 << 30);
    let gb = (eighths * total_gib + 4) / 8;
    Some(format!("{slices}g.{gb}gb{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Total MiB of the GPU, then NVML index, MiB and name of each profile.
    type Table = (u64, &'static [(u32, u64, &'static str)]);

    const TABLES: &[Table] = &[
        // A30
        (
            24576,
            &[
                (0, 5952, "1g.6gb"),
                (7, 5952, "1g.6gb+me"),
                (1, 11968, "2g.12gb"),
                (8, 11968, "2g.12gb+me"),
                (3, 24000, "4g.24gb"),
            ],
        ),
        // A100 40 GB
        (
            40960,
            &[
                (0, 4864, "1g.5gb"),
                (7, 4864, "1g.5gb+me"),
                (9, 9856, "1g.10gb"),
                (1, 9856, "2g.10gb"),
                (2, 19968, "3g.20gb"),
                (3, 19968, "4g.20gb"),
                (4, 40192, "7g.40gb"),
            ],
        ),
        // A100 80 GB
        (
            81920,
            &[
                (0, 9728, "1g.10gb"),
                (7, 9728, "1g.10gb+me"),
                (9, 19968, "1g.20gb"),
                (1, 19968, "2g.20gb"),
                (2, 40192, "3g.40gb"),
                (3, 40192, "4g.40gb"),
                (4, 80640, "7g.80gb"),
            ],
        ),
        // H100 80 GB
        (
            81559,
            &[
                (0, 9984, "1g.10gb"),
                (7, 9984, "1g.10gb+me"),
                (9, 20096, "1g.20gb"),
                (1, 20096, "2g.20gb"),
                (2, 40448, "3g.40gb"),
                (3, 40448, "4g.40gb"),
                (4, 81152, "7g.80gb"),
            ],
        ),
        // H100 NVL
        (
            95830,
            &[
                (0, 10880, "1g.12gb"),
                (0, 11008, "1g.12gb"),
                (9, 22144, "1g.24gb"),
                (1, 22016, "2g.24gb"),
                (2, 47232, "3g.47gb"),
                (3, 47232, "4g.47gb"),
                (4, 94848, "7g.94gb"),
            ],
        ),
        // GH200 96 GB
        (
            97871,
            &[
                (0, 11264, "1g.12gb"),
                (9, 23552, "1g.24gb"),
                (1, 23552, "2g.24gb"),
                (2, 47616, "3g.48gb"),
                (3, 47616, "4g.48gb"),
                (4, 95232, "7g.96gb"),
            ],
        ),
        // H200
        (
            143771,
            &[
                (0, 16384, "1g.18gb"),
                (7, 16384, "1g.18gb+me"),
                (9, 33024, "1g.35gb"),
                (1, 33024, "2g.35gb"),
                (2, 71168, "3g.71gb"),
                (3, 71168, "4g.71gb"),
                (4, 143104, "7g.141gb"),
            ],
        ),
        // B200
        (
            183359,
            &[
                (0, 22528, "1g.23gb"),
                (0, 20992, "1g.23gb"),
                (9, 45312, "1g.45gb"),
                (1, 45312, "2g.45gb"),
                (2, 91136, "3g.90gb"),
                (3, 91136, "4g.90gb"),
                (4, 182272, "7g.180gb"),
            ],
        ),
        // GB200
        (
            189471,
            &[
                (0, 22528, "1g.23gb"),
                (9, 46592, "1g.47gb"),
                (1, 46592, "2g.47gb"),
                (2, 93312, "3g.93gb"),
                (4, 186624, "7g.186gb"),
            ],
        ),
        // GB300
        (
            284208,
            &[
                (0, 34992, "1g.35gb"),
                (1, 69984, "2g.70gb"),
                (2, 139968, "3g.139gb"),
                (4, 279936, "7g.278gb"),
            ],
        ),
        // RTX PRO 6000 Blackwell
        (
            97887,
            &[
                (0, 24192, "1g.24gb"),
                (7, 24192, "1g.24gb+me"),
                (10, 24192, "1g.24gb+gfx"),
                (15, 24192, "1g.24gb+me.all"),
                (13, 24192, "1g.24gb-me"),
                (1, 48512, "2g.48gb"),
                (11, 48512, "2g.48gb+gfx"),
                (16, 48512, "2g.48gb+me.all"),
                (14, 48512, "2g.48gb-me"),
                (3, 97280, "4g.96gb"),
                (12, 97280, "4g.96gb+gfx"),
            ],
        ),
    ];

    #[test]
    fn every_known_profile_gets_its_public_name() {
        for (total_mib, profiles) in TABLES {
            for (index, mib, name) in *profiles {
                assert_eq!(profile_name(*index, *mib, total_mib << 20).as_deref(), Some(*name));
            }
        }
    }

    #[test]
    fn no_name_without_memory_or_for_an_unlisted_profile() {
        assert_eq!(profile_name(0, 4864, 0), None);
        assert_eq!(profile_name(18, 4864, 1 << 40), None);
        assert!(profile_name(17, u64::MAX, 1).is_some(), "no overflow on absurd numbers");
    }
}
