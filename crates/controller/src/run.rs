//! The parts put together: every replica serves admission, one leads and keeps the classes.

use std::net::SocketAddr;
use std::time::Duration;

use gpu_dra_model::DriverName;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use crate::admit::{self, CertificateError, Trust};
use crate::declare::standard_classes;
use crate::keep::Keeper;
use crate::lease::{Elector, LeaseTiming};
use crate::metrics::Metrics;

/// How the controller runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where its lease is.
    pub namespace: String,
    /// The name of this replica; its pod's.
    pub identity: String,
    /// The DRA driver's name.
    pub driver: DriverName,
    /// Keep the standard classes.
    pub standard_classes: bool,
    /// Make a class per product and MIG profile of the fleet.
    pub fleet_classes: bool,
    /// Serve admission; None: don't.
    pub webhook: Option<Webhook>,
    /// Where to answer `/healthz`, `/readyz` and `/metrics`.
    pub http: Option<SocketAddr>,
    /// The times of the election.
    pub lease: LeaseTiming,
    /// The least time between two status writes of a GpuClass of which only counts changed.
    pub count_pace: Duration,
}

/// How admission is served.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The DNS name by which the API server calls, `service.namespace.svc`.
    pub service: String,
    /// The ValidatingWebhookConfiguration.
    pub configuration: String,
}

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port is taken.
    #[error("can't serve {what} on {address}: choose another address")]
    Listen {
        /// What was to be served.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A server ended.
    #[error("the server of {what} ended")]
    Served {
        /// What was served.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The webhook has no certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The built-in classes can't be read.
    #[error("the standard classes in this program can't be read; please report it")]
    Standard(#[from] serde_saphyr::Error),
}

/// Runs until `stop`, then gives the lease up. The classes stay as they are.
///
/// The client should not retry by itself (`Config::default_retry = false`): it would go on
/// writing in secret when the lease is lost.
///
/// # Errors
/// What can't be served at the start, or no longer.
pub async fn run(
    settings: Settings,
    client: Client,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let (metrics, page) = Metrics::new();
    let mut servers = JoinSet::new();
    let mut is_ready = watch::channel(true).1;
    if let Some(webhook) = &settings.webhook {
        let listener = listen("admission", webhook.listen)?;
        let (trust, ready) = Trust::new(client.clone(), webhook.clone(), &settings.identity)?;
        is_ready = ready;
        let driver = settings.driver.clone();
        let serve = admit::webhook(listener, trust.serving(), driver, metrics.clone());
        servers.spawn(async move { ("admission", serve.await) });
        servers.spawn(async move {
            trust.run().await;
            ("admission", Ok(()))
        });
    }
    if let Some(address) = settings.http {
        let serve = admit::probes(listen("probes", address)?, is_ready, page);
        servers.spawn(async move { ("probes", serve.await) });
    }
    let mut elector =
        Elector::new(client.clone(), &settings.namespace, &settings.identity, settings.lease);
    let standard = match settings.standard_classes {
        true => standard_classes(&settings.driver)?,
        false => Vec::new(),
    };
    let lead = async {
        loop {
            elector.acquire().await;
            metrics.leads(true);
            let keeper = Keeper::new(client.clone(), &settings, standard.clone(), metrics.clone());
            tokio::select! {
                // First, so that a lost lease stops the keeper before its next write.
                biased;
                () = elector.hold() => {}
                () = keeper.run() => {}
            }
            metrics.leads(false);
        }
    };
    let ended = tokio::select! {
        () = stop => Ok(()),
        () = lead => Ok(()),
        Some(ended) = servers.join_next() => match ended {
            Ok((what, Err(source))) => Err(RunError::Served { what, source }),
            Ok((what, Ok(()))) => {
                Err(RunError::Served { what, source: std::io::ErrorKind::UnexpectedEof.into() })
            }
            Err(broken) => Err(RunError::Served {
                what: "admission or probes",
                source: std::io::Error::other(broken),
            }),
        },
    };
    elector.release().await;
    info!("stopped");
    ended
}

fn listen(what: &'static str, address: SocketAddr) -> Result<std::net::TcpListener, RunError> {
    admit::bind(address).map_err(|source| RunError::Listen { what, address, source })
}
