//! GpuClasses and ValidatingWebhookConfigurations: list, watch, get and server-side apply, as
//! far as the controller uses them. Apply takes what it is given, by its single writer's word.

use std::collections::BTreeMap;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// Where the two kinds are.
pub(crate) const GPU_CLASSES: &str = "/apis/gpu-dra.io/v1alpha1/gpuclasses";
pub(crate) const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

struct Watcher {
    kind: &'static str,
    name: Option<String>,
    sender: UnboundedSender<Result<Bytes, std::io::Error>>,
}

/// The store.
#[derive(Default)]
pub(crate) struct Extra {
    version: u64,
    objects: BTreeMap<(&'static str, String), Value>,
    history: Vec<(u64, &'static str, Value)>,
    watchers: Vec<Watcher>,
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

fn has_name(event: &Value, name: Option<&str>) -> bool {
    name.is_none_or(|name| event["object"]["metadata"]["name"] == name)
}

impl Extra {
    /// The kind under a path, and the rest of the path.
    pub(crate) fn route(path: &str) -> Option<(&'static str, &str)> {
        [GPU_CLASSES, WEBHOOKS].into_iter().find_map(|kind| {
            let rest = path.strip_prefix(kind)?;
            Some((kind, rest.strip_prefix('/').unwrap_or(rest)))
        })
    }

    pub(crate) fn get(&self, kind: &'static str, name: &str) -> Option<Value> {
        self.objects.get(&(kind, name.to_owned())).cloned()
    }

    /// Stores an object as a person would: a new UID, or another generation.
    pub(crate) fn put(&mut self, kind: &'static str, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let old = self.get(kind, &name);
        let metadata = &mut object["metadata"];
        let (uid, generation) = match &old {
            Some(old) => (
                old["metadata"]["uid"].clone(),
                old["metadata"]["generation"].as_i64().unwrap() + 1,
            ),
            None => (json!(format!("uid-{}", self.version + 1)), 1),
        };
        metadata["uid"] = uid;
        metadata["generation"] = json!(generation);
        if let Some(old) = &old
            && let Some(status) = old.get("status")
        {
            object["status"] = status.clone();
        }
        self.store(kind, name, object, old.is_some());
    }

    fn store(&mut self, kind: &'static str, name: String, mut object: Value, existed: bool) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert((kind, name), object.clone());
        let event = if existed { "MODIFIED" } else { "ADDED" };
        self.tell(kind, json!({"type": event, "object": object}));
    }

    pub(crate) fn delete(&mut self, kind: &'static str, name: &str) {
        let mut object = self.objects.remove(&(kind, name.to_owned())).unwrap();
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.tell(kind, json!({"type": "DELETED", "object": object}));
    }

    fn tell(&mut self, kind: &'static str, event: Value) {
        self.watchers.retain(|watcher| {
            let is_for = watcher.kind == kind && has_name(&event, watcher.name.as_deref());
            !is_for || watcher.sender.unbounded_send(Ok(line(&event))).is_ok()
        });
        self.history.push((self.version, kind, event));
    }

    /// Ends all watches.
    pub(crate) fn cut(&mut self) {
        self.watchers.clear();
    }

    pub(crate) fn list(&self, kind: &'static str, name: Option<&str>) -> Response<Body> {
        let (api_version, list) = match kind {
            GPU_CLASSES => ("gpu-dra.io/v1alpha1", "GpuClassList"),
            _ => ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfigurationList"),
        };
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|((k, n), _)| *k == kind && name.is_none_or(|name| name == n))
            .map(|(_, object)| object)
            .collect();
        answer(
            200,
            &json!({
                "apiVersion": api_version, "kind": list,
                "metadata": {"resourceVersion": self.version.to_string()}, "items": items,
            }),
        )
    }

    pub(crate) fn watch(
        &mut self,
        kind: &'static str,
        name: Option<String>,
        from: u64,
    ) -> Response<Body> {
        let (sender, receiver) = unbounded();
        for (version, k, event) in &self.history {
            if *version > from && *k == kind && has_name(event, name.as_deref()) {
                sender.unbounded_send(Ok(line(event))).unwrap();
            }
        }
        self.watchers.push(Watcher { kind, name, sender });
        Response::new(Body::from_stream(receiver.boxed()))
    }

    /// Server-side apply of a status, or of certificates by the webhook's name.
    pub(crate) fn apply(
        &mut self,
        kind: &'static str,
        rest: &str,
        patch: &Value,
    ) -> Response<Body> {
        let (name, is_status) = match rest.split_once('/') {
            Some((name, "status")) => (name, true),
            _ => (rest, false),
        };
        let Some(mut object) = self.get(kind, name) else {
            return answer(404, &failure(404, "NotFound", "not found"));
        };
        for field in ["uid", "resourceVersion"] {
            let given = &patch["metadata"][field];
            if !given.is_null() && *given != object["metadata"][field] {
                return answer(409, &failure(409, "Conflict", "the object has been modified"));
            }
        }
        if is_status {
            object["status"] = patch["status"].clone();
        } else {
            for given in patch["webhooks"].as_array().unwrap() {
                let hooks = object["webhooks"].as_array_mut().unwrap();
                let hook = hooks.iter_mut().find(|hook| hook["name"] == given["name"]).unwrap();
                hook["clientConfig"]["caBundle"] = given["clientConfig"]["caBundle"].clone();
            }
        }
        if self.get(kind, name).as_ref() != Some(&object) {
            self.store(kind, name.to_owned(), object, true);
        }
        answer(200, &self.get(kind, name).unwrap())
    }
}

pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
           "reason": reason, "message": message})
}

pub(crate) fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
