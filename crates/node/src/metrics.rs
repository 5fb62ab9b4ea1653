//! What the node agent counts and measures, for Prometheus. Nothing here decides anything, and
//! what is counted on a call's way is a few atomics; everything else is found when a page is
//! asked for.
//!
//! ```text
//! calls, files, effects, NVML, API requests, GPU events ──▶ Metrics ─┐
//! readiness, survey, health, journal ──▶ State ──────────────────────┼─▶ Scrape ──▶ /metrics
//! NVML's processes, cgroups, claims' pods ──▶ UsageSampler ──────────┘
//! ```

use gpu_dra_metrics::client::registry::Registry;
use gpu_dra_metrics::page;

mod api;
mod calls;
mod effects;
mod events;
mod files;
mod gpus;
mod mps;
mod scrape;
mod state;
mod usage;

pub use api::ApiMetrics;
pub use calls::{CallMetrics, Operation, Outcome, Phase};
pub(crate) use calls::{PhaseClock, by_phase};
pub(crate) use effects::MeasuredEffects;
pub use events::EventMetrics;
pub(crate) use files::MeasuredFiles;
pub use gpus::{Flights, MeasuredGpus, NvmlMetrics};
pub use mps::MpsMetrics;
pub use scrape::{Scrape, ScrapeError};
pub use state::State;
pub use usage::{Sampled, UsageSampler};

/// Everything that is counted or measured where it happens.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// NVML.
    pub nvml: NvmlMetrics,
    /// Requests to the API server.
    pub api: ApiMetrics,
    /// What GPUs have reported by themselves.
    pub events: EventMetrics,
    /// The MPS host and its daemons.
    pub mps: MpsMetrics,
}

impl Metrics {
    /// With the page on which they all are, to which others can be added.
    #[must_use]
    pub fn new() -> (Self, Registry) {
        let metrics = Self::default();
        let mut page = page("node");
        metrics.nvml.register(&mut page);
        metrics.api.register(&mut page);
        metrics.events.register(&mut page);
        metrics.mps.register(&mut page);
        (metrics, page)
    }
}
