//! Claims that are in the journal and nowhere else any more. The kubelet is to call Unprepare;
//! one whose state was lost never does, and the claim's devices would be held for ever.
//!
//! A claim is given up only if it was seen to be gone twice, with a pause between, and nothing
//! computes on its devices. An API server that doesn't answer has seen nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use gpu_dra_model::{ClaimUid, DriverName};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::record::Record;

/// What one look at the API server has shown of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is there and has devices of this node.
    Here,
    /// It isn't.
    Gone(Gone),
    /// The API server didn't say.
    Unknown,
}

/// In what way a claim is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// No object has its name.
    Deleted,
    /// Another object has its name.
    Replaced,
    /// It has no device of this node.
    NotAllocatedHere,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "it was deleted",
            Self::Replaced => "another claim has its name",
            Self::NotAllocatedHere => "it has no device of this node any more",
        })
    }
}

/// What the object says; None where there is none.
#[must_use]
pub fn seen(record: &Record, object: Option<&ResourceClaim>, driver: &DriverName) -> Seen {
    let Some(object) = object else { return Seen::Gone(Gone::Deleted) };
    if object.metadata.uid.as_deref() != Some(record.claim.uid.as_str()) {
        return Seen::Gone(Gone::Replaced);
    }
    let allocation = object.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let mut results = devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    let of_ours = |pool: &str| record.devices.iter().any(|device| device.pool.as_str() == pool);
    if results.any(|result| result.driver == driver.as_str() && of_ours(&result.pool)) {
        Seen::Here
    } else {
        Seen::Gone(Gone::NotAllocatedHere)
    }
}

/// What to do with a claim after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Look at it again after the pause.
    LookAgain,
    /// Unprepare it.
    GiveUp(Gone),
}

/// What earlier looks have shown.
#[derive(Debug)]
pub struct Sweep {
    pause: Duration,
    gone: BTreeMap<ClaimUid, Duration>,
}

impl Sweep {
    /// With at least `pause` between the two looks.
    #[must_use]
    pub fn new(pause: Duration) -> Self {
        Self { pause, gone: BTreeMap::new() }
    }

    /// Whether a second look at `now` (a time since any fixed moment) may end the claim, so
    /// that somebody has to find out whether something computes on its devices.
    #[must_use]
    pub fn is_due(&self, uid: &ClaimUid, now: Duration) -> bool {
        self.gone.get(uid).is_some_and(|first| now.saturating_sub(*first) >= self.pause)
    }

    /// Judges by a look at `now`. `idle` says whether nothing computes on the claim's devices.
    pub fn judge(&mut self, uid: &ClaimUid, seen: Seen, now: Duration, idle: bool) -> Verdict {
        let how = match seen {
            Seen::Here => {
                self.gone.remove(uid);
                return Verdict::Keep;
            }
            Seen::Unknown if self.gone.contains_key(uid) => return Verdict::LookAgain,
            Seen::Unknown => return Verdict::Keep,
            Seen::Gone(how) => how,
        };
        self.gone.entry(uid.clone()).or_insert(now);
        if self.is_due(uid, now) && idle {
            self.gone.remove(uid);
            return Verdict::GiveUp(how);
        }
        Verdict::LookAgain
    }

    /// Whether a claim waits for its second look.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Forgets the claims that `is_held` doesn't know.
    pub fn retain(&mut self, is_held: impl Fn(&ClaimUid) -> bool) {
        self.gone.retain(|uid, _| is_held(uid));
    }

    /// Forgets what was seen: something that had to be the same between two looks wasn't.
    pub fn forget(&mut self) {
        self.gone.clear();
    }
}
