//! What an attempt is made of: claims with their requests, the devices given so far, and
//! what must be undone when one is taken back.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};

use crate::constraints::Constraint;
use crate::request::Request;

/// A request with what is known of it before the search.
pub(crate) struct Wanted<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) class: &'a DeviceClass,
    /// How many devices.
    pub(crate) count: usize,
    /// For `All`: which.
    pub(crate) all: Vec<usize>,
    /// Whether class and request select each candidate, as far as that is found out.
    pub(super) selected: Vec<Option<bool>>,
}

/// A device given to a request.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) request: usize,
    pub(crate) alternative: usize,
    pub(crate) candidate: usize,
    /// For a share: its id and what it consumes.
    pub(crate) share: Option<(String, BTreeMap<String, Quantity>)>,
}

/// One claim during the attempt.
pub(crate) struct Claim<'a> {
    pub(crate) claim: &'a ResourceClaim,
    pub(crate) name: String,
    /// The alternatives of each request.
    pub(crate) requests: Vec<Vec<Wanted<'a>>>,
    /// The alternative that was chosen of each.
    pub(crate) chosen: Vec<usize>,
    pub(super) constraints: Vec<Constraint<'a>>,
    pub(crate) given: Vec<Given>,
}

/// A request by claim, request and alternative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
}

/// A choice that the search may come back to.
pub(super) enum Frame {
    /// The last request of a claim; what follows is another claim's.
    Claim,
    /// An alternative of a request; whether all before it would have made the claim too large.
    Alternative { place: Place, all_too_many: bool },
    /// A device that was given.
    Device { place: Place, index: usize, candidate: usize, undo: Undo },
}

/// What the search does next.
pub(super) enum Step {
    /// Begin with a request.
    Request { claim: usize, request: usize },
    /// Find the `index`th device of a request, from candidate `from` on.
    Device { place: Place, index: usize, from: usize },
    /// Go back to the last choice.
    Back(End),
}

/// How a branch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Solved,
    Nothing,
    /// A claim would hold too many devices: fewer in an earlier alternative may help.
    TooMany,
}

/// What giving a device changed.
pub(super) struct Undo {
    pub(super) counters: bool,
    pub(super) constraints: usize,
    pub(super) taken: bool,
    /// The device had shares in this attempt before.
    pub(super) shared_before: bool,
    pub(super) share: Option<BTreeMap<String, Quantity>>,
    pub(super) given: bool,
}
