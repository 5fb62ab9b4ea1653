//! The calls to a plugin's service socket, with the kubelet's checks of each answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use futures::{Stream, StreamExt as _};
use gpu_dra_model::{
    CdiDeviceId, ClaimRef, ClaimUid, DeviceName, DriverName, IdError, PoolName, RequestName,
};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::{CALL_TIMEOUT, DraApi, HealthApi, channel};
use crate::proto::dra_v1::dra_plugin_client::DraPluginClient as ClientV1;
use crate::proto::dra_v1beta1::dra_plugin_client::DraPluginClient as ClientV1Beta1;
use crate::proto::health_v1::dra_resource_health_client::DraResourceHealthClient as HealthV1;
use crate::proto::health_v1alpha1::dra_resource_health_client::DraResourceHealthClient as HealthV1Alpha1;
use crate::proto::{dra_v1 as v1, dra_v1beta1 as v1beta1, health_v1, health_v1alpha1};
use crate::service::{DeviceHealth, HealthState, PreparedDevice};

/// A plugin that can be called. Cheap to clone; clones share one connection.
#[derive(Debug, Clone)]
pub struct Plugin {
    driver: DriverName,
    endpoint: PathBuf,
    api: DraApi,
    timeout: Duration,
    channel: Channel,
}

/// A call has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The path can't be dialled.
    #[error("socket path {} is not UTF-8", .0.display())]
    Path(PathBuf),
    /// gRPC failed, or the time was up.
    #[error("{call} failed at {}", endpoint.display())]
    Rpc {
        /// The RPC.
        call: &'static str,
        /// The service socket.
        endpoint: PathBuf,
        /// What came back.
        source: Box<Status>,
    },
    /// The answer has a claim that was not asked for.
    #[error("{call} returned ResourceClaim {uid:?}, which was not asked for")]
    UnknownClaim {
        /// The RPC.
        call: &'static str,
        /// The UID in the answer.
        uid: String,
    },
    /// The answer lacks claims.
    #[error("{call} skipped {missing} ResourceClaims")]
    Skipped {
        /// The RPC.
        call: &'static str,
        /// How many.
        missing: usize,
    },
    /// A name in the answer that Kubernetes or CDI would not accept.
    #[error("{call} returned an unusable name")]
    Name {
        /// The RPC.
        call: &'static str,
        /// Which, and why.
        source: IdError,
    },
}

const PREPARE: &str = "NodePrepareResources";
const UNPREPARE: &str = "NodeUnprepareResources";
const WATCH: &str = "NodeWatchResources";

impl Plugin {
    /// A plugin by its service socket. Connects with the first call. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the path is not UTF-8.
    pub fn dial(driver: DriverName, endpoint: &Path, api: DraApi) -> Result<Self, CallError> {
        let channel = channel(endpoint).ok_or_else(|| CallError::Path(endpoint.into()))?;
        Ok(Self { driver, endpoint: endpoint.into(), api, timeout: CALL_TIMEOUT, channel })
    }

    /// With another patience than [`CALL_TIMEOUT`].
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The driver's name.
    #[must_use]
    pub fn driver(&self) -> &DriverName {
        &self.driver
    }

    /// The service socket.
    #[must_use]
    pub fn endpoint(&self) -> &Path {
        &self.endpoint
    }

    /// The DRA version that is spoken.
    #[must_use]
    pub fn api(&self) -> DraApi {
        self.api
    }

