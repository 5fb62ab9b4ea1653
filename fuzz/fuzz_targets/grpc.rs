//! What a kubelet, or whoever else reaches the sockets, may send: the bytes of a request to each
//! method of the real services, over HTTP/2 on the real sockets.
//!
//! The first byte chooses the method, the second how the rest becomes a body.
#![no_main]

mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use gpu_dra_kubelet::proto::{dra_v1 as v1, dra_v1beta1 as v1beta1};
use gpu_dra_kubelet::{ClaimService, DeviceHealth, HealthState, Paths, PreparedDevice, Server};
use gpu_dra_model::{
    CdiDeviceId, ClaimRef, ClaimUid, DeviceName, DriverName, PoolName, RequestName,
};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::{Service as _, ServiceExt as _};

/// Longer than any call takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// Bytes before a message in a body: whether it is compressed, its length.
const FRAME: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Socket {
    Registration,
    Service,
}

type Method = (Socket, &'static str);

const GET_INFO: Method = (Socket::Registration, "/pluginregistration.Registration/GetInfo");
const NOTIFY: Method =
    (Socket::Registration, "/pluginregistration.Registration/NotifyRegistrationStatus");
const PREPARE: Method =
    (Socket::Service, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources");
const UNPREPARE: Method =
    (Socket::Service, "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources");
const PREPARE_BETA: Method =
    (Socket::Service, "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources");
const UNPREPARE_BETA: Method =
    (Socket::Service, "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources");
const WATCH: Method = (Socket::Service, "/v1.DRAResourceHealth/NodeWatchResources");
const WATCH_ALPHA: Method = (Socket::Service, "/v1alpha1.DRAResourceHealth/NodeWatchResources");
const METHODS: [Method; 8] =
    [GET_INFO, NOTIFY, PREPARE, UNPREPARE, PREPARE_BETA, UNPREPARE_BETA, WATCH, WATCH_ALPHA];

fuzz_target!(|input: &[u8]| {
    let [method, framing, rest @ ..] = input else { return };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    // One in four bodies is no message in a frame.
    let is_framed = framing % 4 != 3;
    let body = if is_framed { framed(rest) } else { rest.to_vec() };
    WORLD.with(|world| {
        let call = world.call(method, body);
        let answer = world.runtime.block_on(async {
            tokio::time::timeout(LONG, call).await.unwrap_or_else(|_| panic!("no answer"))
        });
        if is_framed {
            check(method, rest, &answer);
        }
    });
});

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("libFuzzer's inputs are short");
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// What came back: the gRPC status, and the first message.
struct Answer {
    status: String,
    message: Vec<u8>,
}

/// A request that can be decoded is answered, and each of its claims; another is refused.
fn check(method: Method, request: &[u8], answer: &Answer) {
    let ok = answer.status == "0";
    let error_of = |error: String| (!error.is_empty()).then_some(error);
    let (asked, answered): (_, BTreeMap<String, Option<String>>) = match method {
        PREPARE | PREPARE_BETA => {
            // The request has the same form in both versions.
            let asked = v1::NodePrepareResourcesRequest::decode(request).map(|r| r.claims);
            let message = answer.message.as_slice();
            let answered = if method == PREPARE {
                let answer = v1::NodePrepareResourcesResponse::decode(message).expect("an answer");
                answer.claims.into_iter().map(|(uid, a)| (uid, error_of(a.error))).collect()
            } else {
                let answer =
                    v1beta1::NodePrepareResourcesResponse::decode(message).expect("an answer");
                answer.claims.into_iter().map(|(uid, a)| (uid, error_of(a.error))).collect()
            };
            (asked, answered)
        }
        UNPREPARE | UNPREPARE_BETA => {
            let asked = v1::NodeUnprepareResourcesRequest::decode(request).map(|r| r.claims);
            let message = answer.message.as_slice();
            let answer = v1::NodeUnprepareResourcesResponse::decode(message).expect("an answer");
            let answered = answer.claims.into_iter();
            (asked, answered.map(|(uid, a)| (uid, error_of(a.error))).collect())
        }
        _ => return,
    };
    let Ok(asked) = asked else {
        assert!(!ok, "nonsense was answered");
        return;
    };
    assert!(ok, "status {}", answer.status);
    let uids: BTreeSet<&String> = asked.iter().map(|claim| &claim.uid).collect();
    assert_eq!(uids, answered.keys().collect(), "each claim has its answer, and no other");
    for (uid, error) in &answered {
        let good = ClaimUid::new(uid).is_ok_and(|uid| !is_refused(&uid));
        assert_eq!(good, error.is_none(), "{uid:?}: {error:?}");
    }
}

/// Claims that the service below doesn't like.
fn is_refused(uid: &ClaimUid) -> bool {
    uid.as_str().ends_with('f')
}

thread_local! {
    static WORLD: World = World::start();
}

/// A server with both its sockets, and a connection to each.
struct World {
    runtime: Runtime,
    registration: Channel,
    service: Channel,
    _server: Server,
}

impl World {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let root = scratch::folder("grpc");
        std::fs::create_dir_all(root.join("plugins_registry")).expect("a place for sockets");
        let driver = DriverName::new("gpu.nvidia.com").expect("a name");
        let paths = Paths::new(&root, &driver, None).expect("short paths");
        let (registration, service, server) = runtime.block_on(async {
            let server = Server::start(paths.clone(), Arc::new(Claims::new())).await;
            let server = server.expect("the sockets are free");
            let dial = |path: &std::path::Path| {
                let endpoint = Endpoint::from_shared(format!("unix://{}", path.display()));
                endpoint.expect("a socket's path").connect_lazy()
            };
            (dial(paths.registration()), dial(paths.service()), server)
        });
        Self { runtime, registration, service, _server: server }
    }

    fn call(&self, method: Method, body: Vec<u8>) -> impl Future<Output = Answer> + use<> {
        let (socket, path) = method;
        let mut channel = match socket {
            Socket::Registration => self.registration.clone(),
            Socket::Service => self.service.clone(),
        };
        async move {
            let request = Request::post(path)
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Body::new(Full::new(Bytes::from(body))))
                .expect("a request");
            let channel = channel.ready().await.expect("a connection");
            let response = channel.call(request).await.expect("a response");
            let (head, mut body) = response.into_parts();
            let (mut message, mut status) = (Vec::new(), status(&head.headers));
            while let Some(frame) = body.frame().await {
                // Whoever broke the stream off: it has no status, so it is a refusal.
                let Ok(frame) = frame else { break };
                if let Some(data) = frame.data_ref() {
                    message.extend_from_slice(data);
                    // The next list of health comes after ten seconds.
                    if method == WATCH || method == WATCH_ALPHA {
                        break;
                    }
                } else if let Some(trailers) = frame.trailers_ref() {
                    status = self::status(trailers);
                }
            }
            let message = message.get(FRAME..).unwrap_or_default().to_vec();
            Answer { status: status.unwrap_or_default(), message }
        }
    }
}

