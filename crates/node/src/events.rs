//! Kubernetes Events on this node's Node object, and on the pods of a claim: what an operator
//! and a pod's owner must be able to read in `kubectl describe` without the agent's log.
//!
//! Whoever announces never waits and never fails: an API server that is away delays the
//! Events, and no claim. Each Event is in the log too.

use std::collections::HashMap;
use std::time::Duration;

use gpu_dra_metrics::client::metrics::counter::Counter;
use gpu_dra_model::{ClaimRef, DriverName, NodeName};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Happenings that wait while the API server is away; more are left out, and the log says so.
const WAITING: usize = 64;

/// The same words about the same thing are not repeated within this time.
const REPEAT: Duration = Duration::from_secs(600);

/// The longest pause between two attempts to write an Event.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long an Event is tried that the API server answers and doesn't take: such an answer may
/// be about this Event alone, and others wait behind it.
const GIVE_UP: Duration = Duration::from_secs(300);

/// How long one is tried while there is no answer, which no other Event would get either. An
/// Event that was written would be gone after this time too.
const GIVE_UP_UNANSWERED: Duration = Duration::from_secs(3600);

/// How much it concerns the operator (`type` of an Event).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Part of the normal course.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One thing that happened on the node. It becomes one Event of the Node, and one of each pod
/// that it concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Happening {
    /// How much it concerns the operator.
    pub severity: Severity,
    /// One word in CamelCase, for machines.
    pub reason: &'static str,
    /// The claims whose pods are told too.
    pub claims: Vec<ClaimRef>,
    /// Tells it from an equal one at another time, in seconds since 1970, where that is of
    /// interest: a taint that comes, goes and comes again is told three times.
    pub since: Option<i64>,
    /// What happened, and what to do, for people; at most 1,024 bytes are kept.
    pub message: String,
}

/// Where happenings are told.
#[derive(Clone)]
pub struct Announcer {
    sender: mpsc::Sender<Happening>,
    lost: Counter,
}

impl Announcer {
    /// The announcer, and what [`post`] must be given.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Happening>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { sender, lost: Counter::default() }, receiver)
    }

    /// Events that were never written.
    #[must_use]
    pub fn lost(&self) -> Counter {
        self.lost.clone()
    }

    /// Logs it and leaves it to be posted on the Node.
    pub fn announce(&self, severity: Severity, reason: &'static str, message: String) {
        self.tell(Happening { severity, reason, claims: Vec::new(), since: None, message });
    }

    /// The same, also on the pods that use the claim.
    pub fn announce_to(
        &self,
        claim: &ClaimRef,
        severity: Severity,
        reason: &'static str,
        message: String,
    ) {
        let claims = vec![claim.clone()];
        self.tell(Happening { severity, reason, claims, since: None, message });
    }

    /// Logs it once and leaves it to be posted on the Node and on the pods of all its claims.
    pub fn tell(&self, happening: Happening) {
        let (reason, message) = (happening.reason, &happening.message);
        match happening.severity {
            Severity::Normal => tracing::info!(reason, "{message}"),
            Severity::Warning => tracing::warn!(reason, "{message}"),
        }
        if self.sender.try_send(happening).is_err() {
            self.lost.inc();
            tracing::warn!(reason, "no Event of this: too many wait for the API server");
        }
    }
}

/// Posts what is announced, one after the other, until nobody announces any more. What is never
/// written is counted.
pub async fn post(
    happenings: mpsc::Receiver<Happening>,
    client: kube::Client,
    node: NodeName,
    driver: DriverName,
    lost: Counter,
) {
    Poster { client, node, driver, lost, posted: HashMap::new() }.run(happenings).await;
}

