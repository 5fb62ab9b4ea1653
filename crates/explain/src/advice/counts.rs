//! Requests for more devices than any node has.

use super::{Adviser, Weight};
use crate::report::{Advice, NodeGroup, NodeOutcome, RequestOnNode};

impl Adviser<'_> {
    /// Looks at what all nodes came to.
    pub(crate) fn counts(&mut self, groups: &[NodeGroup]) {
        let looked_at: Vec<&NodeGroup> =
            groups.iter().filter(|group| group.outcome == NodeOutcome::DoesNotFit).collect();
        let Some(first) = looked_at.first() else { return };
        for (place, request) in first.requests.iter().enumerate() {
            let Some(wanted) = request.wanted.filter(|wanted| *wanted > 1) else { continue };
            let on_nodes = looked_at.iter().filter_map(|group| {
                Some((group.requests.get(place)?.selected, group.names.first()?))
            });
            let Some((most, node)) = on_nodes.max_by_key(|(selected, _)| *selected) else {
                continue;
            };
            if most > 0 && most < wanted {
                let RequestOnNode { claim, request, .. } = request;
                let problem = format!(
                    "wants {wanted} devices of one node; the most that match are {most}, on {node}"
                );
                let fix = format!(
                    "ask for {most} at most: the devices of a claim are all of one node; for more \
                     use several pods, each with a claim of its own"
                );
                let about = format!("claim {claim}, request {request}");
                self.add(Weight::Cause, Advice::new(about, problem, fix));
            }
        }
    }
}
