//! As much of an API server as the publisher needs: resourceslices with list, watch,
//! create, replace and delete, and one Node. A fault hook sees every request first.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use serde_json::{Value, json};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// What happens to a request instead of, or besides, being served.
pub(crate) enum Fault {
    /// This status, with a Status object; nothing is done.
    Answer(u16, Value),
    /// Nothing is done and the connection breaks.
    Unreachable,
    /// It is done, but the connection breaks before the answer.
    AnswerLost,
    /// It is done after the object was changed like this.
    Rewrite(fn(&mut Value)),
    /// No answer, ever.
    Hang,
}

/// A request as the hook and the log see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
}

type Hook = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

#[derive(Default)]
struct State {
    version: u64,
    compacted: u64,
    slices: BTreeMap<String, Value>,
    node_uid: Option<String>,
    history: Vec<(u64, Value)>,
    watchers: Vec<UnboundedSender<Result<Bytes, String>>>,
    calls: Vec<Call>,
    hook: Option<Hook>,
}

#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

impl Server {
    pub(crate) fn new() -> Self {
        let server = Self::default();
        server.state().node_uid = Some("node-uid-1".to_owned());
        server
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { server.serve(request).await }
        });
        Client::new(service, "default")
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// From now on this decides about each request.
    pub(crate) fn on_call(&self, hook: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        self.state().hook = Some(Box::new(hook));
    }

    pub(crate) fn heal(&self) {
        self.state().hook = None;
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Verbs of the requests since the last call of this, e.g. `list get create watch`.
    pub(crate) fn take_verbs(&self) -> Vec<&'static str> {
        self.state().calls.drain(..).map(|call| call.verb).collect()
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        self.state().slices.values().cloned().collect()
    }

    pub(crate) fn set_node(&self, uid: Option<&str>) {
        self.state().node_uid = uid.map(str::to_owned);
    }

    /// All watches end, as by a restarted server.
    pub(crate) fn cut_watches(&self) {
        self.state().watchers.clear();
    }

    pub(crate) fn watches(&self) -> usize {
        let mut state = self.state();
        state.watchers.retain(|watcher| !watcher.is_closed());
        state.watchers.len()
    }

    /// Forgets the past: older resource versions are gone, and running watches end so.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.compacted = state.version;
        state.history.clear();
        let gone = json!({"type": "ERROR", "object": status(410, "Expired")});
        for watcher in std::mem::take(&mut state.watchers) {
            let _closed = watcher.unbounded_send(Ok(line(&gone)));
        }
    }

    /// Someone else deletes all slices, as a starting kubelet does.
    pub(crate) fn wipe(&self) {
        let mut state = self.state();
        let names: Vec<_> = state.slices.keys().cloned().collect();
        for name in names {
            state.remove(&name);
        }
    }

    /// Someone else changes a slice.
    pub(crate) fn modify(&self, change: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        let (name, mut slice) = state.slices.first_key_value().unwrap().into_own();
        change(&mut slice);
        state.put(&name, slice, "MODIFIED");
    }

    /// Someone else creates a slice.
    pub(crate) fn put(&self, name: &str, mut slice: Value) {
        let mut state = self.state();
        slice["metadata"]["uid"] = format!("uid-{name}").into();
        slice["metadata"]["name"] = name.into();
        state.put(name, slice, "ADDED");
    }

    async fn serve(&self, request: Request<kube::client::Body>) -> Result<Response<Body>, String> {
        let (parts, body) = request.into_parts();
        let body: Bytes = body.collect_bytes().await.map_err(|error| error.to_string())?;
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let path = parts.uri.path().to_owned();
        let collection = path == SLICES;
        let verb = match parts.method {
            Method::GET if collection && query.contains("watch=true") => "watch",
            Method::GET if collection => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::DELETE => "delete",
            other => panic!("the publisher never calls {other} {path}"),
        };
        let call = Call { verb, path, query };
        let fault = {
            let mut state = self.state();
            state.calls.push(call.clone());
            state.hook.as_mut().and_then(|hook| hook(&call))
        };
        let mut object: Value = serde_json::from_slice(&body).unwrap_or_default();
        match fault {
            Some(Fault::Answer(code, mut answer)) => {
                answer["code"] = code.into();
                return Ok(respond(code, &answer));
            }
            Some(Fault::Unreachable) => return Err("connection refused".to_owned()),
            Some(Fault::Hang) => match std::future::pending::<Infallible>().await {},
            Some(Fault::Rewrite(change)) => change(&mut object),
            Some(Fault::AnswerLost) => {
                let _lost = self.state().handle(&call, object);
                return Err("connection reset".to_owned());
            }
            None => {}
        }
        Ok(self.state().handle(&call, object))
    }
}

