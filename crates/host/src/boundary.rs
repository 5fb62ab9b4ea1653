//! The points between two effects. Production passes every one without a thought; the
//! crash tests count them and kill the process at the n-th.
//!
//! A boundary never changes what is done, only whether the process lives to do it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Hook = dyn Fn(&str) + Send + Sync;

/// Is told of every boundary between two effects, before the next one happens.
#[derive(Clone, Default)]
pub struct Boundary(Option<Arc<Hook>>);

impl Boundary {
    /// Calls `hook` with the name of each effect that is about to happen.
    pub fn new(hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Kills this process with SIGKILL at the `n`-th boundary, counted from 1, so that no
    /// destructor and no buffered write runs. For the crash tests.
    #[must_use]
    pub fn die_at(n: u64) -> Self {
        let count = AtomicU64::new(0);
        Self::new(move |_| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 == n
                && nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).is_err()
            {
                std::process::abort();
            }
        })
    }

    /// Says that `effect` happens next.
    pub fn pass(&self, effect: &str) {
        if let Some(hook) = &self.0 {
            hook(effect);
        }
    }
}

impl std::fmt::Debug for Boundary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Boundary(hook)" } else { "Boundary" })
    }
}
