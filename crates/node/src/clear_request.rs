//! Requests to take a device for healthy again, which people put into an annotation of the
//! Node. The agent may read its Node and not change it, so the request stays there, and the one
//! dealt with last is remembered.
//!
//! The Node is asked for while something is wrong, and never else.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use gpu_dra_model::{DeviceName, GpuUuid, NodeName};
use k8s_openapi::api::core::v1::Node;

use crate::health::{News, Told, ToldReceiver};

/// The Node's annotation: `<device or GPU UUID>[/<taint key>][#<anything>]`.
pub const ANNOTATION: &str = "gpu.nvidia.com/clear-taint";

/// What is to be cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearRequest {
    /// Of what.
    pub target: Target,
    /// The taint's key; None for all.
    pub key: Option<String>,
}

/// A device of the pool, or a GPU with everything on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By its name.
    Device(DeviceName),
    /// By its UUID.
    Gpu(GpuUuid),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => name.fmt(f),
            Self::Gpu(uuid) => uuid.fmt(f),
        }
    }
}

/// The annotation says nothing that can be done.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("it must name a device or a GPU's UUID, with /KEY for one taint alone")]
pub struct NoRequest;

impl std::str::FromStr for ClearRequest {
    type Err = NoRequest;

    /// What follows `#` tells a request from an equal one before it and has no other meaning.
    fn from_str(text: &str) -> Result<Self, NoRequest> {
        let wanted = text.split('#').next().unwrap_or_default().trim();
        let (target, key) = match wanted.split_once('/') {
            Some((target, key)) => (target, Some(key)),
            None => (wanted, None),
        };
        let target = match GpuUuid::new(target) {
            Ok(uuid) => Target::Gpu(uuid),
            Err(_) => Target::Device(DeviceName::new(target).map_err(|_| NoRequest)?),
        };
        if key.is_some_and(str::is_empty) {
            return Err(NoRequest);
        }
        Ok(Self { target, key: key.map(str::to_owned) })
    }
}

/// Asks for the Node while something is tainted, and hands on what its annotation says.
pub(crate) async fn follow(
    client: kube::Client,
    node: NodeName,
    mut told: ToldReceiver,
    news: Sender<News>,
    interval: Duration,
) {
    let api = kube::Api::<Node>::all(client);
    // What an earlier agent has left tainted may have been asked to be cleared in between.
    let Ok(first) = told.wait_for(Option::is_some).await.map(|told| can_be_cleared(&told)) else {
        return;
    };
    let mut is_old = !first;
    loop {
        while !can_be_cleared(&told.borrow_and_update()) {
            // What is there before anything is wrong is about something else.
            is_old = true;
            if told.changed().await.is_err() {
                return;
            }
        }
        match api.get(node.as_str()).await {
            Ok(node) => {
                let value = node.metadata.annotations.and_then(|mut all| all.remove(ANNOTATION));
                if news.send(News::Asked { value, is_old }).is_err() {
                    return;
                }
                is_old = false;
            }
            Err(error) => tracing::debug!(%error, "the Node's annotations can't be read"),
        }
        tokio::time::sleep(interval).await;
    }
}

/// Whether anything is tainted that a person could end.
fn can_be_cleared(told: &Option<Arc<Told>>) -> bool {
    let mut taints = told.iter().flat_map(|told| told.reports.values()).flat_map(|r| &r.taints);
    taints.any(|taint| taint.key != "gpu.nvidia.com/unmonitored")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_a_device_or_a_gpu_and_maybe_a_key() {
        let uuid = "GPU-11111111-0000-0000-0000-000000000000";
        let device = |name| Target::Device(DeviceName::new(name).unwrap());
        let gpu = Target::Gpu(GpuUuid::new(uuid).unwrap());
        let xid = Some("gpu.nvidia.com/xid".to_owned());
        for (text, target, key) in [
            ("gpu-3".to_owned(), device("gpu-3"), None),
            (format!(" {uuid} "), gpu.clone(), None),
            (
                "gpu-0-mig-1g10gb-19-4/gpu.nvidia.com/xid".to_owned(),
                device("gpu-0-mig-1g10gb-19-4"),
                xid.clone(),
            ),
            (format!("{uuid}/gpu.nvidia.com/xid#2026-01-01T00:00:00Z"), gpu, xid),
        ] {
            assert_eq!(text.parse(), Ok(ClearRequest { target, key }), "{text}");
        }
        for text in ["", "#", "/gpu.nvidia.com/xid", "gpu-0/", "Not A Name", "gpu_0"] {
            assert_eq!(text.parse::<ClearRequest>(), Err(NoRequest), "{text}");
        }
    }
}
