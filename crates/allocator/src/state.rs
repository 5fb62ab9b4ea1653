//! What is allocated already.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClaim, ResourceClaim};

/// A device in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The driver that publishes it.
    pub driver: String,
    /// The pool it is in.
    pub pool: String,
    /// Its name there.
    pub device: String,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// The devices that claims hold, other than for adminAccess, which takes nothing away.
#[derive(Debug, Clone, Default)]
pub struct Allocated {
    exclusive: BTreeMap<DeviceId, String>,
    shared: BTreeMap<DeviceId, Share>,
    /// The pools of all of them, by driver.
    pools: BTreeMap<String, BTreeSet<String>>,
}

/// What all shares of a device take together.
#[derive(Debug, Clone, Default)]
struct Share {
    claims: Vec<String>,
    /// By capacity; None of one that can't be reckoned. The scheduler knows a share without
    /// any as taken, but doesn't take its counters for counted.
    consumed: Option<BTreeMap<String, Option<Quantity>>>,
}

impl Allocated {
    /// From the allocations in the claims' status; claims without one hold nothing.
    pub fn from_claims<'a>(claims: impl IntoIterator<Item = &'a ResourceClaim>) -> Self {
        let mut allocated = Self::default();
        for claim in claims {
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            if let Some(allocation) = allocation {
                allocated.add(&claim_name(claim), allocation);
            }
        }
        allocated
    }

    /// Adds what a claim, `namespace/name`, holds. A consumed capacity that is no quantity,
    /// which the API doesn't let through, counts as all of it.
    pub fn add(&mut self, claim: &str, allocation: &AllocationResult) {
        let results = allocation.devices.as_ref().and_then(|devices| devices.results.as_ref());
        for result in results.into_iter().flatten() {
            if result.admin_access == Some(true) {
                continue;
            }
            let id = DeviceId {
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
            };
            self.pools.entry(id.driver.clone()).or_default().insert(id.pool.clone());
            if result.share_id.is_none() {
                self.exclusive.insert(id, claim.to_owned());
                continue;
            }
            let share = self.shared.entry(id).or_default();
            share.claims.push(claim.to_owned());
            let Some(consumed) = &result.consumed_capacity else { continue };
            let sums = share.consumed.get_or_insert_default();
            for (name, quantity) in consumed {
                let quantity = quantity.0.parse::<Quantity>().ok();
                let sum = sums.entry(name.clone()).or_insert(Some(Quantity::ZERO));
                *sum = sum.zip(quantity).and_then(|(sum, quantity)| sum.add(&quantity).ok());
            }
        }
    }

    /// The claim that holds the whole device.
    #[must_use]
    pub fn holder(&self, id: &DeviceId) -> Option<&str> {
        self.exclusive.get(id).map(String::as_str)
    }

    /// The claims that hold shares of the device.
    #[must_use]
    pub fn sharers(&self, id: &DeviceId) -> &[String] {
        self.shared.get(id).map_or(&[], |share| &share.claims)
    }

    /// What the shares of a device consume of a capacity, in all; None: more than can be
    /// reckoned.
    pub(crate) fn consumed(&self, id: &DeviceId, capacity: &str) -> Option<Quantity> {
        let sums = self.shared.get(id).and_then(|share| share.consumed.as_ref());
        sums.and_then(|sums| sums.get(capacity)).copied().unwrap_or(Some(Quantity::ZERO))
    }

    /// Whether shares of the device consume capacity: its counters are then counted.
    pub(crate) fn is_consumed(&self, id: &DeviceId) -> bool {
        self.shared.get(id).is_some_and(|share| share.consumed.is_some())
    }

    /// Whether any claim holds a device of the pool.
    pub(crate) fn any_of(&self, driver: &str, pool: &str) -> bool {
        self.pools.get(driver).is_some_and(|pools| pools.contains(pool))
    }

    /// Whether any claim holds the device, whole or in part.
    pub(crate) fn is_taken(&self, id: &DeviceId) -> bool {
        self.exclusive.contains_key(id) || self.shared.contains_key(id)
    }
}

/// `namespace/name`.
pub(crate) fn claim_name(claim: &ResourceClaim) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&claim.metadata.namespace), part(&claim.metadata.name))
}

/// What a claim asks for.
pub(crate) fn devices_of(claim: &ResourceClaim) -> Option<&DeviceClaim> {
    claim.spec.as_ref().and_then(|spec| spec.devices.as_ref())
}
