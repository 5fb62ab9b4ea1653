//! Kubernetes Events on this node's Node object, and on the pods of a claim: what an operator
//! and a pod's owner must be able to read in `kubectl describe` without the agent's log.
//!
//! Whoever announces never waits and never fails: an API server that is away delays the
//! Events, and no claim. Each Event is in the log too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gpu_dra_model::{ClaimRef, DriverName, NodeName};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

/// Events that wait while the API server is away; more are left out, and the log says so.
const WAITING: usize = 64;

/// The same words are not repeated within this time.
const REPEAT: Duration = Duration::from_secs(600);

/// The longest pause between two attempts to write an Event.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How much it concerns the operator (`type` of an Event).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Part of the normal course.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One thing that happened on the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Happening {
    /// How much it concerns the operator.
    pub severity: Severity,
    /// One word in CamelCase, for machines.
    pub reason: &'static str,
    /// The claim whose pods are told too.
    pub claim: Option<ClaimRef>,
    /// What happened, and what to do, for people; at most 1,024 bytes are kept.
    pub message: String,
}

/// Where happenings are told.
#[derive(Clone)]
pub struct Announcer(mpsc::Sender<Happening>);

impl Announcer {
    /// The announcer, and what [`post`] must be given.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Happening>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Logs it and leaves it to be posted on the Node.
    pub fn announce(&self, severity: Severity, reason: &'static str, message: String) {
        self.tell(Happening { severity, reason, claim: None, message });
    }

    /// The same, also on the pods that use the claim.
    pub fn announce_to(
        &self,
        claim: &ClaimRef,
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        self.tell(Happening { severity, reason, claim: Some(claim.clone()), message });
    }

    fn tell(&self, happening: Happening) {
        let (reason, message) = (happening.reason, &happening.message);
        match happening.severity {
            Severity::Normal => tracing::info!(reason, "{message}"),
            Severity::Warning => tracing::warn!(reason, "{message}"),
        }
        if self.0.try_send(happening).is_err() {
            tracing::warn!(reason, "no Event of this: too many wait for the API server");
        }
    }
}

/// Posts what is announced, one after the other, until nobody announces any more.
pub async fn post(
    mut happenings: mpsc::Receiver<Happening>,
    client: kube::Client,
    node: NodeName,
    driver: DriverName,
) {
    let mut posted: HashMap<Happening, Instant> = HashMap::new();
    while let Some(happening) = happenings.recv().await {
        posted.retain(|_, at| at.elapsed() < REPEAT);
        if posted.contains_key(&happening) {
            continue;
        }
        let mut objects = vec![node_reference(&node)];
        if let Some(claim) = &happening.claim {
            objects.extend(pods_of(&client, claim).await);
        }
        for object in objects {
            let event = event(&happening, object, &node, &driver, Timestamp::now());
            let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
            let api = kube::Api::<Event>::namespaced(client.clone(), namespace);
            post_until_it_is_there(&api, &event).await;
        }
        posted.insert(happening, Instant::now());
    }
}

/// The pods that use the claim; none where it can't be read, since the Node has the Event too.
async fn pods_of(client: &kube::Client, claim: &ClaimRef) -> Vec<ObjectReference> {
    let api = kube::Api::<ResourceClaim>::namespaced(client.clone(), &claim.namespace);
    let object = match api.get_opt(&claim.name).await {
        Ok(object) => object,
        Err(error) => {
            tracing::debug!(%error, %claim, "pods of a claim not found for an Event");
            None
        }
    };
    let same = |object: &ResourceClaim| object.metadata.uid.as_deref() == Some(claim.uid.as_str());
    let users = object.filter(same).and_then(|object| object.status?.reserved_for);
    let pods = users.into_iter().flatten().filter(|user| user.resource == "pods");
    pods.map(|pod| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(pod.name),
        uid: Some(pod.uid),
        ..ObjectReference::default()
    })
    .collect()
}

/// The node by name in place of the UID, as the kubelet has it, which is what `kubectl
/// describe node` looks for.
fn node_reference(node: &NodeName) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_string()),
        uid: Some(node.to_string()),
        ..ObjectReference::default()
    }
}

async fn post_until_it_is_there(api: &kube::Api<Event>, event: &Event) {
    let mut pause = Duration::from_secs(1);
    loop {
        match api.create(&kube::api::PostParams::default(), event).await {
            Ok(_) => return,
            // It is the server's last word; the log has the Event.
            Err(kube::Error::Api(status))
                if (400..500).contains(&status.code) && status.code != 429 =>
            {
                tracing::warn!(error = %status.message, "the API server refuses an Event");
                return;
            }
            Err(error) => tracing::debug!(%error, "Event not posted yet"),
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

fn event(
    happening: &Happening,
    object: ObjectReference,
    node: &NodeName,
    driver: &DriverName,
    now: Timestamp,
) -> Event {
    let severity = match happening.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let name = object.name.clone().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.")),
            namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: object,
        type_: Some(severity.to_owned()),
        reason: Some(happening.reason.to_owned()),
        message: Some(shortened(&happening.message)),
        source: Some(EventSource {
            component: Some(driver.to_string()),
            host: Some(node.to_string()),
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

/// The API server takes 1,024 bytes of message.
fn shortened(message: &str) -> String {
    let mut end = message.len().min(1024);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_found_under_its_node() {
        let happening = Happening {
            severity: Severity::Warning,
            reason: "ForeignGpuInstance",
            claim: None,
            message: "é".repeat(600),
        };
        let node = NodeName::new("node-a").unwrap();
        let driver = DriverName::new("gpu.nvidia.com").unwrap();
        let object = node_reference(&node);
        let event = event(&happening, object, &node, &driver, Timestamp::UNIX_EPOCH);
        assert_eq!(event.involved_object.uid.as_deref(), Some("node-a"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.message.unwrap().len(), 1024);
    }

    #[test]
    fn announcing_never_waits() {
        let (announcer, mut waiting) = Announcer::new();
        for n in 0..2 * WAITING {
            announcer.announce(Severity::Normal, "MigModeOn", n.to_string());
        }
        let mut kept = 0;
        while waiting.try_recv().is_ok() {
            kept += 1;
        }
        assert_eq!(kept, WAITING);
    }
}
