//! `/healthz` and `/readyz` over plain HTTP/1.1, for the kubelet's probes.
//!
//! It answers from what others say and does nothing itself.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::readiness::Readiness;

/// Answers until the task is dropped.
///
/// # Errors
/// When the address can't be listened on.
pub async fn serve(address: SocketAddr, readiness: Arc<Readiness>) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "probe connection not accepted");
                continue;
            }
        };
        let readiness = Arc::clone(&readiness);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = respond(&request, &readiness);
                async move { Ok::<_, Infallible>(response) }
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

fn respond(request: &Request<Incoming>, readiness: &Readiness) -> Response<String> {
    let (status, text) = match request.uri().path() {
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => {
            let report = readiness.report();
            let status =
                if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, report.to_string())
        }
        _ => (StatusCode::NOT_FOUND, "only /healthz and /readyz are here\n".to_owned()),
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response
}
