//! NVML's return codes, and what of the simulation becomes which.

use gpu_dra_sim_data::mig_rules::Refusal;
use gpu_dra_sim_data::state::HardwareError;
use gpu_dra_sim_data::state_dir::StateError;
use nvml_wrapper_sys::bindings as sys;

/// A return code that isn't success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) sys::nvmlReturn_t);

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const RESET_REQUIRED: Self = Self(16);
    pub(crate) const IN_USE: Self = Self(19);
    pub(crate) const INSUFFICIENT_RESOURCES: Self = Self(23);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// What a call comes to.
pub(crate) type Answer<T = ()> = Result<T, Code>;

impl From<HardwareError> for Code {
    fn from(error: HardwareError) -> Self {
        match error {
            HardwareError::MigOff | HardwareError::Refused(Refusal::UnknownProfile) => {
                Self::NOT_SUPPORTED
            }
            HardwareError::Refused(Refusal::ImpossiblePlacement) => Self::INVALID_ARGUMENT,
            HardwareError::Refused(Refusal::NoRoom) => Self::INSUFFICIENT_RESOURCES,
            HardwareError::NotFound => Self::NOT_FOUND,
            HardwareError::InUse => Self::IN_USE,
        }
    }
}

/// A state directory that can't be written is one without permission, as in a container;
/// everything else is told on stderr, since NVML has no words for it.
impl From<StateError> for Code {
    fn from(error: StateError) -> Self {
        if let StateError::Io { source, .. } = &error
            && matches!(
                source.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
            )
        {
            return Self::NO_PERMISSION;
        }
        eprintln!("simulated NVML: {error}");
        Self::UNKNOWN
    }
}

/// The text of `nvmlErrorString`.
pub(crate) fn describe(code: sys::nvmlReturn_t) -> &'static std::ffi::CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"The requested vgpu operation is not available on the target device",
        23 => c"Insufficient Resources",
        24 => c"Requested Frequency not supported",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU not found",
        29 => c"Invalid State",
        30 => c"Reset type not supported",
        _ => c"Unknown Error",
    }
}
