//! The webhook over HTTPS, and probes and metrics over HTTP. Nothing is decided here.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use gpu_dra_metrics::client::registry::Registry;
use gpu_dra_model::DriverName;
use tokio::sync::watch;

use super::review::review;
use crate::metrics::{Metrics, Verdict};

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
    metrics: Metrics,
) -> std::io::Result<()> {
    let router = Router::new()
        .route(PATH, post(answer))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new((driver, metrics)));
    let server = axum_server::from_tcp_rustls(listener, tls)?;
    server.first_request_timeout(PATIENCE).serve(router.into_make_service()).await
}

async fn answer(State(own): State<Arc<(DriverName, Metrics)>>, body: Bytes) -> Response {
    let (driver, metrics) = &*own;
    match review(&body, driver) {
        Ok(answer) => {
            let is_allowed = answer["response"]["allowed"] == true;
            metrics.reviewed(if is_allowed { Verdict::Allowed } else { Verdict::Denied });
            Json(answer).into_response()
        }
        Err(error) => {
            metrics.reviewed(Verdict::Malformed);
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
    }
}

/// Serves `/healthz`, and `/readyz` once the API server may send reviews here. A replica that
/// doesn't lead is as ready as one that does. And `/metrics`.
pub(crate) async fn probes(
    listener: TcpListener,
    is_ready: watch::Receiver<bool>,
    page: Arc<Registry>,
) -> std::io::Result<()> {
    let metrics = async move || match gpu_dra_metrics::text(&page) {
        Ok(text) => ([(header::CONTENT_TYPE, gpu_dra_metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
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
        .route("/metrics", get(metrics))
        .with_state(is_ready);
    axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn reviews_are_counted_by_what_comes_of_them() {
        let (metrics, page) = Metrics::new();
        let own = Arc::new((DriverName::new("gpu.nvidia.com").unwrap(), metrics));
        let claim = |parameters| {
            let opaque = json!({"driver": "gpu.nvidia.com", "parameters": parameters});
            let spec = json!({"devices": {"config": [{"opaque": opaque}]}});
            let object = json!({"spec": spec});
            json!({"request": {"uid": "u", "kind": {"kind": "ResourceClaim"}, "object": object}})
        };
        let good = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"});
        for body in [claim(good), claim(json!({"kind": "Nonsense"})), json!("no review")] {
            drop(answer(State(Arc::clone(&own)), Bytes::from(body.to_string())).await);
        }
        let text = gpu_dra_metrics::text(&page).unwrap();
        for verdict in ["allowed", "denied", "malformed"] {
            let line = format!("gpu_dra_admission_reviews_total{{verdict=\"{verdict}\"}} 1\n");
            assert!(text.contains(&line), "{text}");
        }
    }
}
