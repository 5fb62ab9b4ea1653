//! What must hold of the journal at any time, by name. Asked in tests after every event, and
//! by the node agent of a plan before its first effect.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::{DeviceName, GpuUuid};

use crate::record::{HeldPart, KnownStep, Record, Step};

/// A rule that doesn't hold, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {what}")]
pub struct Violation {
    /// The rule's name.
    pub invariant: &'static str,
    /// What breaks it.
    pub what: String,
}

/// No device is in two claims that exclude each other.
///
/// # Errors
/// The first pair.
pub fn no_device_in_two_exclusive_claims(records: &[Record]) -> Result<(), Violation> {
    for (at, a) in records.iter().enumerate() {
        for b in records.iter().skip(at + 1).filter(|b| b.claim.uid != a.claim.uid) {
            for ours in &a.devices {
                if let Some(theirs) = b.devices.iter().find(|theirs| ours.excludes(theirs)) {
                    return Err(Violation {
                        invariant: "no device in two exclusive claims",
                        what: format!("{} in {} and {}", theirs.device, a.claim, b.claim),
                    });
                }
            }
        }
    }
    Ok(())
}

/// Steps touch only what the claim holds for itself: the time slice and the MIG mode of a
/// whole GPU, and the partition that is one of its devices; each once.
///
/// # Errors
/// The first step that doesn't.
pub fn steps_stay_on_own_devices(record: &Record) -> Result<(), Violation> {
    let violation = |what: String| Violation { invariant: "steps stay on own devices", what };
    let holds = |gpu: &GpuUuid, part: Option<&HeldPart>| {
        let mut own = record.devices.iter().filter(|device| !device.admin);
        own.any(|device| device.gpu == *gpu && device.part.as_ref() == part)
    };
    let mut seen = Vec::new();
    for step in &record.steps {
        let Step::Known(step) = step else { continue };
        let own = match step {
            KnownStep::TimeSlice { gpu, .. }
            | KnownStep::MigModeOff { gpu }
            | KnownStep::ExclusiveProcess { gpu, .. } => holds(gpu, None),
            KnownStep::ShareDaemon { gpu, .. } => {
                let mut own = record.devices.iter().filter(|device| !device.admin);
                own.any(|device| device.gpu == *gpu && device.share.is_some())
            }
            KnownStep::MpsDaemon { devices, .. } => {
                let own = |name: &DeviceName| {
                    record.devices.iter().any(|d| d.device == *name && !d.admin)
                };
                !devices.is_empty() && devices.iter().all(own)
            }
            KnownStep::CreatePartition { gpu, partition, .. } => {
                holds(gpu, Some(&HeldPart::Partition(*partition)))
            }
        };
        let same = |other: &&KnownStep| match (*other, step) {
            (KnownStep::TimeSlice { gpu: a, .. }, KnownStep::TimeSlice { gpu: b, .. }) => a == b,
            (KnownStep::MpsDaemon { devices: a, .. }, KnownStep::MpsDaemon { devices: b, .. }) => {
                a.iter().any(|device| b.contains(device))
            }
            (a, b) => a.as_planned() == b.as_planned(),
        };
        if !own || seen.iter().any(same) {
            return Err(violation(format!("{step:?} in claim {}", record.claim)));
        }
        seen.push(step);
    }
    Ok(())
}

/// The shares of a GPU are together no more than it has; `memory_mib` is what it has.
///
/// # Errors
/// The first GPU that is given out beyond itself.
pub fn shares_fit(
    records: &[Record],
    memory_mib: impl Fn(&GpuUuid) -> u64,
) -> Result<(), Violation> {
    let mut taken: BTreeMap<&GpuUuid, u64> = BTreeMap::new();
    for device in records.iter().flat_map(|record| &record.devices) {
        let more = device.share.map_or(0, |share| share.memory_mib);
        let sum = taken.entry(&device.gpu).or_default();
        *sum = sum.saturating_add(more);
        if *sum > memory_mib(&device.gpu) {
            return Err(Violation {
                invariant: "shares fit",
                what: format!("{sum} MiB of {} are given out", device.gpu),
            });
        }
    }
    Ok(())
}

/// No two claims are to make the same partition, or one on a GPU that another has whole.
///
/// # Errors
/// The first GPU on which it is so.
pub fn partitions_do_not_overlap(records: &[Record]) -> Result<(), Violation> {
    let made = |record: &Record| -> Vec<_> {
        let steps = record.known_steps().unwrap_or_default().into_iter();
        steps
            .filter_map(|step| match step {
                KnownStep::CreatePartition { gpu, partition, .. } => {
                    Some((gpu.clone(), partition.placement, record.claim.clone()))
                }
                _ => None,
            })
            .collect()
    };
    let all: Vec<_> = records.iter().flat_map(made).collect();
    for (at, (gpu, placement, claim)) in all.iter().enumerate() {
        let other =
            all.iter().skip(at + 1).find(|other| other.0 == *gpu && other.1.overlaps(*placement));
        if let Some((_, _, other)) = other {
            return Err(Violation {
                invariant: "partitions do not overlap",
                what: format!("on {gpu} in {claim} and {other}"),
            });
        }
    }
    Ok(())
}

/// Each CDI device of a claim is named once.
///
/// # Errors
/// The first name that is there twice.
pub fn cdi_devices_are_unique(record: &Record) -> Result<(), Violation> {
    let mut seen = BTreeSet::new();
    for device in &record.devices {
        if !seen.insert(&device.cdi_device) {
            return Err(Violation {
                invariant: "CDI devices are unique",
                what: format!("{} in claim {}", device.cdi_device, record.claim),
            });
        }
    }
    Ok(())
}

/// Everything that must hold of a plan before its first effect.
///
/// # Errors
/// The first rule that doesn't hold.
pub fn plan(record: &Record) -> Result<(), Violation> {
    steps_stay_on_own_devices(record)?;
    cdi_devices_are_unique(record)
}
