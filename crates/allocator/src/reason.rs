//! What an attempt came to, and the reasons, structured for `explain`.

use gpu_dra_cel::{CompileError, EvalError};
use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::AllocationResult;

use crate::state::DeviceId;

/// What came of an attempt on one node.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// One result per claim, in their order.
    Allocated(Vec<AllocationResult>),
    /// Not on this node.
    Refused(Refusal),
}

/// Why claims can't be allocated on a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Refusal {
    /// What ended the attempt before all was tried. None: all was tried, nothing fits.
    pub error: Option<AllocateError>,
    /// Pools that nothing was allocated from.
    pub pools: Vec<PoolProblem>,
    /// For each request the devices that were not usable, and why; the first reason met.
    pub rejected: Vec<Rejection>,
}

impl Refusal {
    pub(crate) fn of(error: AllocateError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

/// A device that a request could not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The claim's place among those to allocate.
    pub claim: usize,
    /// The request, `request/subrequest` for a subrequest.
    pub request: String,
    /// The device.
    pub device: DeviceId,
    /// Why not.
    pub reason: Reason,
}

/// Whether a request can have a device.
pub(crate) type Fit = Result<(), Box<Reason>>;

/// Why a request could not have a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Another claim holds it.
    #[error("claim {claim} holds it")]
    InUse {
        /// `namespace/name`.
        claim: String,
    },
    /// An earlier request of the same attempt took it.
    #[error("another request of the pod takes it")]
    Taken,
    /// A selector of the class doesn't match.
    #[error("selector #{index} of class {class} doesn't match")]
    ClassSelector {
        /// The class.
        class: String,
        /// Which of its selectors, from 0.
        index: usize,
    },
    /// A selector of the request doesn't match.
    #[error("selector #{index} of the request doesn't match")]
    Selector {
        /// Which of the selectors, from 0.
        index: usize,
    },
    /// A selector gives no verdict on it; only a survey has this, a search ends there.
    #[error("{error}")]
    SelectorError {
        /// Which selector, and why.
        error: Box<AllocateError>,
    },
    /// The device is for other nodes.
    #[error("it is not for this node")]
    OtherNode,
    /// A capacity is asked for that the device hasn't.
    #[error("it has no capacity named {name}")]
    NoCapacity {
        /// The name as asked for.
        name: String,
    },
    /// The device's policy doesn't give that much.
    #[error("its policy for {name} doesn't allow {wanted}")]
    CapacityPolicy {
        /// The capacity.
        name: String,
        /// What would be consumed.
        wanted: Quantity,
    },
    /// Not enough is left of a capacity.
    #[error("{left} of {name} are left, {wanted} are needed")]
    Capacity {
        /// The capacity.
        name: String,
        /// What would be consumed.
        wanted: Quantity,
        /// What others leave.
        left: Quantity,
    },
    /// Not enough is left of a counter that it shares with other devices.
    #[error("{available} of counter {counter} in {set} are left, {wanted} are needed")]
    Counters {
        /// The counter set.
        set: String,
        /// The counter.
        counter: String,
        /// What the device takes of it.
        wanted: Quantity,
        /// What others leave.
        available: Quantity,
    },
    /// A taint that the request doesn't tolerate.
    #[error("taint {key}={value}:{effect} is not tolerated")]
    Taint {
        /// The taint's key.
        key: String,
        /// Its value.
        value: String,
        /// Its effect.
        effect: String,
    },
    /// A constraint of the claim.
    #[error("constraint #{index} on {attribute}: {conflict}")]
    Constraint {
        /// Which of the claim's constraints, from 0.
        index: usize,
        /// The attribute it is about.
        attribute: String,
        /// What is wrong.
        conflict: Conflict,
    },
}

/// How a device breaks a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// It hasn't the attribute.
    #[error("it hasn't the attribute")]
    Missing,
    /// `matchAttribute`: the others have another value.
    #[error("it has {value}, the others have {others}")]
    Differs {
        /// The device's value.
        value: String,
        /// The value of the others.
        others: String,
    },
    /// `distinctAttribute`: another has the same value.
    #[error("another device has {value} too")]
    Repeats {
        /// The common value.
        value: String,
    },
}

