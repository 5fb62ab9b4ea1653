//! What must hold of the journal at any time, by name. Asked in tests after every event, and
//! by the node agent of a plan before its first effect.

use std::collections::BTreeSet;

use crate::record::{KnownStep, Record, Step};

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

/// Steps touch only GPUs that the claim holds for itself, and each GPU's knob once.
///
/// # Errors
/// The first step that doesn't.
pub fn steps_stay_on_own_gpus(record: &Record) -> Result<(), Violation> {
    let own: BTreeSet<_> =
        record.devices.iter().filter(|device| !device.admin).map(|device| &device.gpu).collect();
    let mut seen = BTreeSet::new();
    for step in &record.steps {
        let Step::Known(KnownStep::TimeSlice { gpu, .. }) = step else { continue };
        if !own.contains(gpu) || !seen.insert(gpu) {
            return Err(Violation {
                invariant: "steps stay on own GPUs",
                what: format!("time slice of {gpu} in claim {}", record.claim),
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
    steps_stay_on_own_gpus(record)?;
    cdi_devices_are_unique(record)
}
