//! Which devices satisfy the claims of a pod on a node, or why none do: kube-scheduler's
//! structured allocator (the default variant) as a pure function. Its [`Rules`] changed with
//! Kubernetes 1.37.
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
//! does I/O, and nothing is random: share ids are supplied by the caller. `crates/agree` puts
//! random worlds to this crate and to a real scheduler.
//!
//! Known quirks of the scheduler are followed: an over-committed counter blocks all
//! counter-consuming devices of its pool; and those that [`Rules::UpTo136`] lists. Counters are
//! cached, and there by pool name alone, so that two drivers with counters and equal pool names
//! disturb each other: use one [`Allocator`] for all nodes of a pod, as the scheduler does.

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
mod rules;
mod search;
mod select;
mod state;
mod survey;
mod taints;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use node::selects;
pub use reason::{AllocateError, Conflict, Outcome, PoolProblem, Reason, Refusal, Rejection};
pub use rules::Rules;
pub use state::{Allocated, DeviceId};
pub use survey::{Candidate, Obstacle, Survey, Surveyed, device_view};

use counters::{Account, Available};
use pools::{PoolId, Pools};
use search::Search;
use select::Selectors;

/// Allocates for one view of the cluster; reusable for many nodes and claims.
#[derive(Debug)]
pub struct Allocator<'a> {
    slices: Slices<'a>,
    classes: BTreeMap<&'a str, &'a DeviceClass>,
    allocated: Allocated,
    selectors: Selectors,
    /// Counters left. As in the scheduler the first pool of an account that is looked at counts
    /// for all.
    available: HashMap<Account<'a>, Rc<Available<'a>>>,
    max_steps: usize,
    /// What was read of the node that was refused last.
    last: Option<(ObjectMeta, Pools<'a>)>,
}

/// Devices tried before a search is given up, some seconds of work: the scheduler gives up
/// after 10 seconds.
const MAX_STEPS: usize = 10_000_000;

/// The slices, found by node: of the thousands in a cluster a node sees a few.
#[derive(Debug, Default)]
struct Slices<'a> {
    rules: Rules,
    of_node: HashMap<&'a str, Vec<&'a ResourceSlice>>,
    /// For several nodes.
    shared: Vec<&'a ResourceSlice>,
    /// With counters, which belong to their pool wherever it is.
    counters: HashMap<PoolId<'a>, Vec<&'a ResourceSlice>>,
    /// All.
    of_pool: HashMap<PoolId<'a>, Vec<&'a ResourceSlice>>,
    /// What is wrong with pools that have counters and are known on every node for it.
    broken: OnceCell<Vec<(PoolId<'a>, PoolProblem)>>,
}

impl<'a> Allocator<'a> {
    /// From all slices, all classes, and what is allocated already.
    #[must_use]
    pub fn new(
        slices: impl IntoIterator<Item = &'a ResourceSlice>,
        classes: impl IntoIterator<Item = &'a DeviceClass>,
        allocated: Allocated,
    ) -> Self {
        let mut index = Slices::default();
        for slice in slices {
            let id = pools::id_of_pool(slice);
            if pools::has_counters(slice) {
                index.counters.entry(id).or_default().push(slice);
            }
            match slice.spec.node_name.as_deref().filter(|node| !node.is_empty()) {
                Some(node) => index.of_node.entry(node).or_default().push(slice),
                None => index.shared.push(slice),
            }
            index.of_pool.entry(id).or_default().push(slice);
        }
        let classes = classes
            .into_iter()
            .filter_map(|class| class.metadata.name.as_deref().map(|name| (name, class)))
            .collect();
        Self {
            slices: index,
            classes,
            allocated,
            selectors: Selectors::default(),
            available: HashMap::new(),
            max_steps: MAX_STEPS,
            last: None,
        }
    }

    /// Follows these rules instead of the older ones.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.slices.rules = rules;
        self
    }

    /// Gives an attempt up after so many devices tried, with [`AllocateError::TooLong`].
    #[must_use]
    pub fn with_max_steps(mut self, max_steps: usize) -> Self {
        self.max_steps = max_steps;
        self
    }

    /// As [`Self::with_max_steps`], from now on.
    pub fn set_max_steps(&mut self, max_steps: usize) {
        self.max_steps = max_steps;
    }

    /// What is allocated, with what was assumed.
    #[must_use]
    pub fn allocated(&self) -> &Allocated {
        &self.allocated
    }

    /// Counts a claim's devices as taken, so that later attempts see them.
    pub fn assume(&mut self, claim: &str, result: &AllocationResult) {
        self.allocated.add(claim, result);
        self.available.clear();
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
