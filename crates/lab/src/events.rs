//! What the lab tells: Kubernetes events on objects, and a live stream for a display.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::api::{ApiServer, Subresource, WriteOptions, now};
use crate::error::ApiError;
use crate::kinds::EVENT;

/// How many unseen happenings a subscriber may lag behind.
const BACKLOG: usize = 1024;

/// Something that happened in the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabEvent {
    /// A driver registered with the kubelet.
    DriverRegistered {
        /// The driver's name.
        driver: String,
        /// Its service socket.
        endpoint: String,
    },
    /// A driver could not be registered; it is tried again.
    DriverRefused {
        /// Why.
        reason: String,
    },
    /// A driver's registration socket is gone.
    DriverGone {
        /// The driver's name.
        driver: String,
    },
    /// A slice is new or has new content.
    SlicePublished {
        /// The slice's name.
        name: String,
        /// Its driver.
        driver: String,
        /// Its pool.
        pool: String,
        /// Its node; empty if it is for several.
        node: String,
        /// How many devices it has.
        devices: usize,
    },
    /// A slice is gone.
    SliceDeleted {
        /// The slice's name.
        name: String,
    },
    /// The scheduler gave devices to a claim.
    ClaimAllocated {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// The devices, as `driver/pool/device`.
        devices: Vec<String>,
    },
    /// A claim's devices were given back.
    ClaimDeallocated {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
    },
    /// A driver prepared a claim.
    ClaimPrepared {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
        /// The driver.
        driver: String,
        /// The CDI ids that it answered.
        cdi_ids: Vec<String>,
    },
    /// A driver unprepared a claim.
    ClaimUnprepared {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        name: String,
    },
    /// A container started, as far as anything starts here.
    ContainerStarted(Arc<crate::runtime::Container>),
    /// A pod's phase changed.
    PodPhase {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// `Pending`, `Running`, …; `Gone` when the pod is removed.
        phase: String,
        /// The pod's node; empty if it has none yet.
        node: String,
    },
    /// A Kubernetes event of type Warning.
    Warning {
        /// `pod default/train`, for example.
        object: String,
        /// `FailedScheduling`, for example.
        reason: String,
        /// The sentence.
        message: String,
    },
}

/// Sends `LabEvent`s to whoever listens, and records Kubernetes events.
#[derive(Debug, Clone)]
pub(crate) struct Herald {
    server: Arc<ApiServer>,
    sender: broadcast::Sender<LabEvent>,
}

impl Herald {
    pub(crate) fn new(server: Arc<ApiServer>) -> Self {
        Self { server, sender: broadcast::Sender::new(BACKLOG) }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<LabEvent> {
        self.sender.subscribe()
    }

    pub(crate) fn tell(&self, event: LabEvent) {
        // An error means that nobody listens, which is fine.
        drop(self.sender.send(event));
    }

    /// Records a warning about an object; the same one again only counts up.
    pub(crate) fn warn(&self, object: &Value, component: &str, reason: &str, message: &str) {
        self.record(object, component, ("Warning", reason, message));
    }

    pub(crate) fn inform(&self, object: &Value, component: &str, reason: &str, message: &str) {
        self.record(object, component, ("Normal", reason, message));
    }

    fn record(&self, object: &Value, component: &str, event: (&str, &str, &str)) {
        if let Err(err) = self.try_record(object, component, event) {
            tracing::warn!(%err, reason = event.1, "event lost");
        }
    }

    fn try_record(
        &self,
        object: &Value,
        component: &str,
        (severity, reason, message): (&str, &str, &str),
    ) -> Result<(), ApiError> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let namespace = if text("namespace").is_empty() { "default" } else { text("namespace") };
        let by = WriteOptions::by(component);
        let time = now();
        let selector = crate::Selector::field("involvedObject.uid", text("uid"));
        let (events, _) = self.server.list(&EVENT, namespace, &selector);
        let same = events.iter().find(|e| e["reason"] == reason && e["message"] == message);
        if let Some(same) = same {
            let mut again = (**same).clone();
            again["count"] = (same["count"].as_i64().unwrap_or(1) + 1).into();
            again["lastTimestamp"] = time.into();
            let name = same["metadata"]["name"].as_str().unwrap_or_default();
            self.server.update(&EVENT, (namespace, name), Subresource::Main, again, &by)?;
            return Ok(());
        }
        let event = json!({
            "metadata": {"generateName": format!("{}.", text("name")), "namespace": namespace},
            "involvedObject": {
                "apiVersion": object["apiVersion"], "kind": object["kind"], "name": text("name"),
                "namespace": text("namespace"), "uid": text("uid"),
                "resourceVersion": text("resourceVersion"),
            },
            "type": severity, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": time, "lastTimestamp": time,
            "source": {"component": component}, "reportingComponent": component,
        });
        self.server.create(&EVENT, namespace, event, &by)?;
        if severity == "Warning" {
            let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
            self.tell(LabEvent::Warning {
                object: format!("{kind} {namespace}/{}", text("name")),
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
        }
        Ok(())
    }
}
