//! Objects by kind and name, one revision counter over all, and a bounded log of changes that watches read.
//! It knows nothing of the objects' meaning and never changes one: what goes in comes out, with the revision.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

/// How many changes a watch may lag behind before it is told to list again.
const LOG: usize = 8192;

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Unique within kind and namespace.
    pub name: String,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It has new content.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Record {
    /// The store's revision after the change.
    pub revision: u64,
    /// The object's store, `resourceslices` for example.
    pub store: &'static str,
    /// Which object.
    pub key: Key,
    /// What happened.
    pub change: Change,
    /// The object after the change; for a deletion its last content with the deletion's revision.
    pub object: Arc<Value>,
    /// The object before the change.
    pub previous: Option<Arc<Value>>,
}

/// The log no longer reaches back to the revision that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest revision that can still be asked for.
    pub(crate) oldest: u64,
}

#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    objects: BTreeMap<&'static str, BTreeMap<Key, Arc<Value>>>,
    log: VecDeque<Record>,
    /// Changes up to this revision are no longer in the log.
    forgotten: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { revision: 1, objects: BTreeMap::new(), log: VecDeque::new(), forgotten: 1 }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, store: &str, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(store)?.get(key)
    }

    /// Objects in order of namespace and name.
    pub(crate) fn iter(&self, store: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.get(store).into_iter().flatten()
    }

    /// Adds or replaces; the object is given the new revision.
    pub(crate) fn put(&mut self, store: &'static str, key: Key, mut value: Value) -> Arc<Value> {
        let object = {
            self.revision += 1;
            stamp(&mut value, self.revision);
            Arc::new(value)
        };
        let previous = self.objects.entry(store).or_default().insert(key.clone(), object.clone());
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        self.record(store, key, change, object.clone(), previous);
        object
    }

    pub(crate) fn remove(&mut self, store: &'static str, key: &Key) -> Option<Arc<Value>> {
        let previous = self.objects.get_mut(store)?.remove(key)?;
        self.revision += 1;
        let mut last = (*previous).clone();
        stamp(&mut last, self.revision);
        let last = Arc::new(last);
        self.record(store, key.clone(), Change::Deleted, last.clone(), Some(previous));
        Some(last)
    }

    /// The changes after `revision`.
    pub(crate) fn since(&self, revision: u64) -> Result<Vec<Record>, Compacted> {
        if revision < self.forgotten || revision > self.revision {
            return Err(Compacted { oldest: self.forgotten });
        }
        let skip = usize::try_from(revision - self.forgotten).unwrap_or(usize::MAX);
        Ok(self.log.iter().skip(skip).cloned().collect())
    }

    /// Forgets the whole log: every watch that isn't up to date must list again.
    pub(crate) fn compact(&mut self) {
        self.log.clear();
        self.forgotten = self.revision;
    }

    fn record(
        &mut self,
        store: &'static str,
        key: Key,
        change: Change,
        object: Arc<Value>,
        previous: Option<Arc<Value>>,
    ) {
        let revision = self.revision;
        self.log.push_back(Record { revision, store, key, change, object, previous });
        if self.log.len() > LOG {
            self.log.pop_front();
            self.forgotten += 1;
        }
    }
}

fn stamp(value: &mut Value, revision: u64) {
    value["metadata"]["resourceVersion"] = Value::from(revision.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(name: &str) -> Key {
        Key { namespace: String::new(), name: name.to_owned() }
    }

    #[test]
    fn the_log_tells_each_change_once_and_in_order() {
        let mut store = Store::new();
        let start = store.revision();
        store.put("nodes", key("a"), json!({"metadata": {}}));
        store.put("nodes", key("a"), json!({"metadata": {}, "x": 1}));
        store.remove("nodes", &key("a"));
        let changes: Vec<_> =
            store.since(start).unwrap().iter().map(|r| (r.revision, r.change)).collect();
        assert_eq!(changes, [(2, Change::Added), (3, Change::Modified), (4, Change::Deleted)]);
        assert_eq!(store.since(3).unwrap().len(), 1);
        assert_eq!(store.since(4).unwrap().len(), 0);
    }

    #[test]
    fn a_forgotten_or_future_revision_is_refused() {
        let mut store = Store::new();
        for n in 0..=LOG {
            store.put("nodes", key("a"), json!({"metadata": {}, "n": n}));
        }
        assert_eq!(store.since(1).unwrap_err(), Compacted { oldest: 2 });
        assert_eq!(store.since(2).unwrap().len(), LOG);
        store.compact();
        assert!(store.since(store.revision()).unwrap().is_empty());
        assert!(store.since(store.revision() + 1).is_err());
    }
}
