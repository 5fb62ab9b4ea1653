//! What [`build`](crate::build) did that a person should know: values that were changed,
//! attributes and GPUs that were left out. Notes say what happened; they decide nothing.

use std::fmt;

use gpu_dra_model::inventory::MigMode;
use gpu_dra_model::{DeviceName, GpuInstanceId, GpuUuid, PciBusId};

use crate::pool::Feature;

/// One thing to tell the operator about the pool, in the log and in `inventory --slices`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The API server would refuse the value as NVML gives it.
    Normalised {
        /// The attribute.
        key: &'static str,
        /// As NVML gives it.
        from: String,
        /// As it is published.
        to: String,
    },
    /// The value can't be published in any form, so the attribute says "unknown".
    Unusable {
        /// The attribute.
        key: &'static str,
        /// As NVML gives it.
        value: String,
    },
    /// Left off all devices to stay within 32 attributes and capacities.
    KeyDropped {
        /// The attribute.
        key: String,
    },
    /// A GPU is not in the pool.
    GpuLeftOut {
        /// Its UUID, or its PCI address, or its NVML index, whatever is known.
        gpu: String,
        /// The name that stays reserved for it.
        name: Option<DeviceName>,
        /// Why.
        why: LeftOut,
    },
    /// The MIG mode of a GPU is to change, but only a reset makes it so.
    ResetDue {
        /// The GPU.
        gpu: DeviceName,
        /// Its address, as `nvidia-smi -i` takes it.
        address: PciBusId,
        /// The mode after the reset.
        pending: MigMode,
    },
    /// A GPU instance that others made is not in the pool.
    InstanceLeftOut {
        /// The GPU.
        gpu: DeviceName,
        /// The GPU instance.
        instance: GpuInstanceId,
        /// Why.
        why: InstanceLeftOut,
    },
    /// A GPU instance that no claim made is in the way of devices.
    ForeignInstance {
        /// The GPU.
        gpu: DeviceName,
        /// The GPU instance.
        instance: GpuInstanceId,
    },
    /// A GPU is not given out in shares, though the policy says so.
    NoShares {
        /// The GPU.
        gpu: DeviceName,
        /// Why.
        why: &'static str,
    },
    /// The API server doesn't keep a field that these devices can't do without.
    Degraded {
        /// What the server lacks.
        feature: Feature,
        /// The devices that are not published because of it.
        devices: Vec<String>,
    },
}

/// Why a GPU is not in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// It did not answer; NVML's words.
    Broken(String),
    /// It fell off the bus.
    Lost,
    /// MIG mode is on: only its instances run CUDA.
    MigEnabled,
    /// MIG mode is on, the policy is static, and nobody made an instance.
    NoInstances,
    /// The policy says so.
    Excluded,
    /// A second GPU answered with the same UUID.
    SameUuid(GpuUuid),
    /// [`Names::assign`](crate::Names::assign) has not seen it.
    Unnamed,
}

/// Why a GPU instance is not in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceLeftOut {
    /// CUDA runs on compute instances, and it has none.
    NoComputeInstance,
    /// The driver's table has no profile with this id.
    UnknownProfile(u32),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normalised { key, from, to } => {
                write!(f, "attribute {key}: {from:?} is published as {to:?}")
            }
            Self::Unusable { key, value } => {
                write!(f, "attribute {key}: {value:?} can't be published; it says unknown")
            }
            Self::KeyDropped { key } => {
                write!(f, "attribute {key} is left off: more than 32 attributes and capacities")
            }
            Self::GpuLeftOut { gpu, name: Some(name), why } => {
                write!(f, "GPU {gpu} is not published ({why}); {name} stays reserved for it")
            }
            Self::GpuLeftOut { gpu, name: None, why } => {
                write!(f, "GPU {gpu} is not published ({why})")
            }
            Self::ResetDue { gpu, address, pending } => {
                let (to, back) = match pending {
                    MigMode::Enabled => ("on", 0),
                    MigMode::Disabled => ("off", 1),
                };
                write!(
                    f,
                    "MIG mode of {gpu} turns {to} at the next reset: drain it and run nvidia-smi \
                     --gpu-reset -i {address}, or take it back with nvidia-smi -mig {back} -i \
                     {address}"
                )
            }
            Self::InstanceLeftOut { gpu, instance, why } => {
                write!(f, "GPU instance {instance} of {gpu} is not published: {why}")
            }
            Self::ForeignInstance { gpu, instance } => {
                write!(
                    f,
                    "GPU instance {instance} of {gpu} was made by no claim, so what overlaps it is \
                     tainted; destroy it, or set the GPU's MIG policy to static"
                )
            }
            Self::NoShares { gpu, why } => {
                write!(f, "{gpu} is offered whole, not in shares: {why}")
            }
            Self::Degraded { feature, devices } if devices.is_empty() => {
                write!(f, "the API server drops {feature}; devices are published without it")
            }
            Self::Degraded { feature, devices } => {
                write!(
                    f,
                    "the API server drops {feature}; {} devices are not published: turn on {}",
                    devices.len(),
                    feature.gate()
                )
            }
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(reason) => write!(f, "did not answer: {reason}"),
            Self::Lost => f.write_str("lost from the bus; reset it or reboot the node"),
            Self::MigEnabled => f.write_str("MIG mode is on; turn it off to offer the whole GPU"),
            Self::NoInstances => f.write_str(
                "MIG mode is on and it has no instance; make some, or let the policy be dynamic",
            ),
            Self::Excluded => f.write_str("excluded by policy"),
            Self::SameUuid(uuid) => write!(f, "another GPU has its UUID {uuid}"),
            Self::Unnamed => f.write_str("it has no name yet"),
        }
    }
}

impl fmt::Display for InstanceLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoComputeInstance => {
                f.write_str("it has no compute instance; make one with nvidia-smi mig -cci")
            }
            Self::UnknownProfile(id) => write!(f, "the driver lists no profile {id}"),
        }
    }
}
