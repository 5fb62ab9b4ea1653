//! Requests to the API server, counted by verb, resource and answer: writes of slices above all.

use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gpu_dra_metrics::client::metrics::counter::Counter;
use gpu_dra_metrics::client::metrics::family::Family;
use gpu_dra_metrics::client::registry::Registry;
use http::{Method, Request, Response, Uri};
use kube::client::Body;
use tower::Service;

type Labels = [(&'static str, String); 3];

/// Requests so far.
#[derive(Debug, Clone, Default)]
pub struct ApiMetrics(Family<Labels, Counter>);

impl ApiMetrics {
    pub(super) fn register(&self, page: &mut Registry) {
        page.register(
            "api_requests",
            "Requests to the API server by verb, resource and HTTP status; code none: it did \
             not answer. Reading claims for the kubelet's calls is not among them",
            self.0.clone(),
        );
    }

    /// A client whose requests are counted. Needs a runtime.
    #[must_use]
    pub fn counted(&self, client: kube::Client) -> kube::Client {
        let namespace = client.default_namespace().to_owned();
        kube::Client::new(Counting { client, requests: self.0.clone() }, namespace)
    }
}

struct Counting {
    client: kube::Client,
    requests: Family<Labels, Counter>,
}

impl Service<Request<Body>> for Counting {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (verb, resource) = meaning(request.method(), request.uri());
        let (client, requests) = (self.client.clone(), self.requests.clone());
        let count = move |answer: &Result<Response<Body>, kube::Error>| {
            let code = match answer {
                Ok(response) => response.status().as_u16().to_string(),
                Err(_) => "none".to_owned(),
            };
            let labels = [("verb", verb.to_owned()), ("resource", resource), ("code", code)];
            requests.get_or_create(&labels).inc();
        };
        async move {
            let answer = client.send(request).await;
            count(&answer);
            answer
        }
        .boxed()
    }
}

/// Kubernetes' verb and the resource of a request.
fn meaning(method: &Method, uri: &Uri) -> (&'static str, String) {
    let mut path = uri.path().split('/').filter(|part| !part.is_empty());
    // api/VERSION or apis/GROUP/VERSION
    let skip = if path.next() == Some("apis") { 2 } else { 1 };
    let mut rest: Vec<_> = path.skip(skip).collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let is_watch = uri.query().is_some_and(|query| query.split('&').any(|q| q == "watch=true"));
    let verb = match (method.as_str(), rest.len()) {
        ("GET", _) if is_watch => "watch",
        ("GET", 0 | 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        _ => "other",
    };
    (verb, rest.first().copied().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_kubernetes_verbs() {
        let slices = "/apis/resource.k8s.io/v1/resourceslices";
        for (method, uri, verb, resource) in [
            (Method::GET, format!("{slices}?fieldSelector=x"), "list", "resourceslices"),
            (Method::GET, format!("{slices}?watch=true&x=y"), "watch", "resourceslices"),
            (Method::POST, format!("{slices}?"), "create", "resourceslices"),
            (Method::PUT, format!("{slices}/node-a-1"), "update", "resourceslices"),
            (Method::DELETE, format!("{slices}/node-a-1"), "delete", "resourceslices"),
            (Method::GET, "/api/v1/nodes/node-a".to_owned(), "get", "nodes"),
            (Method::GET, "/api/v1/namespaces".to_owned(), "list", "namespaces"),
            (Method::GET, "/api/v1/namespaces/a".to_owned(), "get", "namespaces"),
            (Method::POST, "/api/v1/namespaces/a/events".to_owned(), "create", "events"),
            (
                Method::PATCH,
                "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c/status".to_owned(),
                "patch",
                "resourceclaims",
            ),
            (Method::GET, "/".to_owned(), "list", ""),
        ] {
            let meant = meaning(&method, &uri.parse().unwrap());
            assert_eq!(meant, (verb, resource.to_owned()), "{method} {uri}");
        }
    }
}
