//! A kubelet's side: find plugins, register them in the kubelet's exact order, call them
//! with its timeouts. For the simulated kubelet, the bench and tests; the node agent itself
//! calls nobody. Works with any DRA driver, not only ours.
//!
//! Sequence and timeouts are those of Kubernetes 1.36 (`pkg/kubelet/pluginmanager`,
//! `pkg/kubelet/cm/dra/plugin`). One thing differs: a tonic client sends a proper
//! `:authority` where the kubelet sends the socket's path; what that does is tested with
//! hand-made frames.

mod plugin;
mod register;
mod watch;

use std::path::Path;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

pub use plugin::{CallError, Plugin};
pub use register::{RegisterError, register};
pub use watch::{Event, Watch};

/// How long the kubelet waits for `NodePrepareResources` and `NodeUnprepareResources`.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// Which version of the DRAPlugin service is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraApi {
    /// `v1.DRAPlugin`, kubelets from 1.34.
    V1,
    /// `v1beta1.DRAPlugin`, kubelets from 1.32.
    V1Beta1,
}

impl DraApi {
    /// What a current kubelet knows.
    pub const ALL: [Self; 2] = [Self::V1, Self::V1Beta1];

    /// The service as `PluginInfo.supported_versions` names it.
    #[must_use]
    pub fn service(self) -> &'static str {
        match self {
            Self::V1 => "v1.DRAPlugin",
            Self::V1Beta1 => "v1beta1.DRAPlugin",
        }
    }

    /// The first of the plugin's services that is among `known`, as kubelets up to 1.36 choose.
    ///
    /// # Errors
    /// The kubelet's text when there is none.
    fn choose(services: &[String], known: &[Self]) -> Result<Self, String> {
        if services.is_empty() {
            return Err("empty list of supported gRPC services (aka supported versions)".into());
        }
        services
            .iter()
            .find_map(|service| known.iter().copied().find(|api| api.service() == service))
            .ok_or_else(|| {
                let known: Vec<_> = known.iter().map(|api| api.service()).collect();
                format!(
                    "none of services supported by the plugin ({services:?}) are supported by the kubelet ({known:?})"
                )
            })
    }
}

/// Which version of the DRAResourceHealth service is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthApi {
    /// `v1alpha1.DRAResourceHealth`, kubelets from 1.34.
    V1Alpha1,
    /// `v1.DRAResourceHealth`, kubelets from 1.37.
    V1,
}

/// A channel to a unix socket that connects with the first call, and again after a loss.
/// `None` when the path is not UTF-8.
fn channel(socket: &Path) -> Option<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.to_str()?)).ok()?;
    Some(endpoint.connect_timeout(register::DIAL_TIMEOUT).connect_lazy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_order_decides() {
        let services = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let ours = services(&crate::registration::SERVICES);
        assert_eq!(DraApi::choose(&ours, &DraApi::ALL), Ok(DraApi::V1));
        assert_eq!(DraApi::choose(&ours, &[DraApi::V1Beta1]), Ok(DraApi::V1Beta1));
        let old_first = services(&["v2.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"]);
        assert_eq!(DraApi::choose(&old_first, &DraApi::ALL), Ok(DraApi::V1Beta1));
        let error = DraApi::choose(&services(&["v1alpha4.Node"]), &DraApi::ALL).unwrap_err();
        assert!(error.contains("v1alpha4.Node") && error.contains("v1.DRAPlugin"), "{error}");
        assert!(DraApi::choose(&[], &DraApi::ALL).unwrap_err().contains("empty list"));
    }
}
