//! What keeps NVML from being used, each with one sentence and what to do about it: these
//! are the sentences of `gpu-dra inventory` and of the node agent's readiness.

use std::path::PathBuf;

use gpu_dra_model::inventory::{MigMode, Placement};
use gpu_dra_model::{ComputeInstanceId, GpuInstanceId, GpuUuid};

use crate::code::CallError;
use crate::diagnose;
use crate::trees::Trees;

/// NVML or the driver below it can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no library file on a machine that has a GPU for it.
    #[error(
        "no libnvidia-ml.so.1 at {}: install the NVIDIA driver, or set the driver root to where it is",
        place.display()
    )]
    NoLibrary {
        /// The file or folder that was looked at.
        place: PathBuf,
    },
    /// The kernel driver runs, but this container has none of the driver's files.
    #[error(
        "the NVIDIA driver is loaded, but {} has no libnvidia-ml.so.1: give this container the driver's files, or set the driver root",
        place.display()
    )]
    LibraryHidden {
        /// The file or folder that was looked at.
        place: PathBuf,
    },
    /// Neither library nor GPU.
    #[error(
        "this machine has no NVIDIA GPU on its PCI bus and no driver at {}: nothing to drive here",
        place.display()
    )]
    NothingHere {
        /// The file or folder that was looked at.
        place: PathBuf,
    },
    /// The path is a folder, as container runtimes leave behind for a missing mount source.
    #[error(
        "{} is a directory, not a library: a mount had no source; remove it and install the driver",
        path.display()
    )]
    IsDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The dynamic loader refuses the file.
    #[error(
        "{} can't be loaded: it must be a readable shared library for {}; reinstall the driver",
        path.display(),
        std::env::consts::ARCH
    )]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// The dynamic loader's words.
        source: libloading::Error,
    },
    /// The file ends before what its headers promise.
    #[error("{} is cut short: it is still being copied, or the copy failed; if it stays so, reinstall the driver", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
    },
    /// The library lacks a function without which nothing can be done.
    #[error("{} has no {symbol}: it is not NVIDIA's library or is too old; install driver 450 or newer", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The missing C function.
        symbol: &'static str,
    },
    /// `NVML_ERROR_DRIVER_NOT_LOADED`, and the kernel knows no NVIDIA driver either.
    #[error(
        "the NVIDIA kernel driver is not loaded: run `modprobe nvidia`, or wait for the driver container"
    )]
    DriverNotLoaded,
    /// The kernel driver runs, but this container or machine has no device nodes for it.
    #[error(
        "the NVIDIA driver is loaded but {} has no GPU nodes: give this container the GPUs, or run `nvidia-modprobe -c 0 -u`",
        dev.display()
    )]
    NoDeviceNodes {
        /// Where the nodes should be.
        dev: PathBuf,
    },
    /// `NVML_ERROR_LIB_RM_VERSION_MISMATCH`.
    #[error(
        "NVIDIA library {library} doesn't match kernel driver {kernel}: reboot, or reload the nvidia modules"
    )]
    VersionMismatch {
        /// The library's version by its file name, or "of unknown version".
        library: String,
        /// The kernel driver's version by `/proc/driver/nvidia/version`, likewise.
        kernel: String,
    },
    /// `NVML_ERROR_NO_PERMISSION`.
    #[error("no permission to use {}/nvidiactl: run as root, or in the group that owns it", dev.display())]
    NoPermission {
        /// Where the nodes are.
        dev: PathBuf,
    },
    /// NVML works and this machine has no NVIDIA GPU.
    #[error("the NVIDIA driver works, but this machine has no NVIDIA GPU")]
    NoGpus,
    /// NVML works and sees no GPU although the PCI bus has some.
    #[error(
        "the driver uses none of {on_bus} NVIDIA GPUs on the PCI bus: unsupported, drained or bound to vfio-pci; see `dmesg | grep NVRM`"
    )]
    GpusUnused {
        /// How many GPUs of NVIDIA's sysfs lists.
        on_bus: usize,
    },
    /// `nvmlInit_v2` failed in a way that has no sentence of its own.
    #[error(
        "NVML did not start; see `dmesg | grep NVRM`; in a container, restart it: its device access may be gone"
    )]
    Init(#[source] CallError),
    /// A call on the driver as a whole failed after NVML had started.
    #[error("NVML stopped answering; see `dmesg | grep NVRM`")]
    Call(#[source] CallError),
}

impl OpenError {
    /// The sentence for a library that was not found at this file or below this folder: no
    /// driver, a container without it, or a machine without GPUs.
    #[must_use]
    pub fn no_library(place: impl Into<PathBuf>, trees: &Trees) -> Self {
        diagnose::no_library(place.into(), trees)
    }
}

/// An act on one GPU failed.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// NVML as a whole can't be used.
    #[error(transparent)]
    Driver(#[from] OpenError),
    /// The driver doesn't have this GPU now.
    #[error("{uuid} is not on this node: it was removed, drained or given to another driver")]
    Gone {
        /// The GPU.
        uuid: GpuUuid,
    },
    /// The GPU is there, but the call failed.
    #[error("{uuid} refused")]
    Call {
        /// The GPU.
        uuid: GpuUuid,
        /// The call and NVML's answer.
        source: CallError,
    },
    /// The GPU answered with a number that this program doesn't know.
    #[error("{uuid} has compute mode {value}, which is not known: upgrade gpu-dra")]
    UnknownComputeMode {
        /// The GPU.
        uuid: GpuUuid,
        /// NVML's number.
        value: u32,
    },
    /// `NVML_ERROR_IN_USE` to a change of the MIG mode. The driver may keep the mode as
    /// pending: setting the one in force takes that back.
    #[error(
        "{uuid}: MIG mode can't be {mode} while another client has the GPU: stop what holds it, e.g. dcgm, nvidia-persistenced, nvsm",
        mode = word(*mode)
    )]
    MigModeInUse {
        /// The GPU.
        uuid: GpuUuid,
        /// The mode that was asked for.
        mode: MigMode,
    },
    /// The MIG mode is set, but comes into force only with a reset, as on Ampere. Setting the
    /// mode in force takes that back.
    #[error(
        "{uuid}: MIG mode will be {mode} after a reset: run `nvidia-smi --gpu-reset -i {uuid}`, or reboot the node if it refuses",
        mode = word(*mode)
    )]
    MigModePending {
        /// The GPU.
        uuid: GpuUuid,
        /// The mode that was asked for, now pending.
        mode: MigMode,
    },
    /// `NVML_ERROR_INSUFFICIENT_RESOURCES`: another GPU instance lies there, or has the
    /// engines that the profile needs.
    #[error(
        "{uuid}: no room for MIG profile {profile_id} at {}:{}: destroy the GPU instance in its place; see `nvidia-smi mig -lgi`",
        placement.start, placement.size
    )]
    PlacementTaken {
        /// The GPU.
        uuid: GpuUuid,
        /// The GPU instance profile's id.
        profile_id: u32,
        /// Where the instance should have been.
        placement: Placement,
    },
    /// There is no such GPU instance, or MIG is off.
    #[error("{uuid} has no GPU instance {instance}: it was destroyed; create it again")]
    NoGpuInstance {
        /// The GPU.
        uuid: GpuUuid,
        /// The GPU instance.
        instance: GpuInstanceId,
    },
    /// No kind of compute instance has as many slices as the GPU instance, or its profile is
    /// not among the GPU's.
    #[error(
        "{uuid}: GPU instance {instance} offers no compute instance of its whole size: upgrade gpu-dra"
    )]
    NoComputeProfile {
        /// The GPU.
        uuid: GpuUuid,
        /// The GPU instance.
        instance: GpuInstanceId,
    },
    /// `NVML_ERROR_IN_USE` to a destruction: processes run on it, compute instances are left
    /// in it, or a client such as DCGM has leaked a handle to it.
    #[error(
        "{uuid}: {what} is in use: stop the processes on it (see nvidia-smi); if there are none, restart what watches GPUs, e.g. dcgm",
        what = what(*instance, *compute)
    )]
    InstanceInUse {
        /// The GPU.
        uuid: GpuUuid,
        /// The GPU instance.
        instance: GpuInstanceId,
        /// The compute instance in it; None if the GPU instance was to be destroyed.
        compute: Option<ComputeInstanceId>,
    },
}

