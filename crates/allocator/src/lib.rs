//! Which devices satisfy the claims of a pod on a node, or why none do: kube-scheduler's
//! structured allocator (Kubernetes 1.36, the default variant) as a pure function.
//!
//! ```text
//! slices ─┐                       ┌─▶ Allocated: one AllocationResult per claim
//! classes ┼─▶ Allocator ─allocate(node, claims)
//! claims ─┘   (what is taken)     └─▶ Refused: what ended the search, which pools are
//!                                     unusable, and per request and device the reason
//! ```
//!
//! Contract: on each node the verdict is the scheduler's; which of several equal devices is
//! picked is the first in its order too, but nothing may rely on it. What the scheduler would
//! refuse or this crate doesn't know is an error with a name, never a verdict. Nothing here
//! does I/O, and nothing is random: share ids are supplied by the caller.
//!
//! Known quirks of the scheduler that are followed: an over-committed counter blocks all
//! counter-consuming devices of its pool; `distinctAttribute` remembers one device per request;
//! a claim config that names two requests is listed twice. One that isn't: the scheduler caches
//! counters by pool name alone, so that two drivers with counters and equal pool names on one
//! node disturb each other; here the driver counts too.

#![forbid(unsafe_code)]

mod candidate;
mod capacity;
mod constraints;
mod counters;
mod node;
mod pools;
mod reason;
mod request;
mod result;
mod search;
mod select;
mod state;
mod taints;

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};

pub use reason::{AllocateError, Conflict, Outcome, PoolProblem, Reason, Refusal, Rejection};
pub use state::{Allocated, DeviceId};

use search::Search;
use select::Selectors;

/// Allocates for one view of the cluster; reusable for many nodes and claims.
#[derive(Debug)]
pub struct Allocator<'a> {
    slices: Slices<'a>,
    classes: BTreeMap<&'a str, &'a DeviceClass>,
    allocated: Allocated,
    selectors: Selectors,
}

/// The slices, found by node: of the thousands in a cluster a node sees a few.
#[derive(Debug)]
struct Slices<'a> {
    of_node: HashMap<&'a str, Vec<&'a ResourceSlice>>,
    /// For several nodes, or with counters, which always belong to their pool.
    shared: Vec<&'a ResourceSlice>,
    of_pool: HashMap<(&'a str, &'a str), Vec<&'a ResourceSlice>>,
}

impl<'a> Allocator<'a> {
    /// From all slices, all classes, and what is allocated already.
    #[must_use]
    pub fn new(
        slices: impl IntoIterator<Item = &'a ResourceSlice>,
        classes: impl IntoIterator<Item = &'a DeviceClass>,
        allocated: Allocated,
    ) -> Self {
        let mut index =
            Slices { of_node: HashMap::new(), shared: Vec::new(), of_pool: HashMap::new() };
        for slice in slices {
            let spec = &slice.spec;
            let has_counters = pools::has_counters(slice);
            match spec.node_name.as_deref() {
                Some(node) if !node.is_empty() && !has_counters => {
                    index.of_node.entry(node).or_default().push(slice);
                }
                _ => index.shared.push(slice),
            }
            index.of_pool.entry((&spec.driver, &spec.pool.name)).or_default().push(slice);
        }
        let classes = classes
            .into_iter()
            .filter_map(|class| class.metadata.name.as_deref().map(|name| (name, class)))
            .collect();
        Self { slices: index, classes, allocated, selectors: Selectors::default() }
    }

    /// Counts a claim's devices as taken, so that later attempts see them.
    pub fn assume(&mut self, claim: &str, result: &AllocationResult) {
        self.allocated.add(claim, result);
    }

    /// Tries to allocate all claims of a pod on a node. `share_id` gives a fresh UUID for
    /// each share of a device that several claims may have.
    pub fn allocate(
        &mut self,
        node: &Node,
        claims: &[&ResourceClaim],
        share_id: &mut dyn FnMut() -> String,
    ) -> Outcome {
        let pools = match pools::gather(&self.slices, node) {
            Ok(pools) => pools,
            Err(error) => return Outcome::Refused(Refusal::of(error)),
        };
        Search::new(self, node, claims, pools, share_id).run()
    }
}
