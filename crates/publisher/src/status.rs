//! What the publisher tells the rest of the node agent: readiness, metrics and events are
//! made of it.

use std::sync::Arc;

use gpu_dra_slices::{Feature, FieldPath};

use crate::error::PublishError;

/// The state of publishing, as of the last change.
#[derive(Debug, Clone, Default)]
pub struct PublishStatus {
    /// The generation of the pool in the API server, once it was complete and as desired.
    pub published_generation: Option<i64>,
    /// Whether it is as desired now, as far as we know.
    pub in_sync: bool,
    /// Devices in the published pool.
    pub devices: usize,
    /// Slices in the published pool.
    pub slices: usize,
    /// Why it isn't as desired: the last failed write or read, until one succeeds.
    pub last_error: Option<Arc<PublishError>>,
    /// Why we may not hear of changes by others, until we do again.
    pub watch_error: Option<Arc<PublishError>>,
    /// Fields that the API server dropped from what it was sent.
    pub dropped_fields: Vec<FieldPath>,
    /// Features that the API server lacks; the pool is published without them.
    pub missing_features: Vec<Feature>,
    /// Creates, updates and deletes that the server accepted.
    pub writes_total: u64,
    /// Requests that failed.
    pub failures_total: u64,
}
