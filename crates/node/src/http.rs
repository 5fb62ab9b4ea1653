//! `/healthz`, `/readyz` and `/metrics` over plain HTTP/1.1, for the kubelet's probes and for
//! Prometheus.
//!
//! It answers from what others say and does nothing itself.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use gpu_dra_metrics::CONTENT_TYPE;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::metrics::Scrape;
use crate::readiness::Report;
use crate::run::NodeError;

/// Says how things stand.
pub type Ask = Arc<dyn Fn() -> Report + Send + Sync>;

/// Answers until the task is dropped. Without `scrape` there are no metrics.
///
/// # Errors
/// When the address can't be listened on.
pub async fn serve(
    address: SocketAddr,
    readiness: Ask,
    scrape: Option<Arc<Scrape>>,
) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "probe connection not accepted");
                continue;
            }
        };
        let (readiness, scrape) = (Arc::clone(&readiness), scrape.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let (readiness, scrape) = (Arc::clone(&readiness), scrape.clone());
                async move {
                    let path = request.uri().path();
                    Ok::<_, Infallible>(respond(path, &readiness, scrape.as_ref()).await)
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .max_buf_size(8 * 1024)
                .serve_connection(TokioIo::new(stream), answer);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "probe connection ended");
            }
        });
    }
}

/// The same where there is an address; else nothing, for ever. Ends only by an error.
pub(crate) async fn serve_for_ever(
    address: Option<SocketAddr>,
    readiness: Ask,
    scrape: Option<Arc<Scrape>>,
) -> NodeError {
    let Some(address) = address else { return std::future::pending().await };
    match serve(address, readiness, scrape).await {
        Err(source) => NodeError::Http { address, source },
        Ok(()) => NodeError::Ended("the probe endpoint"),
    }
}

async fn respond(path: &str, ask: &Ask, scrape: Option<&Arc<Scrape>>) -> Response<String> {
    let status = |is_well| match is_well {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    match (path, scrape) {
        ("/healthz", _) => {
            let stuck = ask().stuck;
            plain(status(stuck.is_none()), stuck.unwrap_or_else(|| "ok".to_owned()) + "\n")
        }
        ("/readyz", _) => {
            let report = ask();
            plain(status(report.ready), report.to_string())
        }
        ("/metrics", Some(scrape)) => match scrape.text().await {
            Ok(text) => {
                let mut response = plain(StatusCode::OK, text);
                let kind = HeaderValue::from_static(CONTENT_TYPE);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
            Err(error) => {
                tracing::error!(%error, "no metrics");
                plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
            }
        },
        ("/metrics", None) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "nothing is measured yet\n".to_owned())
        }
        _ => {
            let here = "only /healthz, /readyz and /metrics are here\n".to_owned();
            plain(StatusCode::NOT_FOUND, here)
        }
    }
}

fn plain(status: StatusCode, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response
}
