//! What an operator is told of a take-over: a sentence each, with what is left to do.

use std::fmt;

use gpu_dra_model::{ClaimRef, DeviceName, GpuUuid};

/// One thing that came of a take-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Claims are ours now.
    TakenOver {
        /// How many.
        claims: usize,
    },
    /// The state is from before a reboot.
    OtherBoot {
        /// How many claims it has.
        claims: usize,
    },
    /// A claim that can't be understood.
    NotUnderstood {
        /// Its key in the file.
        key: String,
    },
    /// A device that isn't there any more.
    NotThere {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
    },
    /// A GPU that is passed through.
    Passthrough {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
    },
    /// Nothing says who made a MIG device.
    OriginUnknown {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
        /// Its GPU.
        gpu: GpuUuid,
    },
    /// An MPS daemon that the incumbent runs as a Deployment.
    MpsDeployment {
        /// The claim.
        claim: ClaimRef,
        /// The Deployment.
        deployment: String,
    },
    /// A half-prepared claim is undone.
    Undone {
        /// The claim.
        claim: ClaimRef,
    },
    /// What lies where a half-prepared claim would have put it may be somebody else's.
    LeftAlone {
        /// The claim.
        claim: ClaimRef,
        /// The device.
        device: DeviceName,
    },
}

impl Note {
    /// Whether somebody should look.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::TakenOver { .. } | Self::OtherBoot { .. } | Self::Undone { .. })
    }

    /// The claim that it is about.
    #[must_use]
    pub fn claim(&self) -> Option<&ClaimRef> {
        match self {
            Self::TakenOver { .. } | Self::OtherBoot { .. } | Self::NotUnderstood { .. } => None,
            Self::NotThere { claim, .. }
            | Self::Passthrough { claim, .. }
            | Self::OriginUnknown { claim, .. }
            | Self::MpsDeployment { claim, .. }
            | Self::Undone { claim }
            | Self::LeftAlone { claim, .. } => Some(claim),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakenOver { claims } => {
                write!(f, "took over {claims} prepared claims from NVIDIA's DRA driver as they are")
            }
            Self::OtherBoot { claims } => write!(
                f,
                "NVIDIA's DRA driver left {claims} claims from before a reboot; the kubelet prepares anew what it needs"
            ),
            Self::NotUnderstood { key } => write!(
                f,
                "claim {key} of NVIDIA's DRA driver isn't understood and counts as not prepared; restart its pod"
            ),
            Self::NotThere { claim, device } => write!(
                f,
                "device {device} of claim {claim}, which NVIDIA's DRA driver prepared, isn't on this node any more; delete its pod"
            ),
            Self::Passthrough { claim, device } => write!(
                f,
                "{device} of claim {claim} is passed through, which this driver doesn't do: its pod runs on, and when it has ended bind the GPU back to the nvidia driver"
            ),
            Self::OriginUnknown { claim, device, gpu } => write!(
                f,
                "nothing says who made {device} of claim {claim}, so it stays when the claim ends; nvidia-smi mig -dci and -dgi on {gpu} remove it"
            ),
            Self::MpsDeployment { claim, deployment } => write!(
                f,
                "claim {claim} is served by Deployment {deployment} of NVIDIA's DRA driver, which runs on: delete it when the claim's pods have ended"
            ),
            Self::Undone { claim } => write!(
                f,
                "claim {claim} was half prepared by NVIDIA's DRA driver; what that left is removed"
            ),
            Self::LeftAlone { claim, device } => write!(
                f,
                "claim {claim} was half prepared by NVIDIA's DRA driver; what lies in the place of {device} may be somebody else's and stays"
            ),
        }
    }
}
