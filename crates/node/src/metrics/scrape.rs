//! A page of metrics, made when it is asked for and not kept.

use std::fmt;
use std::sync::{Arc, PoisonError};

use gpu_dra_metrics::client::registry::Registry;
use gpu_dra_metrics::text;

use super::state::State;
use super::usage::UsageSampler;

/// A page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// It can't be written.
    #[error("the page of metrics can't be written; this is a bug in the node agent")]
    Text(#[from] fmt::Error),
    /// Making it has failed inside.
    #[error("making the page of metrics failed inside; see the node agent's log")]
    Inside(#[from] tokio::task::JoinError),
}

/// Makes pages.
pub struct Scrape {
    page: Registry,
    state: Arc<State>,
    usage: UsageSampler,
    /// One page at a time: each has its own sample.
    turn: tokio::sync::Mutex<()>,
}

impl Scrape {
    /// What is counted, what is looked up, and who uses what.
    #[must_use]
    pub fn new(mut page: Registry, state: State, usage: UsageSampler) -> Self {
        let state = Arc::new(state);
        page.register_collector(Box::new(Arc::clone(&state)));
        Self { page, state, usage, turn: tokio::sync::Mutex::default() }
    }

    /// The page as of now.
    ///
    /// # Errors
    /// None that the node can cause.
    pub async fn text(self: &Arc<Self>) -> Result<String, ScrapeError> {
        let _turn = self.turn.lock().await;
        let sampled = self.usage.sample().await;
        *self.state.sampled.lock().unwrap_or_else(PoisonError::into_inner) = sampled;
        let own = Arc::clone(self);
        // It looks at the journal's files.
        Ok(tokio::task::spawn_blocking(move || text(&own.page)).await??)
    }
}
