//! Which devices claims hold, by pool: kept up to date claim by claim.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::ResourceClaim;

/// A claim's hold on one device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hold {
    pool: Arc<str>,
    /// Its name in the pool.
    pub(crate) device: Box<str>,
    /// What a share takes of the capacities; None: the whole device is taken.
    pub(crate) share: Option<BTreeMap<String, Quantity>>,
}

/// All holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    claims: HashMap<String, Vec<Hold>>,
    pools: HashMap<Arc<str>, BTreeMap<String, Vec<Hold>>>,
}

impl Held {
    /// The claims that hold devices of a pool, by claim.
    pub(crate) fn of_pool(&self, pool: &str) -> impl Iterator<Item = &Hold> {
        self.pools.get(pool).into_iter().flat_map(BTreeMap::values).flatten()
    }

    /// Takes in a claim as it is now; the pools in which something changed.
    pub(crate) fn put(&mut self, claim: &ResourceClaim, driver: &str) -> Vec<Arc<str>> {
        self.replace(&key(claim), holds(claim, driver))
    }

    /// Forgets a claim; the pools in which something changed.
    pub(crate) fn remove(&mut self, claim: &str) -> Vec<Arc<str>> {
        self.replace(claim, Vec::new())
    }

    /// Forgets all claims but those that `stays` names.
    pub(crate) fn retain(&mut self, stays: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let gone: Vec<String> = self.claims.keys().filter(|c| !stays(c)).cloned().collect();
        gone.iter().flat_map(|claim| self.remove(claim)).collect()
    }

    fn replace(&mut self, claim: &str, new: Vec<Hold>) -> Vec<Arc<str>> {
        let old = if new.is_empty() {
            self.claims.remove(claim).unwrap_or_default()
        } else {
            self.claims.insert(claim.to_owned(), new.clone()).unwrap_or_default()
        };
        if old == new {
            return Vec::new();
        }
        let mut changed: Vec<Arc<str>> = old.iter().chain(&new).map(|h| h.pool.clone()).collect();
        changed.sort();
        changed.dedup();
        for pool in &changed {
            let of_pool: Vec<Hold> = new.iter().filter(|h| h.pool == *pool).cloned().collect();
            let claims = self.pools.entry(pool.clone()).or_default();
            if of_pool.is_empty() {
                claims.remove(claim);
            } else {
                claims.insert(claim.to_owned(), of_pool);
            }
            if claims.is_empty() {
                self.pools.remove(pool);
            }
        }
        changed
    }
}

/// `namespace/name`.
pub(crate) fn key(claim: &ResourceClaim) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&claim.metadata.namespace), part(&claim.metadata.name))
}

/// What the allocation takes of this driver's devices. adminAccess takes nothing away.
fn holds(claim: &ResourceClaim, driver: &str) -> Vec<Hold> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
    let ours = results.filter(|r| r.driver == driver && r.admin_access != Some(true));
    ours.map(|result| Hold {
        pool: Arc::from(&*result.pool),
        device: Box::from(&*result.device),
        share: result.share_id.as_ref().map(|_| {
            let consumed = result.consumed_capacity.iter().flatten();
            consumed.filter_map(|(name, text)| Some((name.clone(), text.0.parse().ok()?))).collect()
        }),
    })
    .collect()
}
