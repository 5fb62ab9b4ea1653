//! Failures as the real program tells them; its exit codes are NVML's return codes.

use std::fmt;

use nvml_wrapper::error::NvmlError;

/// What is printed and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// An option that isn't one, or has no value.
    pub(crate) fn option(name: &str) -> Self {
        Self::new(
            2,
            format!(
                "Invalid combination of input arguments at \"{name}\". Please run 'nvidia-smi -h' for help."
            ),
        )
    }

    /// The library could not be started.
    pub(crate) fn start(error: &NvmlError) -> Self {
        let text = match error {
            NvmlError::LibloadingError(_) => {
                "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that \
                 the NVIDIA Display Driver is properly installed and present in your system."
                    .to_owned()
            }
            NvmlError::DriverNotLoaded => {
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure \
                 that the latest NVIDIA driver is installed and running."
                    .to_owned()
            }
            other => format!("Failed to initialize NVML: {}", text(other)),
        };
        Self::new(code(error), text)
    }

    /// A deed on a GPU that failed.
    pub(crate) fn deed(what: &str, error: &NvmlError) -> Self {
        Self::new(code(error), format!("{what}: {}", text(error)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<NvmlError> for Failure {
    fn from(error: NvmlError) -> Self {
        Self::new(code(&error), text(&error))
    }
}

fn code(error: &NvmlError) -> u8 {
    match error {
        NvmlError::Uninitialized => 1,
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        NvmlError::NotFound => 6,
        NvmlError::DriverNotLoaded => 9,
        NvmlError::LibloadingError(_) => 12,
        NvmlError::GpuLost => 15,
        NvmlError::ResetRequired => 16,
        NvmlError::LibRmVersionMismatch => 18,
        NvmlError::InUse => 19,
        _ => 255,
    }
}

/// As NVML words it.
pub(crate) fn text(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "Not Supported".to_owned(),
        NvmlError::NoPermission => "Insufficient Permissions".to_owned(),
        NvmlError::NotFound => "Not Found".to_owned(),
        NvmlError::GpuLost => "GPU is lost".to_owned(),
        NvmlError::LibRmVersionMismatch => "Driver/library version mismatch".to_owned(),
        NvmlError::Unknown => "Unknown Error".to_owned(),
        other => other.to_string(),
    }
}