fn status(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("grpc-status")?.to_str().ok()?.to_owned())
}

/// Answers each claim, and has none twice in one call.
struct Claims {
    health: watch::Sender<Arc<Vec<DeviceHealth>>>,
}

impl Claims {
    fn new() -> Self {
        let device = DeviceHealth {
            pool: pool(),
            device: device(),
            state: HealthState::Unhealthy,
            last_updated: UNIX_EPOCH,
            message: "Xid 79".to_owned(),
        };
        Self { health: watch::Sender::new(Arc::new(vec![device])) }
    }
}

impl ClaimService for Claims {
    async fn prepare(
        &self,
        claims: Vec<ClaimRef>,
    ) -> Vec<(ClaimUid, Result<Vec<PreparedDevice>, String>)> {
        each(claims, |claim| {
            let cdi = format!("k8s.gpu.nvidia.com/claim={}-gpu-0", claim.uid);
            vec![PreparedDevice {
                request_names: vec![RequestName::new("gpu").expect("a name")],
                pool: pool(),
                device: device(),
                cdi_ids: vec![CdiDeviceId::new(cdi).expect("a name")],
                share_id: None,
            }]
        })
    }

    async fn unprepare(&self, claims: Vec<ClaimRef>) -> Vec<(ClaimUid, Result<(), String>)> {
        each(claims, |_| ())
    }

    fn health(&self) -> watch::Receiver<Arc<Vec<DeviceHealth>>> {
        self.health.subscribe()
    }
}

fn each<T>(
    claims: Vec<ClaimRef>,
    answer: impl Fn(&ClaimRef) -> T,
) -> Vec<(ClaimUid, Result<T, String>)> {
    let uids: BTreeSet<_> = claims.iter().map(|claim| &claim.uid).collect();
    assert_eq!(uids.len(), claims.len(), "a claim twice");
    let answer = |claim: ClaimRef| {
        let answer = if is_refused(&claim.uid) { Err(String::new()) } else { Ok(answer(&claim)) };
        (claim.uid, answer)
    };
    claims.into_iter().map(answer).collect()
}

fn pool() -> PoolName {
    PoolName::new("node-1").expect("a name")
}

fn device() -> DeviceName {
    DeviceName::new("gpu-0").expect("a name")
}