/// What is said, and the UID of the object that it is said of.
type Said = (Severity, &'static str, Option<i64>, String, Option<String>);

struct Poster {
    client: kube::Client,
    node: NodeName,
    driver: DriverName,
    lost: Counter,
    posted: HashMap<Said, Instant>,
}

impl Poster {
    async fn run(mut self, mut happenings: mpsc::Receiver<Happening>) {
        while let Some(happening) = happenings.recv().await {
            self.posted.retain(|_, at| at.elapsed() < REPEAT);
            self.post(&happening, node_reference(&self.node)).await;
            // After the Node, so that claims are read when the API server is there again.
            for claim in &happening.claims {
                for pod in pods_of(&self.client, claim).await {
                    self.post(&happening, pod).await;
                }
            }
        }
    }

    async fn post(&mut self, happening: &Happening, object: ObjectReference) {
        let Happening { severity, reason, since, message, .. } = happening;
        let said = (*severity, *reason, *since, message.clone(), object.uid.clone());
        if self.posted.contains_key(&said) {
            return;
        }
        let event = event(happening, object, &self.node, &self.driver, Timestamp::now());
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let api = kube::Api::<Event>::namespaced(self.client.clone(), namespace);
        if let Err(why) = post_until_it_is_there(&api, &event).await {
            self.lost.inc();
            tracing::warn!(reason, error = why, "an Event is not written");
        }
        self.posted.insert(said, Instant::now());
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

/// Why it isn't there, where it has to be given up.
async fn post_until_it_is_there(api: &kube::Api<Event>, event: &Event) -> Result<(), String> {
    let began = Instant::now();
    let mut pause = Duration::from_secs(1);
    loop {
        let Err(error) = api.create(&kube::api::PostParams::default(), event).await else {
            return Ok(());
        };
        let patience = match &error {
            // It is the server's last word.
            kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
                return Err(status.message.clone());
            }
            kube::Error::HyperError(_) | kube::Error::Service(_) => GIVE_UP_UNANSWERED,
            _ => GIVE_UP,
        };
        if began.elapsed() >= patience {
            return Err(error.to_string());
        }
        tracing::debug!(%error, "Event not posted yet");
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
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_found_under_its_node() {
        let happening = Happening {
            severity: Severity::Warning,
            reason: "ForeignGpuInstance",
            claims: vec![],
            since: None,
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
        assert_eq!(announcer.lost().get(), u64::try_from(WAITING).unwrap());
    }

    /// What the API server was told of: object, reason, message.
    type Written = Arc<Mutex<Vec<(String, String, String)>>>;

    /// An API server that knows claims with a pod each, and answers a POST as `answer` says of
    /// its message.
    fn server(answer: fn(&str) -> u16) -> (kube::Client, Written) {
        let written = Written::default();
        let seen = Arc::clone(&written);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let path = request.uri().path().to_owned();
                let (status, body) = if request.method() == http::Method::GET {
                    let name = path.rsplit('/').next().unwrap().to_owned();
                    let uid = claim(name.trim_start_matches("claim-").parse().unwrap()).uid;
                    let pods = json!([{"resource": "pods", "name": format!("pod-of-{name}"),
                        "uid": format!("pod-{name}")}]);
                    let claim = json!({
                        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                        "metadata": {"name": name, "uid": uid}, "spec": {},
                        "status": {"reservedFor": pods},
                    });
                    (200, claim)
                } else {
                    let bytes = request.into_body().collect_bytes().await.unwrap();
                    let event: Event = serde_json::from_slice(&bytes).unwrap();
                    let message = event.message.clone().unwrap();
                    let status = answer(&message);
                    if status == 201 {
                        let of = event.involved_object.name.clone().unwrap();
                        seen.lock().unwrap().push((of, event.reason.clone().unwrap(), message));
                        (status, serde_json::to_value(event).unwrap())
                    } else {
                        let failure = json!({"kind": "Status", "apiVersion": "v1",
                            "status": "Failure", "message": "no", "reason": "x", "code": status});
                        (status, failure)
                    }
                };
                let response = http::Response::builder().status(status);
                Ok::<_, Infallible>(
                    response.body(kube::client::Body::from(body.to_string().into_bytes())).unwrap(),
                )
            }
        });
        (kube::Client::new(service, "default"), written)
    }

    fn claim(nth: u32) -> ClaimRef {
        ClaimRef {
            uid: gpu_dra_model::ClaimUid::new(format!("0f6c1f3a-2b7e-4c55-9d1f-{nth:012}"))
                .unwrap(),
            namespace: "team-a".to_owned(),
            name: format!("claim-{nth}"),
        }
    }

    fn happening(claims: u32, since: Option<i64>, message: &str) -> Happening {
        let claims = (0..claims).map(claim).collect();
        let (severity, message) = (Severity::Warning, message.to_owned());
        Happening { severity, reason: "DeviceTainted", claims, since, message }
    }

    /// Announces all of it and waits until all of it is dealt with.
    async fn posted(client: kube::Client, happenings: Vec<Happening>) -> u64 {
        let (announcer, receiver) = Announcer::new();
        happenings.into_iter().for_each(|happening| announcer.tell(happening));
        let lost = announcer.lost();
        drop(announcer);
        let (node, driver) = ("node-a", "gpu.nvidia.com");
        let (node, driver) = (NodeName::new(node).unwrap(), DriverName::new(driver).unwrap());
        post(receiver, client, node, driver, lost.clone()).await;
        lost.get()
    }

    #[tokio::test(start_paused = true)]
    async fn one_happening_is_one_event_of_the_node_and_one_of_each_pod() {
        let (client, written) = server(|_| 201);
        assert_eq!(posted(client, vec![happening(50, Some(7), "Xid 79")]).await, 0);
        let written = written.lock().unwrap();
        let of_node = written.iter().filter(|(object, ..)| object == "node-a").count();
        assert_eq!((of_node, written.len()), (1, 51));
        let pods: BTreeSet<_> = written.iter().map(|(object, ..)| object).collect();
        assert_eq!(pods.len(), 51);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_goes_and_comes_again_is_told_each_time() {
        let (client, written) = server(|_| 201);
        let again = |since| happening(1, Some(since), "taint xid=48:NoSchedule");
        // The same at the same time is one happening, whoever tells of it.
        posted(client, vec![again(100), again(100), again(160)]).await;
        let written = written.lock().unwrap();
        assert_eq!(written.len(), 4, "{written:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_cannot_be_written_holds_up_no_other_for_ever() {
        let (client, written) = server(|message| match message {
            "poison" => 500,
            "throttled" => 429,
            "wrong" => 422,
            _ => 201,
        });
        let began = Instant::now();
        let all = ["poison", "throttled", "wrong", "fine"].map(|text| happening(0, None, text));
        assert_eq!(posted(client, all.to_vec()).await, 3, "counted");
        let took = began.elapsed();
        assert!(took < 2 * (GIVE_UP + LONGEST_PAUSE), "{took:?}");
        assert!(took > GIVE_UP, "a server in trouble gets its time: {took:?}");
        let written = written.lock().unwrap();
        assert_eq!(written.len(), 1);
        assert_eq!(written[0].2, "fine");
    }
}
