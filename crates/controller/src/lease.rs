//! Leader election by a Lease, with the rules of client-go's `leaderelection`: a lease is over
//! when it hasn't changed for its whole duration by one's own clock, whatever times are written
//! in it; every write names the version it saw; and a leader that can't renew stops well before
//! others may begin.
//!
//! Why not a crate: the one that fits this client, kube-lease-manager 0.13, believes the times
//! in the lease (clocks differ), takes a lease over by a patch without a version, and panics
//! on a duration that is out of range.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::error::{RequestError, within};
use crate::keep::FIELD_MANAGER;

/// The times of an election.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTiming {
    /// How long others wait without a renewal.
    pub duration: Duration,
    /// How long a leader goes on without one: less than `duration`.
    pub deadline: Duration,
    /// How often a leader renews and others look.
    pub period: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            period: Duration::from_secs(5),
        }
    }
}

/// One who wants to lead.
pub(crate) struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: LeaseTiming,
    /// The lease as last seen, and since when it has been so.
    seen: Option<(Lease, Instant)>,
}

impl Elector {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        identity: &str,
        timing: LeaseTiming,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: "gpu-dra-controller".to_owned(),
            identity: identity.to_owned(),
            timing,
            seen: None,
        }
    }

    /// Waits until it leads.
    pub(crate) async fn acquire(&mut self) {
        let mut is_quiet = false;
        loop {
            match self.try_acquire().await {
                Ok(true) => {
                    info!(identity = self.identity, "leading");
                    return;
                }
                Ok(false) => is_quiet = false,
                Err(error) => {
                    if !is_quiet {
                        warn!(error = error.in_full(), "can't get the lease; trying again");
                    }
                    is_quiet = true;
                }
            }
            sleep(self.timing.period).await;
        }
    }

    async fn try_acquire(&mut self) -> Result<bool, RequestError> {
        let lease = match self.request("get", self.api.get(&self.name)).await {
            Ok(lease) => lease,
            Err(RequestError::NotFound { .. }) => {
                let new = self.lease(None);
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.into()), dry_run: false };
                return match self.request("create", self.api.create(&params, &new)).await {
                    Ok(created) => {
                        self.saw(created);
                        Ok(true)
                    }
                    Err(RequestError::Conflict { .. }) => Ok(false),
                    Err(error) => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let since = self.saw(lease.clone());
        if !is_free(&lease, &self.identity, since.elapsed(), self.timing.duration) {
            return Ok(false);
        }
        match self.replace(self.lease(Some(&lease))).await {
            Ok(()) => Ok(true),
            // Somebody was faster.
            Err(RequestError::Conflict { .. } | RequestError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Renews for as long as it leads; the end of this is the end of leading.
    pub(crate) async fn hold(&mut self) {
        let mut renewed = Instant::now();
        let mut wait = self.timing.period;
        loop {
            let deadline = renewed + self.timing.deadline;
            sleep_until((Instant::now() + wait).min(deadline)).await;
            let began = Instant::now();
            let Some(lease) = self.seen.as_ref().map(|(lease, _)| self.lease(Some(lease))) else {
                return;
            };
            let answer = tokio::select! {
                biased;
                answer = self.replace(lease) => answer,
                () = sleep_until(deadline) => {
                    warn!("the lease couldn't be renewed in time: no longer leading");
                    return;
                }
            };
            wait = self.timing.period;
            match answer {
                Ok(()) => renewed = began,
                Err(RequestError::Conflict { .. } | RequestError::NotFound { .. }) => {
                    // Perhaps it was our own write, whose answer was lost.
                    if !self.is_still_ours(deadline).await {
                        warn!("somebody else has the lease: no longer leading");
                        return;
                    }
                    wait = Duration::ZERO;
                }
                Err(error) => {
                    warn!(error = error.in_full(), "can't renew the lease; trying again");
                    wait = self.timing.period / 4;
                }
            }
        }
    }

    async fn is_still_ours(&mut self, deadline: Instant) -> bool {
        let request = self.request("get", self.api.get(&self.name));
        let Ok(Ok(lease)) = tokio::time::timeout_at(deadline, request).await else { return false };
        let is_ours = holder(&lease) == Some(&self.identity);
        self.saw(lease);
        is_ours
    }

    /// Gives the lease up, so that the next one needn't wait.
    pub(crate) async fn release(&mut self) {
        let Some((lease, _)) = &self.seen else { return };
        if holder(lease) != Some(&self.identity) {
            return;
        }
        let mut free = self.lease(Some(lease));
        if let Some(spec) = &mut free.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
        }
        if let Err(error) = self.replace(free).await {
            info!(error = error.in_full(), "the lease couldn't be given up; it runs out by itself");
        }
    }

    async fn replace(&mut self, lease: Lease) -> Result<(), RequestError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), dry_run: false };
        let stored = self.request("update", self.api.replace(&self.name, &params, &lease)).await?;
        self.saw(stored);
        Ok(())
    }

    async fn request<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, RequestError> {
        within(self.timing.deadline, verb, &format!("lease {}", self.name), request).await
    }

    /// Remembers a lease; since when it has been like this.
    fn saw(&mut self, lease: Lease) -> Instant {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        let since = match &self.seen {
            Some((known, since)) if version(known) == version(&lease) => *since,
            _ => Instant::now(),
        };
        self.seen = Some((lease, since));
        since
    }

    /// The lease held by us, in place of `old`.
    fn lease(&self, old: Option<&Lease>) -> Lease {
        let old_spec = old.and_then(|old| old.spec.clone()).unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let is_ours = old_spec.holder_identity.as_deref() == Some(&*self.identity);
        let transitions = old_spec.lease_transitions.unwrap_or_default();
        let seconds = i32::try_from(self.timing.duration.as_secs()).unwrap_or(i32::MAX);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: old.and_then(|old| old.metadata.resource_version.clone()),
                uid: old.and_then(|old| old.metadata.uid.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                // The API wants a whole second at least.
                lease_duration_seconds: Some(seconds.max(1)),
                acquire_time: old_spec
                    .acquire_time
                    .filter(|_| is_ours)
                    .or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(match (old, is_ours) {
                    (Some(_), false) => transitions.saturating_add(1),
                    _ => transitions,
                }),
                ..LeaseSpec::default()
            }),
        }
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Whether one may take a lease that hasn't changed for so long. The longer of the two
/// durations counts: the holder's is what it relies on.
fn is_free(lease: &Lease, identity: &str, unchanged: Duration, ours: Duration) -> bool {
    let spec = lease.spec.as_ref();
    let theirs = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    let theirs = Duration::from_secs(u64::try_from(theirs).unwrap_or_default());
    match holder(lease) {
        None => true,
        Some(holder) => holder == identity || unchanged > theirs.max(ours),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: Option<&str>, seconds: Option<i32>) -> Lease {
        let spec = LeaseSpec {
            holder_identity: by.map(str::to_owned),
            lease_duration_seconds: seconds,
            ..LeaseSpec::default()
        };
        Lease { metadata: ObjectMeta::default(), spec: Some(spec) }
    }

    #[test]
    fn when_a_lease_may_be_taken() {
        let (ours, s) = (Duration::from_secs(15), Duration::from_secs);
        for (lease, unchanged, free) in [
            (Lease::default(), s(0), true),
            (held(None, None), s(0), true),
            (held(Some(""), Some(1)), s(0), true),
            (held(Some("me"), Some(15)), s(0), true),
            (held(Some("other"), Some(15)), s(15), false),
            (held(Some("other"), Some(15)), s(16), true),
            (held(Some("other"), Some(60)), s(16), false),
            (held(Some("other"), Some(1)), s(2), false),
            (held(Some("other"), Some(-5)), s(16), true),
            (held(Some("other"), None), s(14), false),
        ] {
            assert_eq!(is_free(&lease, "me", unchanged, ours), free, "{lease:?} {unchanged:?}");
        }
    }
}
