//! NVML's return codes as plain numbers with a text for people, and which of them mean
//! "this GPU doesn't have that". Never an enum: new drivers bring new numbers.

use std::fmt;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlReturn_t;

/// An NVML return code other than success (`nvmlReturn_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// NVML was not initialised, or was shut down under us.
    pub const UNINITIALIZED: Self = Self(1);
    /// An argument is wrong; for an enumerated profile: there is no such profile.
    pub const INVALID_ARGUMENT: Self = Self(2);
    /// The GPU or driver doesn't do this.
    pub const NOT_SUPPORTED: Self = Self(3);
    /// The user may not do this.
    pub const NO_PERMISSION: Self = Self(4);
    /// No such object.
    pub const NOT_FOUND: Self = Self(6);
    /// The list is longer than the room for it.
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    /// The kernel driver is not loaded.
    pub const DRIVER_NOT_LOADED: Self = Self(9);
    /// Nothing has happened for as long as was waited.
    pub const TIMEOUT: Self = Self(10);
    /// The library has no such function.
    pub const FUNCTION_NOT_FOUND: Self = Self(13);
    /// The GPU fell off the bus.
    pub const GPU_IS_LOST: Self = Self(15);
    /// The GPU must be reset before it can be used again.
    pub const RESET_REQUIRED: Self = Self(16);
    /// Library and kernel driver are of different versions.
    pub const LIB_RM_VERSION_MISMATCH: Self = Self(18);
    /// Something else uses what would be changed.
    pub const IN_USE: Self = Self(19);
    /// MIG: the place, or an engine, is taken; the normal answer to a creation.
    pub const INSUFFICIENT_RESOURCES: Self = Self(23);
    /// The structure's version is not known to the library.
    pub const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    /// The function was withdrawn.
    pub const DEPRECATED: Self = Self(26);
    /// The driver could not say what went wrong.
    pub const UNKNOWN: Self = Self(999);

    /// The answer is that there is nothing to answer: the attribute is absent.
    #[must_use]
    pub fn is_absent(self) -> bool {
        matches!(
            self,
            Self::NOT_SUPPORTED
                | Self::FUNCTION_NOT_FOUND
                | Self::ARGUMENT_VERSION_MISMATCH
                | Self::DEPRECATED
        )
    }

    /// No call on this GPU can be trusted any more, whatever was asked.
    #[must_use]
    pub fn is_fatal_for_gpu(self) -> bool {
        matches!(self, Self::GPU_IS_LOST | Self::RESET_REQUIRED)
    }

    /// The session as a whole is over: the driver was unloaded or replaced.
    #[must_use]
    pub fn ends_session(self) -> bool {
        matches!(
            self,
            Self::UNINITIALIZED | Self::DRIVER_NOT_LOADED | Self::LIB_RM_VERSION_MISMATCH
        )
    }

    fn text(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "NVML is not initialised",
            2 => "invalid argument",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            7 => "buffer too small",
            8 => "the GPU's power cables are not attached",
            9 => "the driver is not loaded",
            10 => "timed out",
            11 => "interrupt problem",
            12 => "a driver library is missing",
            13 => "the library has no such function",
            14 => "the infoROM is corrupted",
            15 => "the GPU has fallen off the bus; reboot the node",
            16 => "the GPU must be reset (nvidia-smi --gpu-reset) or the node rebooted",
            17 => "the operating system or cgroup blocks the device",
            18 => "library and kernel driver differ in version",
            19 => "in use",
            20 => "out of memory",
            21 => "no data",
            23 => "insufficient resources",
            24 => "frequency not supported",
            25 => "structure version not known",
            26 => "withdrawn",
            27 => "not ready",
            28 => "GPU not found",
            29 => "invalid state",
            30 => "reset type not supported",
            999 => "unknown driver error",
            _ => "unlisted error",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NVML {})", self.text(), self.0)
    }
}

/// One NVML call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {code}")]
pub struct CallError {
    /// The C function that was called.
    pub call: &'static str,
    /// What it answered.
    pub code: Code,
}

impl CallError {
    /// The raw return value as a result.
    pub(crate) fn check(call: &'static str, code: nvmlReturn_t) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self { call, code: Code(code) }) }
    }

    /// A symbol that the loaded library lacks: the same as NVML's own answer for it.
    pub(crate) fn missing(call: &'static str) -> Self {
        Self { call, code: Code::FUNCTION_NOT_FOUND }
    }

    /// From the wrapper's error, back to NVML's number.
    pub(crate) fn wrap(call: &'static str) -> impl FnOnce(NvmlError) -> Self {
        move |error| match error {
            NvmlError::FailedToLoadSymbol(_) => Self::missing(call),
            other => Self { call, code: Code(nvmlReturn_t::from(other)) },
        }
    }
}

/// Turns "the hardware doesn't say" into None and keeps every other failure.
pub(crate) fn if_known<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Also turns a failed call into None, unless the GPU as a whole is gone.
pub(crate) fn if_possible<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(error) if error.code.is_fatal_for_gpu() => Err(error),
        answer => Ok(answer.ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapper_errors_become_numbers_again() {
        for (error, code) in [
            (NvmlError::GpuLost, Code::GPU_IS_LOST),
            (NvmlError::NotSupported, Code::NOT_SUPPORTED),
            (NvmlError::UnexpectedVariant(25), Code::ARGUMENT_VERSION_MISMATCH),
            (NvmlError::FailedToLoadSymbol("x".into()), Code::FUNCTION_NOT_FOUND),
            (NvmlError::Unknown, Code::UNKNOWN),
        ] {
            assert_eq!(CallError::wrap("f")(error), CallError { call: "f", code });
        }
    }

    #[test]
    fn only_absence_is_absent() {
        let fail = |code| Err::<u32, _>(CallError { call: "f", code });
        assert_eq!(if_known(Ok(1)), Ok(Some(1)));
        assert_eq!(if_known(fail(Code::NOT_SUPPORTED)), Ok(None));
        assert_eq!(if_known(fail(Code::FUNCTION_NOT_FOUND)), Ok(None));
        for code in [Code::UNKNOWN, Code::GPU_IS_LOST, Code::NO_PERMISSION, Code(12345)] {
            assert_eq!(if_known(fail(code)), fail(code).map(Some));
        }
        assert_eq!(if_possible(Ok(1)), Ok(Some(1)));
        assert_eq!(if_possible(fail(Code::UNKNOWN)), Ok(None));
        assert_eq!(if_possible(fail(Code::GPU_IS_LOST)), fail(Code::GPU_IS_LOST).map(Some));
    }
}
