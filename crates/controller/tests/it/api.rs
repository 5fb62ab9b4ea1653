//! The API server as clients see it: it can be away, and a hook sees every request first. Each
//! client has a name, so that the log says whose a request was.

use std::io;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use gpu_dra_lab::{ApiServer, Service};
use http::{Method, Request, Response};
use serde_json::Value;
use tokio::sync::Notify;
use tower::ServiceExt;

use super::extra::{Extra, answer, failure};

/// A request as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) by: String,
    pub(crate) verb: &'static str,
    pub(crate) path: String,
}

/// What happens to a request besides being served.
pub(crate) enum Fault {
    /// Served only when this is notified.
    WaitFor(Arc<Notify>),
    /// This status instead of being served.
    Refuse(u16, &'static str),
}

type Hook = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

pub(crate) struct Api {
    pub(crate) lab: Arc<ApiServer>,
    pub(crate) extra: Mutex<Extra>,
    calls: Mutex<Vec<Call>>,
    hook: Mutex<Option<Hook>>,
    is_away: Mutex<bool>,
}

impl Api {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            lab: ApiServer::new().unwrap(),
            extra: Mutex::default(),
            calls: Mutex::default(),
            hook: Mutex::default(),
            is_away: Mutex::default(),
        })
    }

    pub(crate) fn client(self: &Arc<Self>, by: &str) -> kube::Client {
        let (api, by) = (self.clone(), by.to_owned());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (api, by) = (api.clone(), by.clone());
            async move { api.serve(by, request).await }
        });
        kube::Client::new(service, "default")
    }

    /// From now on this decides about each request.
    pub(crate) fn on_call(&self, hook: impl FnMut(&Call) -> Option<Fault> + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// The server stops: watches end, requests fail. What is stored stays.
    pub(crate) fn go(&self) {
        *self.is_away.lock().unwrap() = true;
        self.lab.cut_watches();
        self.extra.lock().unwrap().cut();
    }

    pub(crate) fn come_back(&self) {
        *self.is_away.lock().unwrap() = false;
    }

    /// The requests so far that `filter` wants.
    pub(crate) fn calls(&self, filter: impl Fn(&Call) -> bool) -> Vec<Call> {
        self.calls.lock().unwrap().iter().filter(|call| filter(call)).cloned().collect()
    }

    /// How many requests came so far.
    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    async fn serve(
        &self,
        by: String,
        request: Request<kube::client::Body>,
    ) -> io::Result<Response<Body>> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let pairs: Vec<(String, String)> = serde_query(&query);
        let value =
            |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let path = request.uri().path().to_owned();
        let is_watch = value("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = match *request.method() {
            Method::GET if is_watch => "watch",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        if *self.is_away.lock().unwrap() {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        let call = Call { by, verb, path: path.clone() };
        self.calls.lock().unwrap().push(call.clone());
        let fault = self.hook.lock().unwrap().as_mut().and_then(|hook| hook(&call));
        match fault {
            Some(Fault::WaitFor(notify)) => notify.notified().await,
            Some(Fault::Refuse(code, reason)) => {
                return Ok(answer(code, &failure(code, reason, "as ordered")));
            }
            None => {}
        }
        let Some((kind, rest)) = Extra::route(&path) else {
            return Ok(Service::new(self.lab.clone()).oneshot(request).await.unwrap());
        };
        let name = value("fieldSelector")
            .and_then(|selector| selector.strip_prefix("metadata.name=").map(str::to_owned));
        let body = axum::body::to_bytes(Body::new(request.into_body()), usize::MAX).await.unwrap();
        Ok(self.extra(kind, rest, verb, name, value("resourceVersion"), &body))
    }

    fn extra(
        &self,
        kind: &'static str,
        rest: &str,
        verb: &str,
        name: Option<String>,
        version: Option<String>,
        body: &Bytes,
    ) -> Response<Body> {
        let mut extra = self.extra.lock().unwrap();
        match verb {
            "watch" => {
                let from = version.and_then(|version| version.parse().ok()).unwrap_or_default();
                extra.watch(kind, name, from)
            }
            "get" if rest.is_empty() => extra.list(kind, name.as_deref()),
            "patch" => {
                let patch: Value = serde_json::from_slice(body).unwrap();
                extra.apply(kind, rest, &patch)
            }
            verb => answer(405, &failure(405, "MethodNotAllowed", verb)),
        }
    }
}

/// The pairs of a query, decoded.
fn serde_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let hex = |b: Option<u8>| char::from(b.unwrap()).to_digit(16).unwrap() as u8;
            match byte {
                b'%' => bytes.push(hex(rest.next()) * 16 + hex(rest.next())),
                b'+' => bytes.push(b' '),
                byte => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key), decode(value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}