fn word(mode: MigMode) -> &'static str {
    match mode {
        MigMode::Enabled => "enabled",
        MigMode::Disabled => "disabled",
    }
}

fn what(instance: GpuInstanceId, compute: Option<ComputeInstanceId>) -> String {
    match compute {
        Some(compute) => format!("compute instance {compute} of GPU instance {instance}"),
        None => format!("GPU instance {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    #[test]
    fn sentences_are_short_and_never_repeat_their_source() {
        let call = CallError { call: "nvmlInit_v2", code: Code::UNKNOWN };
        let path = PathBuf::from("/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
        for error in [
            OpenError::NoLibrary { place: path.clone() },
            OpenError::LibraryHidden { place: path.clone() },
            OpenError::NothingHere { place: path.clone() },
            OpenError::IsDirectory { path: path.clone() },
            OpenError::NotLoadable { path: path.clone(), source: libloading::Error::DlOpenUnknown },
            OpenError::Truncated { path: path.clone() },
            OpenError::Incomplete { path, symbol: "nvmlShutdown" },
            OpenError::DriverNotLoaded,
            OpenError::NoDeviceNodes { dev: "/dev".into() },
            OpenError::VersionMismatch { library: "570.124.06".into(), kernel: "550.90".into() },
            OpenError::NoPermission { dev: "/dev".into() },
            OpenError::NoGpus,
            OpenError::GpusUnused { on_bus: 8 },
            OpenError::Init(call),
            OpenError::Call(call),
        ] {
            let text = error.to_string();
            assert!(text.len() < 200, "{} bytes: {text}", text.len());
            assert!(!text.contains("999") && !text.contains('\n'), "{text}");
        }
    }
    #[test]
    fn sentences_about_a_gpu_name_it_and_are_short() {
        let uuid = GpuUuid::new("GPU-11111111-0000-0000-0000-000000000000").unwrap();
        let instance = GpuInstanceId(13);
        let uuid = || uuid.clone();
        for error in [
            GpuError::Gone { uuid: uuid() },
            GpuError::MigModeInUse { uuid: uuid(), mode: MigMode::Disabled },
            GpuError::MigModePending { uuid: uuid(), mode: MigMode::Disabled },
            GpuError::PlacementTaken {
                uuid: uuid(),
                profile_id: 19,
                placement: Placement { start: 12, size: 12 },
            },
            GpuError::NoGpuInstance { uuid: uuid(), instance },
            GpuError::NoComputeProfile { uuid: uuid(), instance },
            GpuError::InstanceInUse { uuid: uuid(), instance, compute: Some(ComputeInstanceId(7)) },
            GpuError::InstanceInUse { uuid: uuid(), instance, compute: None },
        ] {
            let text = error.to_string();
            assert!(text.len() < 200, "{} bytes: {text}", text.len());
            assert!(text.contains(uuid().as_str()), "{text}");
        }
    }
}
