//! Why a claim is refused: one variant a rule. The text reaches the pod's event, the log and
//! `explain` unchanged, so each names the object, the rule and what to do.

use gpu_dra_model::config::ConfigError;
use gpu_dra_model::{ClaimRef, ClaimUid, DeviceName, GpuUuid, PoolName, RequestName};

/// A claim that this node can't prepare, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The claim of this name is another object now.
    #[error(
        "claim {claim} was re-created (its UID is now {now}); delete the pod that used the old one"
    )]
    OtherUid {
        /// The claim asked for.
        claim: ClaimRef,
        /// The UID of the object that has the name now.
        now: String,
    },
    /// `status.allocation` is empty.
    #[error("claim {0} is not allocated; the scheduler must allocate it before its pod starts")]
    NotAllocated(ClaimRef),
    /// The allocation holds something that no API server would store.
    #[error("claim {claim}: allocation result {index} is malformed: {reason}")]
    Malformed {
        /// The claim.
        claim: ClaimRef,
        /// Position in `status.allocation.devices.results`.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The result names a device that this node doesn't have now.
    #[error(
        "device {device} of claim {claim} isn't on this node now; delete the pod to have it rescheduled"
    )]
    UnknownDevice {
        /// The claim.
        claim: ClaimRef,
        /// The device named.
        device: DeviceName,
    },
    /// The result names another node's pool.
    #[error(
        "claim {claim} was allocated from pool {pool}, this node's is {ours}; reschedule the pod"
    )]
    OtherPool {
        /// The claim.
        claim: ClaimRef,
        /// The pool named.
        pool: PoolName,
        /// This node's pool.
        ours: PoolName,
    },
    /// The device is only to look at.
    #[error(
        "device {device} of claim {claim} is for monitoring: ask with adminAccess, or leave out the toleration that let it be chosen"
    )]
    ForMonitoring {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
    },
    /// Another claim still holds the device.
    #[error(
        "device {device} is still in use by claim {holder}; it is free once that claim's pod has ended"
    )]
    InUse {
        /// The device.
        device: DeviceName,
        /// The claim that holds it.
        holder: ClaimRef,
        /// Its UID.
        holder_uid: ClaimUid,
    },
    /// An opaque config doesn't decode, or asks for what isn't served yet.
    #[error("config {index} ({source_name}) of claim {claim}: {error}")]
    BadConfig {
        /// The claim.
        claim: ClaimRef,
        /// Position in `status.allocation.devices.config`.
        index: usize,
        /// `from class` or `from claim`.
        source_name: &'static str,
        /// What is wrong with it.
        error: Box<ConfigError>,
    },
    /// A config names the request of a device of another type.
    #[error(
        "config {index} of claim {claim}: {kind} doesn't fit device {device}, which is a {device_type}"
    )]
    WrongKind {
        /// The claim.
        claim: ClaimRef,
        /// Position in `status.allocation.devices.config`.
        index: usize,
        /// The config's kind.
        kind: &'static str,
        /// The device.
        device: DeviceName,
        /// `gpu` or `mig`.
        device_type: &'static str,
    },
    /// MPS before Volta has neither limits nor clients of several users.
    #[error(
        "claim {claim}: {gpu} is older than Volta, whose MPS has no {what}; choose a GPU of compute capability 7.0 or newer"
    )]
    MpsTooOld {
        /// The claim.
        claim: ClaimRef,
        /// The GPU.
        gpu: GpuUuid,
        /// What was asked of MPS.
        what: &'static str,
    },
    /// A share of a device that is given out whole.
    #[error(
        "claim {claim} has a share of {device}, which this node doesn't give out in shares now; delete the pod to have it rescheduled"
    )]
    NotInShares {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
    },
    /// One request with shares of several GPUs.
    #[error(
        "request {request} of claim {claim} has shares of several GPUs, and a container can use one MPS daemon alone; ask for one share a request"
    )]
    SharesOfSeveralGpus {
        /// The claim.
        claim: ClaimRef,
        /// The request.
        request: RequestName,
    },
    /// More shares than the GPU has.
    #[error(
        "device {device} of claim {claim} would be given out beyond itself ({memory_mib} of {whole_mib} MiB, {percent} percent); it is free once another pod has ended"
    )]
    Overuse {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
        /// The memory of all its shares, in MiB.
        memory_mib: u64,
        /// Its memory, in MiB.
        whole_mib: u64,
        /// The threads of all its shares, in percent.
        percent: u32,
    },
    /// A sharing config on a share.
    #[error(
        "claim {claim} has a share of {gpu}, and a config that says how to share it; leave one of the two out"
    )]
    ConfigOnShare {
        /// The claim.
        claim: ClaimRef,
        /// The GPU.
        gpu: GpuUuid,
    },
    /// Two requests of the claim ask different things of one GPU.
    #[error(
        "claim {claim} asks for two different sharing settings on {gpu}; give both requests one config"
    )]
    Contradiction {
        /// The claim.
        claim: ClaimRef,
        /// The GPU.
        gpu: GpuUuid,
    },
    /// A newer version wrote the record.
    #[error("claim {0} was prepared by a newer version; update the node agent on this node")]
    FromNewerVersion(ClaimRef),
}

impl Refusal {
    /// Whether it holds only until another claim has given back what it has.
    #[must_use]
    pub fn ends_with_another_claim(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::Overuse { .. })
    }
}
