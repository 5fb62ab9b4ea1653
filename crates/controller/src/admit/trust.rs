//! Makes the API server trust this replica's certificate: its own is kept in the `caBundle` of
//! one ValidatingWebhookConfiguration, by one watch on that object. It makes no such object,
//! and touches nothing else of it: whoever installs the webhook decides how it fails.
//!
//! Why so: each replica has a certificate of its own and all are in the bundle, so that no key
//! has to be shared. A shared one would have to lie in a Secret, and the controller would need
//! the right to read Secrets.

use std::time::{Duration, SystemTime};

use axum_server::tls_rustls::RustlsConfig;
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::bundle;
use super::certificate::{Certificate, CertificateError, RENEWAL, make};
use crate::error::{RequestError, within};
use crate::keep::{FIELD_MANAGER, chain};
use crate::run::Webhook;

const LIMIT: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(5);
/// The API server sees a new bundle a moment after it is stored.
const SPREADING: Duration = Duration::from_secs(10);

/// Keeps one replica trusted.
pub(crate) struct Trust {
    api: Api<ValidatingWebhookConfiguration>,
    webhook: Webhook,
    identity: String,
    certificate: Certificate,
    /// What is served with.
    serving: RustlsConfig,
    /// The webhook's configuration as last seen.
    seen: Option<ValidatingWebhookConfiguration>,
    is_ready: watch::Sender<bool>,
}

impl Trust {
    /// With a first certificate; the receiver says when the API server may be sent here.
    pub(crate) fn new(
        client: Client,
        webhook: Webhook,
        identity: &str,
    ) -> Result<(Self, watch::Receiver<bool>), CertificateError> {
        let certificate = make(&webhook.service, identity, SystemTime::now())?;
        let (is_ready, receiver) = watch::channel(false);
        let trust = Self {
            api: Api::all(client),
            webhook,
            identity: identity.to_owned(),
            serving: RustlsConfig::from_config(certificate.tls.clone()),
            certificate,
            seen: None,
            is_ready,
        };
        Ok((trust, receiver))
    }

    /// What to serve with; renewed behind its back.
    pub(crate) fn serving(&self) -> RustlsConfig {
        self.serving.clone()
    }

    /// Never ends by itself. A new certificate is trusted before it is served.
    pub(crate) async fn run(mut self) {
        let own = format!("metadata.name={}", self.webhook.configuration);
        let events = watcher(self.api.clone(), Config::default().fields(&own)).default_backoff();
        let mut events = events.boxed();
        let mut renew_at = Instant::now() + RENEWAL;
        let mut retry_at: Option<Instant> = None;
        let mut serve_at: Option<Instant> = None;
        let mut is_broken = false;
        let mut is_served = true;
        let moment = |at: Option<Instant>| sleep_until(at.unwrap_or_else(Instant::now));
        loop {
            let look = tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        is_broken &= matches!(event, Event::Init);
                        self.learn(event)
                    }
                    Some(Err(error)) => {
                        if !is_broken {
                            let name = &self.webhook.configuration;
                            warn!(name, error = %chain(&error), "can't watch the webhook's configuration; trying again");
                        }
                        is_broken = true;
                        false
                    }
                    // Watches don't end by themselves.
                    None => futures::future::pending().await,
                },
                () = moment(retry_at), if retry_at.is_some() => true,
                () = moment(serve_at), if serve_at.is_some() => {
                    serve_at = None;
                    self.serving.reload_from_config(self.certificate.tls.clone());
                    false
                }
                () = sleep_until(renew_at) => {
                    renew_at = Instant::now() + RENEWAL;
                    match make(&self.webhook.service, &self.identity, SystemTime::now()) {
                        Ok(new) => {
                            self.certificate = new;
                            is_served = false;
                        }
                        Err(error) => {
                            warn!(error = %chain(&error), "can't renew the certificate; trying again");
                            renew_at = Instant::now() + RETRY;
                        }
                    }
                    true
                }
            };
            if look {
                retry_at = match self.bring_in_line().await {
                    Ok(()) => {
                        if !is_served {
                            serve_at = Some(Instant::now() + SPREADING);
                        }
                        is_served = true;
                        None
                    }
                    // Another replica was faster, and the watch tells what it wrote; or somebody
                    // else keeps the bundle.
                    Err(error @ RequestError::Conflict { .. }) => {
                        info!(error = error.in_full(), "the bundle isn't written");
                        None
                    }
                    Err(error) => {
                        warn!(
                            error = error.in_full(),
                            "the API server doesn't trust this replica yet"
                        );
                        Some(Instant::now() + RETRY)
                    }
                };
            }
        }
    }

    /// Takes in what the watch tells; whether to look at the bundle.
    fn learn(&mut self, event: Event<ValidatingWebhookConfiguration>) -> bool {
        match event {
            Event::Apply(seen) | Event::InitApply(seen) => {
                self.seen = Some(seen);
                true
            }
            Event::Delete(_) => {
                self.seen = None;
                false
            }
            Event::Init => false,
            Event::InitDone => {
                if self.seen.is_none() {
                    let name = &self.webhook.configuration;
                    info!(
                        name,
                        "no such ValidatingWebhookConfiguration: configs are only checked on nodes"
                    );
                    self.is_ready.send_replace(true);
                }
                false
            }
        }
    }

    async fn bring_in_line(&mut self) -> Result<(), RequestError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let name = &self.webhook.configuration;
        let hooks = seen.webhooks.iter().flatten();
        let mut wanted = Vec::new();
        for hook in hooks {
            let known = hook.client_config.ca_bundle.clone().unwrap_or_default();
            let with_own = bundle::with(&known.0, &self.certificate.pem);
            wanted.push((
                hook.name.clone(),
                with_own.map_or((known, false), |b| (ByteString(b), true)),
            ));
        }
        if wanted.iter().any(|(_, (_, is_new))| *is_new) {
            let hooks: Vec<_> = wanted
                .into_iter()
                .map(|(name, (ca, _))| json!({"name": name, "clientConfig": {"caBundle": ca}}))
                .collect();
            // With the version that was seen: two replicas that add at once mustn't undo each other.
            let patch = json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": name, "resourceVersion": seen.metadata.resource_version},
                "webhooks": hooks,
            });
            let params = PatchParams::apply(FIELD_MANAGER);
            let patch = Patch::Apply(&patch);
            let request = self.api.patch(name, &params, &patch);
            let what = format!("validatingwebhookconfiguration {name}");
            let stored = within(LIMIT, "patch", &what, request).await?;
            info!(name, "the API server now trusts this replica");
            self.seen = Some(stored);
        }
        self.is_ready.send_replace(true);
        Ok(())
    }
}
