//! Watches: the changes of one kind from a revision on, as a selector sees them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch as signal;

use super::ApiServer;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::selector::Selector;
use crate::store::{Change, Record};

/// One thing that a watch tells.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An object came, changed or went, as far as the selector sees it.
    Object(Change, Arc<Value>),
    /// All changes up to this revision have been told.
    Bookmark(u64),
    /// As `Bookmark`, and all objects that were there at the start have been told.
    InitialEnd(u64),
}

/// The changes of one kind. Ends with an error when it fell too far behind.
#[derive(Debug)]
pub struct Watch {
    server: Arc<ApiServer>,
    kind: &'static Kind,
    namespace: String,
    selector: Selector,
    seen: u64,
    changed: signal::Receiver<u64>,
    pending: std::collections::VecDeque<Notice>,
}

impl ApiServer {
    /// Watches from `revision` on. Without a revision, first tells all objects that are there.
    #[must_use]
    pub fn watch(
        self: &Arc<Self>,
        kind: &'static Kind,
        namespace: &str,
        selector: Selector,
        revision: Option<u64>,
    ) -> Watch {
        let changed = self.revision.subscribe();
        let mut pending = std::collections::VecDeque::new();
        let seen = match revision {
            Some(revision) => revision,
            None => {
                let (items, revision) = self.list(kind, namespace, &selector);
                pending.extend(items.into_iter().map(|item| Notice::Object(Change::Added, item)));
                pending.push_back(Notice::InitialEnd(revision));
                revision
            }
        };
        let server = self.clone();
        let namespace = namespace.to_owned();
        Watch { server, kind, namespace, selector, seen, changed, pending }
    }
}

impl Watch {
    /// The next notice; `None` once the server stopped. With `idle`, a bookmark after that long in silence.
    ///
    /// # Errors
    /// 410 when the changes since the last notice are forgotten: list again.
    pub async fn next(&mut self, idle: Option<Duration>) -> Option<Result<Notice, ApiError>> {
        loop {
            if let Some(notice) = self.pending.pop_front() {
                return Some(Ok(notice));
            }
            if self.server.stopped.is_cancelled() {
                return None;
            }
            self.changed.borrow_and_update();
            match self.read() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(expired) => return Some(Err(expired)),
            }
            let silence = async {
                match idle {
                    Some(idle) => tokio::time::sleep(idle).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = self.server.stopped.cancelled() => return None,
                () = silence => return Some(Ok(Notice::Bookmark(self.seen))),
            }
        }
    }

    /// Drops what is there to be told already, for those who look at everything anyway.
    pub(crate) fn skip_pending(&mut self) {
        self.pending.clear();
        // An error comes again with the next call.
        if self.read().is_ok() {
            self.pending.clear();
        }
    }

    /// Moves new changes to `pending`; whether there were any that the selector sees.
    fn read(&mut self) -> Result<bool, ApiError> {
        let store = self.server.store();
        let records = store.since(self.seen).map_err(|compacted| {
            ApiError::expired(&format!(
                "too old resource version: {} ({})",
                self.seen, compacted.oldest
            ))
        })?;
        self.seen = store.revision();
        drop(store);
        let seen = records.iter().filter_map(|record| self.view(record));
        let seen: Vec<Notice> = seen.collect();
        self.pending.extend(seen);
        Ok(!self.pending.is_empty())
    }

    /// A change as the selector sees it: an object that no longer matches is gone, one that now does is new.
    fn view(&self, record: &Record) -> Option<Notice> {
        let mine = record.store == self.kind.store
            && (self.namespace.is_empty() || self.namespace == record.key.namespace);
        if !mine {
            return None;
        }
        let before = record.previous.as_ref().is_some_and(|old| self.selector.matches(old));
        let after = record.change != Change::Deleted && self.selector.matches(&record.object);
        let change = match (before, after) {
            (false, false) => return None,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        Some(Notice::Object(change, record.object.clone()))
    }
}
