//! Serves the API on a loopback address, and can stop as a machine that goes away: all connections cut.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::Service;
use crate::api::ApiServer;

/// A listening API server. Dropped or stopped, it cuts all connections; the objects stay in their `ApiServer`.
#[derive(Debug)]
pub struct Listener {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens on `addr` (port 0: any free one).
    ///
    /// # Errors
    /// `InvalidInput` for an address that isn't loopback, else those of binding.
    pub async fn start(server: Arc<ApiServer>, addr: SocketAddr) -> io::Result<Self> {
        if !addr.ip().is_loopback() {
            let why =
                format!("{addr} is no loopback address: this API server has no access control");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, Service::new(server)));
        Ok(Self { addr, task })
    }

    /// A kubeconfig for clients of this API.
    #[must_use]
    pub fn kubeconfig_yaml(&self) -> String {
        kubeconfig_yaml(self.addr)
    }

    /// The address with the port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A kubeconfig for clients of an API that listens on `addr`.
pub(crate) fn kubeconfig_yaml(addr: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: lab\n  cluster:\n    server: http://{addr}\nusers:\n- name: lab\n  user: {{}}\ncontexts:\n- name: lab\n  context:\n    cluster: lab\n    user: lab\ncurrent-context: lab\n"
    )
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, service: Service) {
    // Owns the connections: aborting this task aborts them.
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(err) => {
                tracing::warn!(%err, "the API server can't accept a connection; trying again in 100 ms");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Err(err) = stream.set_nodelay(true) {
            tracing::debug!(%err, "connection gone before it was served");
        }
        let service = TowerToHyperService::new(service.clone());
        connections.spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            if let Err(err) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::trace!(%err, "connection ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}
