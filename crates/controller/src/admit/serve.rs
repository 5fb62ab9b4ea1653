//! The webhook over HTTPS, and the probes over HTTP. Nothing is decided here.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use gpu_dra_model::DriverName;
use tokio::sync::watch;

use super::review::review;

/// A review holds the object twice at most, and the API takes objects of 1.5 MiB.
const MAX_BODY: usize = 4 << 20;

/// How long a client may take for its first request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The path of the webhook.
pub const PATH: &str = "/validate-resource-claim-parameters";

/// Binds an address, so that a port in use is told at the start.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the webhook.
pub(crate) async fn webhook(
    listener: TcpListener,
    tls: RustlsConfig,
    driver: DriverName,
) -> std::io::Result<()> {
    let router = Router::new()
        .route(PATH, post(answer))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new(driver));
    let server = axum_server::from_tcp_rustls(listener, tls)?;
    server.first_request_timeout(PATIENCE).serve(router.into_make_service()).await
}

async fn answer(State(driver): State<Arc<DriverName>>, body: Bytes) -> Response {
    match review(&body, &driver) {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Serves `/healthz`, and `/readyz` once the API server may send reviews here. A replica that
/// doesn't lead is as ready as one that does.
pub(crate) async fn probes(
    listener: TcpListener,
    is_ready: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let ready = async |State(ready): State<watch::Receiver<bool>>| {
        if *ready.borrow() {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "the API server doesn't trust the certificate yet")
        }
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .with_state(is_ready);
    axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await
}