    /// `NodePrepareResources`. A claim's own error is in its entry.
    ///
    /// # Errors
    /// When the call as a whole has no usable answer: then no claim counts as prepared.
    pub async fn prepare(
        &self,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<ClaimUid, Result<Vec<PreparedDevice>, String>>, CallError> {
        let answers: BTreeMap<String, (Vec<v1::Device>, String)> = match self.api {
            DraApi::V1 => {
                let request = v1::NodePrepareResourcesRequest { claims: wire(claims) };
                let mut client = ClientV1::new(self.channel.clone());
                let answer = client.node_prepare_resources(self.request(request)).await;
                let claims = answer.map_err(|e| self.failed(PREPARE, e))?.into_inner().claims;
                claims.into_iter().map(|(uid, entry)| (uid, (entry.devices, entry.error))).collect()
            }
            DraApi::V1Beta1 => {
                let request = v1beta1::NodePrepareResourcesRequest { claims: wire(claims) };
                let mut client = ClientV1Beta1::new(self.channel.clone());
                let answer = client.node_prepare_resources(self.request(request)).await;
                let claims = answer.map_err(|e| self.failed(PREPARE, e))?.into_inner().claims;
                let devices = |devices: Vec<v1beta1::Device>| {
                    devices.into_iter().map(v1::Device::from).collect()
                };
                claims.into_iter().map(|(uid, e)| (uid, (devices(e.devices), e.error))).collect()
            }
        };
        checked(PREPARE, claims, answers, |(devices, error)| {
            if !error.is_empty() {
                return Ok(Err(error));
            }
            let devices: Result<_, IdError> = devices.into_iter().map(device).collect();
            devices.map(Ok)
        })
    }

    /// `NodeUnprepareResources`. A claim's own error is in its entry.
    ///
    /// # Errors
    /// When the call as a whole has no usable answer.
    pub async fn unprepare(
        &self,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<ClaimUid, Result<(), String>>, CallError> {
        let answers: BTreeMap<String, String> = match self.api {
            DraApi::V1 => {
                let request = v1::NodeUnprepareResourcesRequest { claims: wire(claims) };
                let mut client = ClientV1::new(self.channel.clone());
                let answer = client.node_unprepare_resources(self.request(request)).await;
                let claims = answer.map_err(|e| self.failed(UNPREPARE, e))?.into_inner().claims;
                claims.into_iter().map(|(uid, entry)| (uid, entry.error)).collect()
            }
            DraApi::V1Beta1 => {
                let request = v1beta1::NodeUnprepareResourcesRequest { claims: wire(claims) };
                let mut client = ClientV1Beta1::new(self.channel.clone());
                let answer = client.node_unprepare_resources(self.request(request)).await;
                let claims = answer.map_err(|e| self.failed(UNPREPARE, e))?.into_inner().claims;
                claims.into_iter().map(|(uid, entry)| (uid, entry.error)).collect()
            }
        };
        checked(UNPREPARE, claims, answers, |error| {
            Ok(if error.is_empty() { Ok(()) } else { Err(error) })
        })
    }

    /// Opens `NodeWatchResources`: a full list at once and after each change. The stream
    /// ends, or fails, with the plugin; the kubelet then opens it again after 5 s.
    ///
    /// # Errors
    /// When the stream can't be opened.
    pub async fn watch_health(
        &self,
        api: HealthApi,
    ) -> Result<impl Stream<Item = Result<Vec<DeviceHealth>, CallError>> + Send + use<>, CallError>
    {
        let plugin = self.clone();
        let channel = self.channel.clone();
        let failed = |error| self.failed(WATCH, error);
        let messages = match api {
            HealthApi::V1Alpha1 => {
                let request = health_v1alpha1::NodeWatchResourcesRequest {};
                let mut client = HealthV1Alpha1::new(channel);
                let stream = client.node_watch_resources(request).await.map_err(failed)?;
                let devices = |message: health_v1alpha1::NodeWatchResourcesResponse| {
                    message.devices.into_iter().map(health_v1::DeviceHealth::from).collect()
                };
                stream.into_inner().map(move |message| message.map(devices)).left_stream()
            }
            HealthApi::V1 => {
                let request = health_v1::NodeWatchResourcesRequest {};
                let mut client = HealthV1::new(channel);
                let stream = client.node_watch_resources(request).await.map_err(failed)?;
                stream.into_inner().map(|message| message.map(|m| m.devices)).right_stream()
            }
        };
        Ok(messages.map(move |message| {
            let devices: Vec<_> = message.map_err(|error| plugin.failed(WATCH, error))?;
            let devices: Result<_, IdError> = devices.into_iter().map(health).collect();
            devices.map_err(|source| CallError::Name { call: WATCH, source })
        }))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    fn failed(&self, call: &'static str, source: Status) -> CallError {
        CallError::Rpc { call, endpoint: self.endpoint.clone(), source: source.into() }
    }
}

/// The kubelet's checks: no entry too many, none missing.
fn checked<A, T>(
    call: &'static str,
    asked: &[ClaimRef],
    mut answers: BTreeMap<String, A>,
    read: impl Fn(A) -> Result<T, IdError>,
) -> Result<BTreeMap<ClaimUid, T>, CallError> {
    let mut entries = BTreeMap::new();
    for claim in asked {
        if let Some(answer) = answers.remove(claim.uid.as_str()) {
            let entry = read(answer).map_err(|source| CallError::Name { call, source })?;
            entries.insert(claim.uid.clone(), entry);
        }
    }
    if let Some((uid, _)) = answers.pop_first() {
        return Err(CallError::UnknownClaim { call, uid });
    }
    match asked.iter().filter(|claim| !entries.contains_key(&claim.uid)).count() {
        0 => Ok(entries),
        missing => Err(CallError::Skipped { call, missing }),
    }
}

fn wire<C: From<ClaimRef>>(claims: &[ClaimRef]) -> Vec<C> {
    claims.iter().cloned().map(C::from).collect()
}

impl From<ClaimRef> for v1::Claim {
    fn from(ClaimRef { uid, namespace, name }: ClaimRef) -> Self {
        Self { namespace, uid: uid.into(), name }
    }
}

impl From<ClaimRef> for v1beta1::Claim {
    fn from(ClaimRef { uid, namespace, name }: ClaimRef) -> Self {
        Self { namespace, uid: uid.into(), name }
    }
}

impl From<v1beta1::Device> for v1::Device {
    fn from(device: v1beta1::Device) -> Self {
        Self {
            request_names: device.request_names,
            pool_name: device.pool_name,
            device_name: device.device_name,
            cdi_device_ids: device.cdi_device_ids,
            share_id: None,
        }
    }
}

impl From<health_v1alpha1::DeviceHealth> for health_v1::DeviceHealth {
    fn from(device: health_v1alpha1::DeviceHealth) -> Self {
        Self {
            device: device.device.map(|id| health_v1::DeviceIdentifier {
                pool_name: id.pool_name,
                device_name: id.device_name,
            }),
            health: device.health,
            last_updated_time: device.last_updated_time,
            health_check_timeout_seconds: device.health_check_timeout_seconds,
            message: device.message,
        }
    }
}

fn device(device: v1::Device) -> Result<PreparedDevice, IdError> {
    Ok(PreparedDevice {
        request_names: device
            .request_names
            .iter()
            .map(RequestName::new)
            .collect::<Result<_, _>>()?,
        pool: PoolName::new(device.pool_name)?,
        device: DeviceName::new(device.device_name)?,
        cdi_ids: device.cdi_device_ids.iter().map(CdiDeviceId::new).collect::<Result<_, _>>()?,
        share_id: device.share_id,
    })
}

fn health(device: health_v1::DeviceHealth) -> Result<DeviceHealth, IdError> {
    let state = match device.health() {
        health_v1::HealthStatus::Unknown => HealthState::Unknown,
        health_v1::HealthStatus::Healthy => HealthState::Healthy,
        health_v1::HealthStatus::Unhealthy => HealthState::Unhealthy,
    };
    let seconds = u64::try_from(device.last_updated_time).unwrap_or_default();
    let id = device.device.unwrap_or_default();
    Ok(DeviceHealth {
        pool: PoolName::new(id.pool_name)?,
        device: DeviceName::new(id.device_name)?,
        state,
        last_updated: UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH),
        message: device.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str) -> ClaimRef {
        let uid = ClaimUid::new(uid).unwrap();
        ClaimRef { uid, namespace: "team".into(), name: "train".into() }
    }

    const A: &str = "aaaaaaaa-0000-4000-8000-000000000000";
    const B: &str = "bbbbbbbb-0000-4000-8000-000000000000";

    #[test]
    fn an_answer_with_too_few_or_too_many_claims_is_no_answer() {
        let asked = [claim(A), claim(B)];
        let read = |uids: &[&str]| {
            let answers = uids.iter().map(|uid| ((*uid).to_owned(), ())).collect();
            checked(PREPARE, &asked, answers, Ok)
        };
        assert_eq!(read(&[A, B]).unwrap().len(), 2);
        assert!(matches!(read(&[B]), Err(CallError::Skipped { missing: 1, .. })));
        assert!(
            matches!(read(&[A, B, "x"]), Err(CallError::UnknownClaim { uid, .. }) if uid == "x")
        );
    }
}
