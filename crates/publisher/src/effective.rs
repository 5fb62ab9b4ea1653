//! The desired pool as this API server can hold it. What the server drops is taken as
//! desired from then on, or each look would find a difference and write again; where a
//! dropped field makes devices unsafe, the safe rest of the pool takes its place.

use std::collections::BTreeSet;

use gpu_dra_slices::{DesiredPool, Feature, FieldPath, SliceContent, dropped_fields, same_meaning};
use k8s_openapi::api::resource::v1::ResourceSlice;
use tracing::warn;

/// What was learned about this API server from its answers.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    missing: BTreeSet<Feature>,
    dropped: BTreeSet<FieldPath>,
    /// What was sent, and what the server made of it.
    stored: Vec<(SliceContent, SliceContent)>,
}

impl Limits {
    /// The pool to aim at.
    pub(crate) fn apply(&self, pool: DesiredPool) -> DesiredPool {
        let mut pool = self.missing.iter().fold(pool, |pool, feature| pool.without(*feature));
        for content in &mut pool.slices {
            if let Some((_, stored)) = self.stored.iter().find(|(sent, _)| sent == content) {
                content.clone_from(stored);
            }
        }
        pool
    }

    /// Compares an answer with what was sent. True if a feature turned out to be missing,
    /// so that the rest of the plan must not be carried out.
    pub(crate) fn learn(&mut self, sent: &ResourceSlice, got: &ResourceSlice) -> bool {
        if same_meaning(&sent.spec, &got.spec) {
            return false;
        }
        let mut lacks = false;
        for path in dropped_fields(sent, got) {
            if let Some(feature) = path.feature()
                && self.missing.insert(feature)
            {
                lacks = true;
                let gate = feature.gate();
                warn!(gate, "the API server drops {feature}: what needs them is not published");
            }
            if !self.dropped.contains(&path) {
                warn!(%path, "the API server dropped a field: its feature gate is off");
                self.dropped.insert(path);
            }
        }
        if !lacks {
            let content = SliceContent::of(sent);
            self.stored.retain(|(sent, _)| *sent != content);
            self.stored.push((content, SliceContent::of(got)));
        }
        lacks
    }

    /// The server may be another now: try everything again.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// A new pool is desired: what was stored of the old one doesn't matter any more.
    pub(crate) fn forget_contents(&mut self) {
        self.stored.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.dropped.is_empty() && self.stored.is_empty()
    }

    pub(crate) fn missing(&self) -> Vec<Feature> {
        self.missing.iter().copied().collect()
    }

    pub(crate) fn dropped(&self) -> Vec<FieldPath> {
        self.dropped.iter().cloned().collect()
    }
}