impl State {
    fn handle(&mut self, call: &Call, object: Value) -> Response<Body> {
        let name = call.path.rsplit('/').next().unwrap_or_default().to_owned();
        match call.verb {
            "list" => respond(200, &self.list()),
            "watch" => self.watch(&call.query),
            "get" => match &self.node_uid {
                Some(uid) => respond(
                    200,
                    &json!({"apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": name, "uid": uid}}),
                ),
                None => respond(404, &status(404, "NotFound")),
            },
            "create" => {
                self.version += 1;
                let base = object["metadata"]["generateName"].as_str().unwrap();
                let name = format!("{base}{:05}", self.version);
                let mut object = object;
                object["metadata"]["name"] = name.clone().into();
                object["metadata"]["uid"] = format!("uid-{}", self.version).into();
                respond(201, &self.put(&name, object, "ADDED"))
            }
            "update" => match self.slices.get(&name) {
                None => respond(404, &status(404, "NotFound")),
                Some(old) if version_of(old) != version_of(&object) => {
                    respond(409, &status(409, "Conflict"))
                }
                Some(_) => respond(200, &self.put(&name, object, "MODIFIED")),
            },
            "delete" => match self.slices.get(&name) {
                None => respond(404, &status(404, "NotFound")),
                Some(old) => {
                    let wanted = &object["preconditions"];
                    if wanted["uid"] != old["metadata"]["uid"]
                        || wanted["resourceVersion"] != old["metadata"]["resourceVersion"]
                    {
                        return respond(409, &status(409, "Conflict"));
                    }
                    self.remove(&name);
                    respond(200, &json!({"kind": "Status", "status": "Success"}))
                }
            },
            other => panic!("{other}"),
        }
    }

    fn list(&self) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSliceList",
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": self.slices.values().collect::<Vec<_>>(),
        })
    }

    fn watch(&mut self, query: &str) -> Response<Body> {
        let since = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let since: u64 = since.unwrap().parse().unwrap();
        let (sender, receiver) = unbounded();
        if since < self.compacted {
            let gone = json!({"type": "ERROR", "object": status(410, "Expired")});
            sender.unbounded_send(Ok(line(&gone))).unwrap();
        } else {
            for (_, event) in self.history.iter().filter(|(version, _)| *version > since) {
                sender.unbounded_send(Ok(line(event))).unwrap();
            }
            self.watchers.push(sender);
        }
        Response::new(Body::from_stream(receiver.map(|item: Result<Bytes, String>| item)))
    }

    fn put(&mut self, name: &str, mut slice: Value, kind: &str) -> Value {
        self.version += 1;
        slice["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.slices.insert(name.to_owned(), slice.clone());
        self.tell(kind, slice.clone());
        slice
    }

    fn remove(&mut self, name: &str) {
        self.version += 1;
        let mut slice = self.slices.remove(name).unwrap();
        slice["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.tell("DELETED", slice);
    }

    fn tell(&mut self, kind: &str, slice: Value) {
        let event = json!({"type": kind, "object": slice});
        self.watchers.retain(|watcher| watcher.unbounded_send(Ok(line(&event))).is_ok());
        self.history.push((self.version, event));
    }
}

trait IntoOwned {
    fn into_own(self) -> (String, Value);
}

impl IntoOwned for (&String, &Value) {
    fn into_own(self) -> (String, Value) {
        (self.0.clone(), self.1.clone())
    }
}

pub(crate) fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": reason})
}

fn version_of(slice: &Value) -> &Value {
    &slice["metadata"]["resourceVersion"]
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

fn respond(code: u16, answer: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
