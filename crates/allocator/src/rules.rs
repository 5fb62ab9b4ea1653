//! Whose allocator is followed: the rules of kube-scheduler's changed with Kubernetes 1.37.

/// The rules of a version of kube-scheduler, in its default variant with default gates.
///
/// What changed is found in `k8s.io/dynamic-resource-allocation/structured`, and agrees with
/// a real scheduler of each version (`crates/agree`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rules {
    /// Up to Kubernetes 1.36.
    ///
    /// - A slice with counters counts on every node, so that a broken pool is known on all.
    /// - Accounts of counters go by the pool's name alone.
    /// - "All" leaves out devices whose capacity others have used up.
    /// - The counters of a shared device count once a share of it consumes capacity.
    /// - `distinctAttribute` remembers one device of each request.
    /// - Capacity is rounded in whole units.
    /// - A config that names two requests of a claim is listed twice in the result.
    #[default]
    UpTo136,
    /// From Kubernetes 1.37 on: none of these.
    ///
    /// - Capacity is rounded in thousandths, and what can't be reckoned ends the attempt.
    /// - A config that names all requests of a claim names none in the result.
    From137,
}

impl Rules {
    /// The rules of Kubernetes 1.`minor`, as its API server tells it (`/version`).
    #[must_use]
    pub fn of_minor(minor: u32) -> Self {
        if minor < 37 { Self::UpTo136 } else { Self::From137 }
    }
}
