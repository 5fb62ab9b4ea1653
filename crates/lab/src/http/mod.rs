//! The API over HTTP: a tower service, and a listener that serves it on a loopback address.
//! Here requests become calls of `ApiServer` and its answers become responses; nothing is decided here but
//! which form an answer takes.

mod answer;
mod discovery;
mod listen;
mod openapi;
mod read;
mod request;
mod table;
mod write;

pub use listen::Listener;
pub(crate) use listen::kubeconfig_yaml;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};

use crate::api::ApiServer;
use crate::error::ApiError;
use request::Route;

/// Largest request body; the real server's limit is 3 MiB.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// The API server as a tower service, for `kube::Client::new` and for HTTP alike.
#[derive(Debug, Clone)]
pub struct Service {
    server: Arc<ApiServer>,
}

impl Service {
    /// A service that answers from `server`.
    #[must_use]
    pub fn new(server: Arc<ApiServer>) -> Self {
        Self { server }
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(Body::new(body), MAX_BODY).await;
        let done = match body {
            Ok(body) => self.dispatch(&parts, &body).await,
            Err(_) => Err(ApiError::new(
                413,
                "RequestEntityTooLarge",
                "Request entity too large: limit is 3145728",
            )),
        };
        done.unwrap_or_else(|err| answer::error(&err))
    }

    async fn dispatch(
        &self,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, ApiError> {
        refuse_browsers(parts)?;
        let call = match request::route(parts)? {
            Route::Document(path) => return document(&path),
            Route::Call(call) => *call,
        };
        let (verb, resource) = (call.verb, call.resource());
        self.server.requests().count(verb, resource.clone());
        self.server.faults().strike(verb, &resource).await?;
        match call.verb {
            "get" | "list" | "watch" => read::serve(&self.server, &call),
            _ => write::serve(&self.server, &call, body),
        }
    }
}

/// A page in a browser on this machine could reach a loopback port. It can't hide its origin, nor name the
/// host by an address, so both are checked; there is no other protection, as there are no users.
fn refuse_browsers(parts: &http::request::Parts) -> Result<(), ApiError> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let local = host.is_none_or(|host| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        matches!(name, "localhost" | "127.0.0.1" | "[::1]")
    });
    if parts.headers.contains_key(header::ORIGIN) || !local {
        return Err(ApiError::new(403, "Forbidden", "this API server answers no web pages"));
    }
    Ok(())
}

fn document(path: &str) -> Result<Response<Body>, ApiError> {
    if matches!(path, "/healthz" | "/readyz" | "/livez") {
        let text = Response::builder().header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        return text.body(Body::from("ok")).map_err(|err| answer::broken(&err));
    }
    discovery::document(path)
        .or_else(|| openapi::document(path))
        .map(|value| answer::json(StatusCode::OK, &value))
        .ok_or_else(ApiError::no_such_path)
}

impl<B> tower::Service<Request<B>> for Service
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
