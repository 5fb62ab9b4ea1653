//! What the controller counts, for Prometheus. Nothing here decides anything.

use std::sync::Arc;

use gpu_dra_metrics::client::metrics::counter::Counter;
use gpu_dra_metrics::client::metrics::family::Family;
use gpu_dra_metrics::client::metrics::gauge::Gauge;
use gpu_dra_metrics::client::registry::Registry;

type ByWord = Family<[(&'static str, &'static str); 1], Counter>;

/// How a review of admission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The object may be stored.
    Allowed,
    /// Its configs are wrong.
    Denied,
    /// It was no review.
    Malformed,
}

/// The controller's metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    leading: Gauge,
    reconciles: ByWord,
    reviews: ByWord,
}

impl Metrics {
    /// With the page on which they are.
    pub(crate) fn new() -> (Self, Arc<Registry>) {
        let metrics = Self::default();
        // All of them are there from the start, as rates need it.
        for is_success in [true, false] {
            drop(metrics.reconciles.get_or_create(&result(is_success)));
        }
        for verdict in [Verdict::Allowed, Verdict::Denied, Verdict::Malformed] {
            drop(metrics.reviews.get_or_create(&word(verdict)));
        }
        let mut page = gpu_dra_metrics::page("controller");
        let help = "1 while this replica leads";
        page.register("controller_leading", help, metrics.leading.clone());
        let help = "How often the classes were brought in line, by how that ended";
        page.register("reconciles", help, metrics.reconciles.clone());
        let help = "Reviews of configs for the API server, by what came of them";
        page.register("admission_reviews", help, metrics.reviews.clone());
        (metrics, Arc::new(page))
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leading.set(i64::from(leads));
    }

    pub(crate) fn reconciled(&self, is_success: bool) {
        self.reconciles.get_or_create(&result(is_success)).inc();
    }

    pub(crate) fn reviewed(&self, verdict: Verdict) {
        self.reviews.get_or_create(&word(verdict)).inc();
    }
}

fn result(is_success: bool) -> [(&'static str, &'static str); 1] {
    [("result", if is_success { "success" } else { "failed" })]
}

fn word(verdict: Verdict) -> [(&'static str, &'static str); 1] {
    let word = match verdict {
        Verdict::Allowed => "allowed",
        Verdict::Denied => "denied",
        Verdict::Malformed => "malformed",
    };
    [("verdict", word)]
}
