//! The pods that use each prepared claim, as far as they are known: for the log of its calls
//! and for who uses what. It is told and asks nobody; after a restart it knows nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_dra_metrics::{Pod, PodUid};
use gpu_dra_model::ClaimUid;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::sync::watch;

/// Pods by claim, for claims that are prepared or being prepared.
#[derive(Debug, Default)]
pub struct ClaimPods(Mutex<HashMap<ClaimUid, Arc<[Pod]>>>);

impl ClaimPods {
    /// Takes them from `status.reservedFor` of a claim as the API server has it now.
    pub fn learn(&self, claim: &ClaimUid, object: &ResourceClaim) {
        if object.metadata.uid.as_deref() != Some(claim.as_str()) {
            return;
        }
        let users = object.status.as_ref().and_then(|status| status.reserved_for.as_ref());
        let pods = users.into_iter().flatten().filter(|user| user.resource == "pods");
        let pods = pods
            .filter_map(|pod| Some(Pod { uid: PodUid::new(&pod.uid)?, name: pod.name.clone() }));
        self.lock().insert(claim.clone(), pods.collect());
    }

    /// Those of a claim; none where they aren't known.
    #[must_use]
    pub fn of(&self, claim: &ClaimUid) -> Arc<[Pod]> {
        self.lock().get(claim).cloned().unwrap_or_default()
    }

    /// Their names in one text, for the log.
    #[must_use]
    pub fn names(&self, claim: &ClaimUid) -> String {
        let pods = self.of(claim);
        let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
        names.join(",")
    }

    /// The claim is not prepared, or not any more.
    pub fn forget(&self, claim: &ClaimUid) {
        self.lock().remove(claim);
    }

    /// Forgets claims that aren't held, such as those that another process has ended.
    pub fn retain(&self, is_held: impl Fn(&ClaimUid) -> bool) {
        self.lock().retain(|claim, _| is_held(claim));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClaimUid, Arc<[Pod]>>> {
        // Nothing in here can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What follows when a claim has given back what it held, whoever has ended it.
#[derive(Debug, Clone, Default)]
pub struct Released {
    /// Changes with each.
    changed: watch::Sender<()>,
    pods: Arc<ClaimPods>,
}

impl Released {
    /// The claim holds nothing any more: who waits for its devices looks again.
    pub fn note(&self, claim: &ClaimUid) {
        self.pods.forget(claim);
        self.changed.send_replace(());
    }

    /// Changes whenever a claim has given back what it held.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The pods of claims.
    #[must_use]
    pub fn pods(&self) -> &Arc<ClaimPods> {
        &self.pods
    }
}
