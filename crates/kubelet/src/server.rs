//! The two sockets from start to stop. The order is the point: the service socket is there
//! before the kubelet can be told of it, and the kubelet is sent away before it goes.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::transport::Server as TonicServer;

use crate::paths::Paths;
use crate::proto::registration::registration_server::RegistrationServer;
use crate::registration::{self, Registrar, RegistrationState};
use crate::route::ServiceSocket;
use crate::service::ClaimService;
use crate::socket::{self, OwnSocket, SocketError};

/// How long connections get to close once their calls are done. Only a client that doesn't
/// answer HTTP/2 needs it all.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// A driver's two sockets, served until [`stop`](Self::stop).
///
/// Dropped without it, it serves no more and leaves its socket files behind, as a kill
/// would; the next instance removes them.
#[derive(Debug)]
pub struct Server {
    registration: Serving,
    service: Serving,
    state: watch::Receiver<RegistrationState>,
    running: TaskTracker,
}

#[derive(Debug)]
struct Serving {
    socket: OwnSocket,
    /// Dropped to end it.
    stop: DropGuard,
    /// Cancelled by the task's end, whatever ends it.
    ended: CancellationToken,
}

/// How [`Server::stop`] went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// All calls were finished.
    Drained,
    /// So many calls are still running.
    StillRunning(usize),
}

impl Server {
    /// Removes what dead instances left, listens on both sockets of `paths`, and serves.
    ///
    /// Must be called in a tokio runtime. The registration directory must exist: the
    /// kubelet makes it, and without it the root is wrong.
    ///
    /// # Errors
    /// When a socket can't be made, or another live instance has it.
    pub async fn start<S: ClaimService>(
        paths: Paths,
        service: Arc<S>,
    ) -> Result<Self, SocketError> {
        socket::sweep(paths.registration(), |name| paths.is_registration_name(name)).await?;
        socket::create_directory(paths.service())?;
        socket::sweep(paths.service(), |name| paths.is_service_name(name)).await?;

        let running = TaskTracker::new();
        let (socket, listener) = OwnSocket::bind(paths.service()).await?;
        let service = Serving::start(socket, listener, |stop| {
            ServiceSocket::new(service, running.clone(), stop)
        });
        let (socket, listener) = match OwnSocket::bind(paths.registration()).await {
            Ok(bound) => bound,
            Err(error) => {
                service.socket.unlink();
                return Err(error);
            }
        };
        let (registrar, state) = Registrar::new(paths.clone());
        let registration =
            Serving::start(socket, listener, |_stop| RegistrationServer::new(registrar));
        tracing::info!(
            registration = %paths.registration().display(),
            service = %paths.service().display(),
            "waiting for the kubelet"
        );
        tokio::spawn(registration::report(state.clone(), paths));
        Ok(Self { registration, service, state, running })
    }

    /// Where we stand with the kubelet.
    #[must_use]
    pub fn registration(&self) -> watch::Receiver<RegistrationState> {
        self.state.clone()
    }

    /// Waits until a socket is no longer served, which should not happen before
    /// [`stop`](Self::stop): the process should then end, to be started again.
    pub async fn failed(&self) {
        tokio::select! {
            () = self.registration.ended.cancelled() => {}
            () = self.service.ended.cancelled() => {}
        }
    }

    /// Ends in the order that spares the kubelet: the registration socket goes, so that it
    /// calls no more; running calls get `drain` to finish; then the service socket goes.
    /// Calls that take longer are not broken off, they end with the process.
    pub async fn stop(self, drain: Duration) -> Stopped {
        self.registration.socket.unlink();
        drop(self.registration.stop);
        // No new connections, GOAWAY on the old ones, health streams end.
        drop(self.service.stop);
        self.running.close();
        let drained = tokio::time::timeout(drain, self.running.wait()).await.is_ok();
        let closed = futures::future::join(
            self.registration.ended.cancelled(),
            self.service.ended.cancelled(),
        );
        if drained && tokio::time::timeout(CLOSE_WAIT, closed).await.is_err() {
            tracing::warn!("a client keeps its connection open, leaving without it");
        }
        self.service.socket.unlink();
        if drained { Stopped::Drained } else { Stopped::StillRunning(self.running.len()) }
    }
}

impl Serving {
    fn start<V, F>(
        socket: OwnSocket,
        listener: UnixListener,
        service: impl FnOnce(CancellationToken) -> V,
    ) -> Self
    where
        V: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = F>
            + Clone
            + Send
            + 'static,
        F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    {
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        let server = TonicServer::builder()
            // Requests are a few hundred bytes: no client may make us hold megabytes.
            .initial_stream_window_size(64 * 1024)
            .initial_connection_window_size(256 * 1024)
            .serve_with_incoming_shutdown(
                service(stop.clone()),
                socket::connections(listener),
                stop.clone().cancelled_owned(),
            );
        let end = ended.clone().drop_guard();
        tokio::spawn(async move {
            let _end = end;
            if let Err(error) = server.await {
                tracing::error!(%error, "a socket is no longer served");
            }
        });
        Self { socket, stop: stop.drop_guard(), ended }
    }
}
