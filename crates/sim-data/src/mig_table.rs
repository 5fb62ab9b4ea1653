//! What a GPU type can be cut into: profiles, placements and compute-instance profiles.
//!
//! Plain data and arithmetic on it; which instances exist is `state`'s business.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The MIG side of a node type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigTable {
    /// Memory slices of the whole GPU: 4, 8 or 12.
    pub slices: u32,
    /// `nvmlDeviceGetMaxMigDeviceCount` while the mode is on.
    pub max_devices: u32,
    /// What it takes to change the mode.
    pub toggle: MigToggle,
    /// GPU-instance profiles by profile id.
    pub profiles: BTreeMap<u32, GiProfile>,
}

/// What it takes to switch MIG mode on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MigToggle {
    /// Ampere: pending until the GPU is reset; outlives a reboot.
    Reset,
    /// Hopper and later: at once; off again after a reboot.
    Live,
}

/// One GPU-instance profile, as `nvidia-smi mig -lgip` and `-lgipp` print it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GiProfile {
    /// `1g.10gb`, `1g.24gb+me.all`, …
    pub name: String,
    /// NVML's profile enum, the argument of `nvmlDeviceGetGpuInstanceProfileInfo`.
    pub index: u32,
    /// Compute slices, the N of Ng.
    pub slices: u32,
    /// How many may exist at once on an empty GPU.
    pub max: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Video decoders.
    pub decoders: u32,
    /// Video encoders.
    pub encoders: u32,
    /// JPEG decoders.
    pub jpeg_engines: u32,
    /// Optical flow engines.
    pub ofa_engines: u32,
    /// Memory slices that one instance takes.
    pub size: u32,
    /// Memory slices where an instance may start.
    pub starts: Vec<u32>,
}

/// A span of memory slices of a GPU, or of compute slices of a GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placement {
    /// The first slice.
    pub start: u32,
    /// How many slices.
    pub size: u32,
}

impl Placement {
    /// Whether both take at least one common slice.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.start + other.size && other.start < self.start + self.size
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.start, self.size)
    }
}

/// What a GPU can hand out once, and how much of it a profile takes: memory in MiB,
/// multiprocessors, and the engines in NVML's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resources([u64; 7]);

impl Resources {
    pub(crate) fn plus(self, other: Self) -> Self {
        let mut sum = self.0;
        for (have, add) in sum.iter_mut().zip(other.0) {
            *have += add;
        }
        Self(sum)
    }

    pub(crate) fn fits_in(self, whole: Self) -> bool {
        self.0.iter().zip(whole.0).all(|(have, max)| *have <= max)
    }
}

impl GiProfile {
    /// Every placement that the profile may take.
    pub fn placements(&self) -> impl Iterator<Item = Placement> + '_ {
        self.starts.iter().map(|start| Placement { start: *start, size: self.size })
    }

    pub(crate) fn resources(&self) -> Resources {
        Resources([
            self.memory_mib,
            self.multiprocessors.into(),
            self.copy_engines.into(),
            self.decoders.into(),
            self.encoders.into(),
            self.jpeg_engines.into(),
            self.ofa_engines.into(),
        ])
    }

    /// Whether graphics work inside (`+gfx`).
    #[must_use]
    pub fn has_graphics(&self) -> bool {
        self.name.ends_with("+gfx")
    }

    /// The compute-instance profiles of an instance of this profile.
    ///
    /// The counts are those of `nvidia-smi mig -lcip`. A 1g instance with double memory
    /// offers profile 7 (`1_SLICE_REV1`) where others offer 0.
    #[must_use]
    pub fn ci_profiles(&self, table: &MigTable) -> Vec<CiProfile> {
        let double_memory = self.index == 9;
        let counts: &[(u32, u32, u32)] = match self.slices {
            1 if double_memory => &[(7, 1, 1)],
            1 => &[(0, 1, 1)],
            2 => &[(0, 1, 2), (1, 2, 1)],
            3 => &[(0, 1, 3), (1, 2, 1), (2, 3, 1)],
            4 => &[(0, 1, 4), (1, 2, 2), (3, 4, 1)],
            _ => &[(0, 1, 7), (1, 2, 3), (2, 3, 2), (3, 4, 1), (4, 7, 1)],
        };
        let slice = table.slice_multiprocessors();
        counts
            .iter()
            .map(|&(id, slices, max)| CiProfile {
                id,
                slices,
                max,
                multiprocessors: if slices == self.slices {
                    self.multiprocessors
                } else {
                    slices * slice
                },
            })
            .collect()
    }
}

/// One compute-instance profile inside a GPU instance; engines are the whole instance's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CiProfile {
    /// NVML's compute-instance profile enum, which is the id too.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// How many may exist at once in an empty GPU instance.
    pub max: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

impl CiProfile {
    /// Where instances of this profile may start, in compute slices.
    #[must_use]
    pub fn starts(&self) -> Vec<u32> {
        (0..self.max).map(|nth| nth * self.slices).collect()
    }
}

impl MigTable {
    /// The profile behind NVML's enum.
    #[must_use]
    pub fn by_index(&self, index: u32) -> Option<(u32, &GiProfile)> {
        self.profiles
            .iter()
            .find(|(_, profile)| profile.index == index)
            .map(|(id, profile)| (*id, profile))
    }

    /// What the GPU has to hand out, which is what the profile that takes all of it gets.
    pub(crate) fn resources(&self) -> Option<Resources> {
        let whole = self.profiles.values().find(|profile| profile.size == self.slices);
        whole.map(GiProfile::resources)
    }

    fn slice_multiprocessors(&self) -> u32 {
        self.by_index(0).map_or(0, |(_, profile)| profile.multiprocessors)
    }

    /// The id of a GPU instance at a placement: a heap index, not a counter.
    ///
    /// Whole 0; halves 1 (upper) and 2 (lower); quarters from 3; eighths from 7.
    #[must_use]
    pub fn instance_id(&self, placement: Placement) -> u32 {
        let nth = placement.start / placement.size.max(1);
        match self.slices / placement.size.max(1) {
            1 => 0,
            2 => 2 - nth,
            4 => 3 + nth,
            _ => 7 + nth,
        }
    }
}
