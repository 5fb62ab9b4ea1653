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
use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use k8s_openapi::jiff::Timestamp;

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
    let mut came = (!first).then(now);
    loop {
        while !can_be_cleared(&told.borrow_and_update()) {
            if told.changed().await.is_err() {
                return;
            }
            came = Some(now());
        }
        match api.get(node.as_str()).await {
            Ok(node) => {
                let is_old = came.take().is_some_and(|came| is_older(&node, came));
                let value = node.metadata.annotations.and_then(|mut all| all.remove(ANNOTATION));
                if news.send(News::Asked { value, is_old }).is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "the Node's annotations can't be read"),
        }
        tokio::time::sleep(interval).await;
    }
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Whether what the annotation says was there before `came`, in seconds since 1970, when there
/// was nothing that it could have been about. The API server keeps when each field was set last;
/// where it doesn't tell, what is found first is taken for old.
fn is_older(node: &Node, came: i64) -> bool {
    let entries = node.metadata.managed_fields.iter().flatten();
    let field = format!("f:{ANNOTATION}");
    let sets = |fields: &FieldsV1| {
        let annotations = fields.0.get("f:metadata")?.get("f:annotations")?;
        annotations.get(&field).map(drop)
    };
    let set = entries
        .filter(|entry| entry.fields_v1.as_ref().and_then(sets).is_some())
        .filter_map(|entry| Some(entry.time.as_ref()?.0.as_second()))
        .max();
    set.is_none_or(|set| set < came)
}

/// Whether anything is tainted that a person could end.
fn can_be_cleared(told: &Option<Arc<Told>>) -> bool {
    let mut taints = told.iter().flat_map(|told| told.reports.values()).flat_map(|r| &r.taints);
    taints.any(|taint| taint.key != "gpu.nvidia.com/unmonitored")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use gpu_dra_health::{Report, State, Taint, UnixSeconds, Verdict};
    use serde_json::json;
    use tokio::sync::watch;

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
    const SICK: &str = "gpu-0#since-it-is-sick";

    /// The Node as it is when it has this annotation for so many seconds.
    fn node(seconds_ago: Option<i64>) -> serde_json::Value {
        let set = Timestamp::from_second(now() - seconds_ago.unwrap_or_default()).unwrap();
        let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{ANNOTATION}")): {}}}});
        let others = json!({"f:metadata": {"f:annotations": {"f:other": {}}}});
        let mut managed =
            vec![json!({"manager": "kubelet", "operation": "Update", "time": Timestamp::now(),
                "fieldsType": "FieldsV1", "fieldsV1": others})];
        if seconds_ago.is_some() {
            managed.push(json!({"manager": "kubectl", "operation": "Update", "time": set,
                "fieldsType": "FieldsV1", "fieldsV1": fields}));
        }
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a",
            "annotations": {ANNOTATION: SICK}, "managedFields": managed}})
    }

    #[test]
    fn a_request_is_old_if_it_was_set_before_there_was_anything_to_clear() {
        let is_old = |node| is_older(&serde_json::from_value(node).unwrap(), now() - 60);
        assert!(is_old(node(Some(120))));
        assert!(!is_old(node(Some(5))));
        assert!(is_old(node(None)), "nobody knows");
    }

    fn told(taints: Vec<Taint>) -> Option<Arc<Told>> {
        let survey = Arc::new(crate::readiness::tests::survey(None));
        let report = Report { state: State::Healthy, message: String::new(), taints };
        let reports = [(DeviceName::new("gpu-0").unwrap(), report)].into();
        Some(Arc::new(Told { pool: Arc::clone(&survey.pool), survey, reports }))
    }

    /// The API server is away when the taint comes, and a person doesn't wait for the agent.
    #[tokio::test(start_paused = true)]
    async fn a_request_made_while_the_api_server_was_away_is_done() {
        for (ago, is_old) in [(0, false), (3600, true)] {
            let tries = Arc::new(AtomicUsize::new(0));
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                let nth = tries.fetch_add(1, Ordering::SeqCst);
                let answer =
                    if nth < 3 { (503, json!({"code": 503})) } else { (200, node(Some(ago))) };
                let body = kube::client::Body::from(answer.1.to_string().into_bytes());
                async move {
                    Ok::<_, Infallible>(
                        http::Response::builder().status(answer.0).body(body).unwrap(),
                    )
                }
            });
            let client = kube::Client::new(service, "default");
            let (sender, receiver) = watch::channel(told(vec![]));
            let (news, heard) = std::sync::mpsc::channel();
            let name = NodeName::new("node-a").unwrap();
            tokio::spawn(follow(client, name, receiver, news, Duration::from_secs(30)));
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (key, verdict) = ("gpu.nvidia.com/xid", Verdict::NoSchedule);
            let taint = Taint { key, value: None, verdict, since: UnixSeconds(now()) };
            sender.send_replace(told(vec![taint]));
            tokio::time::sleep(Duration::from_secs(200)).await;
            let News::Asked { value, is_old: first } = heard.try_recv().unwrap() else {
                panic!("a request");
            };
            assert_eq!((value.as_deref(), first), (Some(SICK), is_old), "{ago}");
            let News::Asked { is_old: later, .. } = heard.try_recv().unwrap() else {
                panic!("a request");
            };
            assert!(!later, "what it says later is new");
        }
    }
}
