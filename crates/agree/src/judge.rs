//! Our allocator's verdicts on a world, node by node. Nothing but the allocator decides here.

use gpu_dra_allocator::{AllocateError, Allocated, Allocator, Outcome, Refusal, Rules};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};

use crate::Verdict;

/// All that the scheduler sees of a cluster.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Which scheduler.
    pub rules: Rules,
    /// All slices.
    pub slices: Vec<ResourceSlice>,
    /// All classes.
    pub classes: Vec<DeviceClass>,
    /// All claims; those that are allocated take devices away.
    pub claims: Vec<ResourceClaim>,
}

impl View {
    /// Whether a node has the devices for claims, and the whole outcome.
    #[must_use]
    pub fn judge(&self, node: &Node, claims: &[&ResourceClaim]) -> (Verdict, Outcome) {
        let allocated = Allocated::from_claims(&self.claims);
        let mut allocator = Allocator::new(&self.slices, &self.classes, allocated);
        allocator = allocator.with_rules(self.rules);
        let outcome = allocator.allocate(node, claims, &mut || "share".to_owned());
        let verdict = match &outcome {
            Outcome::Allocated(_) => Verdict::Can,
            Outcome::Refused(Refusal { error: Some(_), .. }) => Verdict::Error,
            Outcome::Refused(_) => Verdict::Cannot,
        };
        (verdict, outcome)
    }
}

/// Whether the allocator could not judge: what is not supported, or too large for it.
#[must_use]
pub fn is_unjudged(outcome: &Outcome) -> bool {
    let Outcome::Refused(Refusal { error: Some(error), .. }) = outcome else { return false };
    matches!(error, AllocateError::Unsupported { .. }) || error.is_own_limit()
}