/// A pool that nothing can be allocated from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolProblem {
    /// Not all slices of its newest generation are there.
    #[error("pool {pool} has {have} of {want} slices")]
    Incomplete {
        /// `driver/pool`.
        pool: String,
        /// The slices that exist.
        have: usize,
        /// The slices that it should have.
        want: i64,
    },
    /// Its slices contradict each other.
    #[error("pool {pool} is invalid: {reason}")]
    Invalid {
        /// `driver/pool`.
        pool: String,
        /// What contradicts.
        reason: String,
    },
}

impl AllocateError {
    /// Whether it is a limit of this crate and says nothing of what the scheduler does.
    #[must_use]
    pub fn is_own_limit(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::Evaluate { error: EvalError::TooMuchWork, .. })
    }
}

/// What ends an attempt. Those that the scheduler has, it takes as an error of the pod: on
/// some of them it gives up on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// A class that doesn't exist.
    #[error("claim {claim}, request {request}: device class {class} does not exist")]
    NoClass {
        /// `namespace/name`.
        claim: String,
        /// The request.
        request: String,
        /// The class.
        class: String,
    },
    /// A selector that doesn't compile.
    #[error("{of}: selector #{index}: CEL compile error")]
    Compile {
        /// `class NAME` or `claim NAMESPACE/NAME`.
        of: String,
        /// Which selector, from 0.
        index: usize,
        /// What is wrong with it.
        #[source]
        error: CompileError,
    },
    /// A selector that failed on a device; the scheduler then tries no other node.
    #[error("{of}: selector #{index}: CEL runtime error on {device}")]
    Evaluate {
        /// `class NAME` or `claim NAMESPACE/NAME`.
        of: String,
        /// Which selector, from 0.
        index: usize,
        /// The device.
        device: Box<DeviceId>,
        /// What went wrong.
        #[source]
        error: EvalError,
    },
    /// `allocationMode: All` while a pool is unusable: "all" is unknown.
    #[error("claim {claim}, request {request} asks for all devices, but a pool is unusable")]
    AllUnknown {
        /// `namespace/name`.
        claim: String,
        /// The request.
        request: String,
        /// The pool.
        #[source]
        pool: PoolProblem,
    },
    /// `allocationMode: All`, and a constraint forbids one of them.
    #[error(
        "claim {claim}, request {request} asks for all devices, but {device} breaks a constraint"
    )]
    AllConstrained {
        /// `namespace/name`.
        claim: String,
        /// The request.
        request: String,
        /// The device.
        device: Box<DeviceId>,
        /// The constraint.
        #[source]
        reason: Box<Reason>,
    },
    /// A capacity request that is too large or too fine to be rounded as the device's policy
    /// says ([`crate::Rules::From137`]).
    #[error("claim {claim}, request {request}: {capacity} as {device} rounds it can't be reckoned")]
    Unreckonable {
        /// `namespace/name`.
        claim: String,
        /// The request.
        request: String,
        /// The capacity.
        capacity: String,
        /// The device.
        device: Box<DeviceId>,
    },
    /// More devices than a claim can hold.
    #[error("claim {claim}: number of requested devices {wanted} exceeds the claim limit of 32")]
    TooMany {
        /// `namespace/name`.
        claim: String,
        /// At least as many are asked for.
        wanted: usize,
    },
    /// Something in a claim that is not known here.
    #[error("claim {claim}: {what} is not supported")]
    Unsupported {
        /// `namespace/name`.
        claim: String,
        /// What it is.
        what: String,
    },
    /// A node selector of a slice that can't be read.
    #[error("slice {slice}: node selector: {reason}")]
    NodeSelector {
        /// The slice.
        slice: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The search was given up; the scheduler gives up after 10 seconds.
    #[error("gave up after {steps} steps: too many combinations, make the requests narrower")]
    TooLong {
        /// Devices tried.
        steps: usize,
    },
}
