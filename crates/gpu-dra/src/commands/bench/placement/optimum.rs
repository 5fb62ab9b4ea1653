//! The exact optimum on two GPUs: a request is accepted if and only if it and all that is
//! there could be placed anew. No order of devices can do better at that moment, since the
//! scheduler never moves what runs.

use std::collections::BTreeSet;

use super::day::{Mix, Wanted};
use super::fit::{Node, Taken};

/// How many of each kind of the mix.
type Counts = Vec<u8>;

/// What one GPU can hold.
pub(super) struct Optimum {
    kinds: Vec<Wanted>,
    /// Every combination that fits one GPU.
    one_gpu: BTreeSet<Counts>,
}

impl Optimum {
    /// From a node of one GPU.
    pub(super) fn new(mut node: Node, mix: &Mix) -> Self {
        let kinds: Vec<_> = mix.kinds.iter().map(|(wanted, _)| *wanted).collect();
        let mut devices = Vec::new();
        for (kind, wanted) in kinds.iter().enumerate() {
            let all = 0..node.slots(wanted).len();
            devices.extend(all.map(|at| (kind, Taken { wanted, at })));
        }
        let mut one_gpu = BTreeSet::new();
        collect(&mut node, &devices, &vec![0; kinds.len()], &mut one_gpu);
        Self { kinds, one_gpu }
    }

    /// Whether two GPUs can hold these together.
    pub(super) fn fits(&self, wanted: &[Wanted]) -> bool {
        let count = |kind: &Wanted| wanted.iter().filter(|other| *other == kind).count();
        let all: Vec<_> = self.kinds.iter().map(count).collect();
        let rest = |first: &Counts| -> Option<Counts> {
            let left = all.iter().zip(first).map(|(all, first)| {
                all.checked_sub(usize::from(*first)).and_then(|left| u8::try_from(left).ok())
            });
            left.collect()
        };
        self.one_gpu
            .iter()
            .any(|first| rest(first).is_some_and(|rest| self.one_gpu.contains(&rest)))
    }
}

/// Visits every set of devices that can be had together, in the order of the list.
fn collect(
    node: &mut Node,
    devices: &[(usize, Taken)],
    counts: &Counts,
    found: &mut BTreeSet<Counts>,
) {
    found.insert(counts.clone());
    for (next, (kind, device)) in devices.iter().enumerate() {
        if !node.take_this(*device) {
            continue;
        }
        let mut more = counts.clone();
        if let Some(count) = more.get_mut(*kind) {
            *count += 1;
        }
        collect(node, devices.get(next + 1..).unwrap_or_default(), &more, found);
        node.give_back(*device);
    }
}
