//! Why a configuration is refused: one sentence each, with the path and what to write
//! instead. The text of the input is shown shortened, so that each stays below 200 bytes.

use super::API_VERSION;

/// A configuration that can't be used. The same input always gives the same error, so a
/// retry is useless until the class or claim is changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// More than the API lets through; nothing is parsed.
    #[error("the config has {bytes} bytes: at most 10240 are allowed")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Not JSON, or nested deeper than 128 levels.
    #[error("the config is no JSON: {reason}")]
    Json {
        /// What the parser said.
        reason: String,
    },
    /// `apiVersion` or `kind` is missing.
    #[error(
        "{missing} missing: add apiVersion: {API_VERSION} and a kind such as GpuConfig{}",
        if *replicas { "; instead of replicas use shares: capacity.requests.memory in the claim" } else { "" }
    )]
    MissingHeader {
        /// Which of them.
        missing: &'static str,
        /// The config has the device plugin's `replicas` too.
        replicas: bool,
    },
    /// A version that is not served.
    #[error("apiVersion {found:?} is not known: use {API_VERSION}")]
    ApiVersion {
        /// What it says.
        found: String,
    },
    /// A kind that is not served.
    #[error("kind {found:?} is not known: use GpuConfig, MigDeviceConfig or VfioDeviceConfig")]
    Kind {
        /// What it says.
        found: String,
    },
    /// A kind of another driver.
    #[error("kind {found} belongs to compute-domain.nvidia.com: set opaque.driver to that")]
    ForeignKind {
        /// What it says.
        found: String,
    },
    /// A valid config of a kind that this driver doesn't serve yet. Decoding never says so; see
    /// [`DeviceConfig::unserved`](super::DeviceConfig::unserved).
    #[error(
        "VfioDeviceConfig asks for passthrough to a virtual machine, which this driver doesn't \
         serve yet: remove the config and use class gpu.nvidia.com"
    )]
    Passthrough,
    /// A field that the kind hasn't.
    #[error("{path}: unknown field, {}", suggestion(*meant, known))]
    UnknownField {
        /// Where it is.
        path: String,
        /// The nearest right name.
        meant: Option<&'static str>,
        /// All right names there.
        known: &'static [&'static str],
    },
    /// The device plugin's way to share a GPU.
    #[error(
        "{path} is the device plugin's: to let several claims have parts of a GPU use shares, \
         capacity.requests.memory in the claim"
    )]
    Replicas {
        /// Where it is.
        path: String,
    },
    /// A value of the wrong JSON type.
    #[error("{path}: want {want}, found {found}")]
    WrongType {
        /// Where it is.
        path: String,
        /// What belongs there.
        want: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A field without which the rest says nothing.
    #[error("{path} is missing: set it to {want}")]
    Missing {
        /// Where it belongs.
        path: &'static str,
        /// What belongs there.
        want: &'static str,
    },
    /// A value outside of what is allowed.
    #[error("{path}: {found} is not allowed, use {want}")]
    Value {
        /// Where it is.
        path: String,
        /// What is there.
        found: String,
        /// What is allowed.
        want: &'static str,
    },
    /// Settings of the strategy that was not chosen.
    #[error("sharing.{block} doesn't go with strategy {strategy}: remove one of the two")]
    Conflict {
        /// The block that doesn't go.
        block: &'static str,
        /// The strategy chosen.
        strategy: &'static str,
    },
}

fn suggestion(meant: Option<&str>, known: &[&str]) -> String {
    match meant {
        Some(name) => format!("did you mean {name}?"),
        None if known.len() <= 4 => format!("known are {}", known.join(", ")),
        None => "remove it".to_owned(),
    }
}
