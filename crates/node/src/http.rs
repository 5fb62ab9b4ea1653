//! `/healthz`, `/readyz` and `/metrics` over plain HTTP/1.1, for the kubelet's probes and for
//! Prometheus: from the first moment of the process on, whatever it waits for.
//!
//! It answers from what others say and does nothing itself. Every pod of the cluster may be able
//! to connect, so no client gets much time, and all of them together no more than a few sockets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gpu_dra_metrics::CONTENT_TYPE;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::metrics::Scrape;
use crate::readiness::Report;

/// Connections at once. One more ends the oldest: a probe, which takes a moment, then comes
/// through a crowd of clients that only hold on.
const CONNECTIONS: usize = 64;
/// For a client to say what it wants.
const HEADERS: Duration = Duration::from_secs(10);
/// For one connection as a whole: a page of metrics may wait for NVML.
const CONNECTION: Duration = Duration::from_secs(60);
/// After a connection that could not be accepted, mostly for want of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// Says how things stand.
pub type Ask = Arc<dyn Fn() -> Report + Send + Sync>;

/// What can be told at the moment.
#[derive(Clone)]
pub struct Serving {
    /// For the probes.
    pub ask: Ask,
    /// For Prometheus; nothing is measured before the agent has started.
    pub scrape: Option<Arc<Scrape>>,
}

/// Answers until the task is dropped, with what there is to be told then.
pub async fn serve(listener: TcpListener, serving: watch::Receiver<Serving>) {
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "probe connection not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            tracing::debug!("too many probe connections: the oldest is ended");
            oldest.abort();
        }
        let serving = serving.borrow().clone();
        connections.push_back(tokio::spawn(connection(stream, serving)).abort_handle());
    }
}

/// One request: nobody needs a second one on the same connection.
async fn connection(stream: TcpStream, serving: Serving) {
    let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
        let serving = serving.clone();
        async move { Ok::<_, Infallible>(respond(request.uri().path(), &serving).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .keep_alive(false)
        .max_buf_size(8 * 1024)
        .serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "probe connection ended"),
        Err(_) => tracing::debug!("probe connection ended: it took too long"),
    }
}

/// Takes the address, so that a port in use is told at the start.
///
/// # Errors
/// When the address can't be listened on.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

async fn respond(path: &str, serving: &Serving) -> Response<String> {
    let Serving { ask, scrape } = serving;
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn start() -> (SocketAddr, watch::Sender<Serving>) {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ask: Ask = Arc::new(|| Report::starting("waits for NVML", None));
        let (sender, serving) = watch::channel(Serving { ask, scrape: None });
        tokio::spawn(serve(listener, serving));
        (address, sender)
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn who_only_holds_on_keeps_nobody_out() {
        let (address, _sender) = start().await;
        let mut idle = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = get(address, "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
        // The oldest were ended, the newest weren't.
        let mut byte = [0];
        let ended = tokio::time::timeout(Duration::from_secs(5), idle[0].read(&mut byte)).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
        let newest = idle.last_mut().unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(50), newest.read(&mut byte)).await;
        assert!(waits.is_err(), "{waits:?}");
    }

    #[tokio::test]
    async fn what_is_told_is_what_holds_now() {
        let (address, sender) = start().await;
        let answer = get(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains("start: waits for NVML"), "{answer}");
        assert!(get(address, "/metrics").await.starts_with("HTTP/1.1 503"));
        let ask: Ask = Arc::new(|| Report { ready: true, stuck: None, sentences: vec![] });
        sender.send_replace(Serving { ask, scrape: None });
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_ended() {
        let (address, _sender) = start().await;
        let began = tokio::time::Instant::now();
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET /healthz HT").await.unwrap();
        let mut answer = Vec::new();
        drop(silent.read_to_end(&mut answer).await);
        assert!(began.elapsed() <= CONNECTION, "{:?}", began.elapsed());
    }
}
