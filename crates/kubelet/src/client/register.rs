//! The registration of one socket, step by step as the kubelet does it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_dra_model::DriverName;
use tonic::{Request, Status};

use super::{DraApi, Plugin, channel};
use crate::proto::registration::registration_client::RegistrationClient;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use crate::registration::PLUGIN_TYPE;

pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// A plugin is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The path can't be dialled.
    #[error("socket path {} is not UTF-8", .0.display())]
    Path(PathBuf),
    /// The plugin doesn't tell who it is.
    #[error("GetInfo failed on {}", socket.display())]
    GetInfo {
        /// The registration socket.
        socket: PathBuf,
        /// What came back.
        source: Box<Status>,
    },
    /// The kubelet doesn't want it, and has said so to the plugin.
    #[error("plugin at {} refused: {reason}", socket.display())]
    Refused {
        /// The registration socket.
        socket: PathBuf,
        /// Why.
        reason: String,
    },
    /// The plugin could not be told that it is registered, so that it is not.
    #[error("NotifyRegistrationStatus failed on {}", socket.display())]
    Notify {
        /// The registration socket.
        socket: PathBuf,
        /// What came back.
        source: Box<Status>,
    },
}

/// Asks the plugin behind `socket` who it is, checks it, admits it if `admit` agrees, and
/// tells it the verdict. `known` are the DRA versions that this kubelet speaks.
///
/// # Errors
/// The step that failed.
pub async fn register(
    socket: &Path,
    known: &[DraApi],
    admit: impl FnOnce(&Plugin) -> Result<(), String>,
) -> Result<Plugin, RegisterError> {
    let channel = channel(socket).ok_or_else(|| RegisterError::Path(socket.into()))?;
    let mut client = RegistrationClient::new(channel);
    let info = client.get_info(within(INFO_TIMEOUT, InfoRequest {})).await;
    let info = info
        .map_err(|source| RegisterError::GetInfo { socket: socket.into(), source: source.into() })?
        .into_inner();

    let checked = check(info, socket, known).and_then(|plugin| admit(&plugin).map(|()| plugin));
    let status = RegistrationStatus {
        plugin_registered: checked.is_ok(),
        error: checked.as_ref().err().cloned().unwrap_or_default(),
    };
    let told = client.notify_registration_status(within(NOTIFY_TIMEOUT, status)).await;
    match (checked, told) {
        (Err(reason), told) => {
            if let Err(status) = told {
                tracing::debug!(socket = %socket.display(), %status, "could not tell the refusal");
            }
            Err(RegisterError::Refused { socket: socket.into(), reason })
        }
        (Ok(_), Err(source)) => {
            Err(RegisterError::Notify { socket: socket.into(), source: source.into() })
        }
        (Ok(plugin), Ok(_)) => Ok(plugin),
    }
}

fn check(info: PluginInfo, socket: &Path, known: &[DraApi]) -> Result<Plugin, String> {
    if info.r#type != PLUGIN_TYPE {
        return Err(format!(
            "no handler registered for plugin type: {} at socket {}",
            info.r#type,
            socket.display()
        ));
    }
    let endpoint =
        if info.endpoint.is_empty() { socket.to_path_buf() } else { PathBuf::from(info.endpoint) };
    let invalid = |error: &dyn std::fmt::Display| {
        format!(
            "invalid supported gRPC versions of DRA driver plugin {} at endpoint {}: {error}",
            info.name,
            endpoint.display()
        )
    };
    let api = DraApi::choose(&info.supported_versions, known).map_err(|error| invalid(&error))?;
    let driver = DriverName::new(&info.name).map_err(|error| error.to_string())?;
    Plugin::dial(driver, &endpoint, api).map_err(|error| error.to_string())
}

fn within<T>(limit: Duration, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}
