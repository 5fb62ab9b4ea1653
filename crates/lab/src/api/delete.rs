//! Deletion: preconditions, finalizers, the pods' grace, and what goes along with an owner or a namespace.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ApiServer, identity, key_of};
use crate::error::ApiError;
use crate::kinds::{KINDS, Kind, NAMESPACE, POD};
use crate::selector::Selector;
use crate::store::Key;

/// The options of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds that a pod is given; its own setting if unset.
    pub grace_period_seconds: Option<i64>,
    /// Only if the object has this UID.
    pub uid: Option<String>,
    /// Only if the object has this revision.
    pub resource_version: Option<String>,
    /// Leave the dependents alone and without this owner.
    pub orphan: bool,
    /// Judge, answer, change nothing.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// At once, without grace.
    #[must_use]
    pub fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }
}

impl ApiServer {
    /// Deletes an object, or marks it if finalizers or a kubelet still have to let it go. Answers its last state.
    ///
    /// # Errors
    /// 404, and 409 when a precondition fails.
    pub fn delete(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
        if kind == &NAMESPACE && !options.dry_run {
            self.empty_namespace(name);
        }
        let mut store = self.store();
        let Some(old) = store.get(kind.store, &key).cloned() else {
            return Err(ApiError::not_found(kind, name));
        };
        check_preconditions(kind, &old, options)?;
        let grace = grace(kind, &old, options);
        let held = old["metadata"].get("finalizers").is_some();
        if options.dry_run {
            return Ok(old);
        }
        if grace == 0 && !held {
            let last = store.remove(kind.store, &key).unwrap_or(old);
            self.announce(&store);
            drop(store);
            if options.orphan {
                self.orphan_dependents(&last);
            } else {
                self.collect_dependents(&last);
            }
            return Ok(last);
        }
        let marked_grace = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if marked_grace.is_some_and(|marked| marked <= grace) {
            return Ok(old);
        }
        let mut marked = (*old).clone();
        marked["metadata"]["deletionTimestamp"] = identity::after(grace).into();
        marked["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        if kind.generation {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            marked["metadata"]["generation"] = (generation + 1).into();
        }
        let marked = store.put(kind.store, key, marked);
        self.announce(&store);
        Ok(marked)
    }

    /// Deletes all selected objects, as far as their finalizers let them go.
    ///
    /// # Errors
    /// The first failure; objects that are gone meanwhile are none.
    pub fn delete_collection(
        &self,
        kind: &'static Kind,
        namespace: &str,
        selector: &Selector,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Value>>, ApiError> {
        let (items, _) = self.list(kind, namespace, selector);
        for item in &items {
            let key = key_of(item);
            match self.delete(kind, &key.namespace, &key.name, options) {
                Ok(_) => {}
                Err(gone) if gone.code == 404 => {}
                Err(err) => return Err(err),
            }
        }
        Ok(items)
    }

    /// Garbage collection: what is owned by the deleted object alone goes with it.
    pub(super) fn collect_dependents(&self, owner: &Value) {
        for (kind, dependent, others) in self.dependents(owner) {
            let key = key_of(&dependent);
            let options = DeleteOptions {
                uid: dependent["metadata"]["uid"].as_str().map(str::to_owned),
                ..DeleteOptions::default()
            };
            let done = if others.is_empty() {
                self.delete(kind, &key.namespace, &key.name, &options).map(|_| ())
            } else {
                self.disown(kind, &dependent, others)
            };
            if let Err(err) = done {
                tracing::debug!(object = %key.name, %err, "dependent changed while it was collected");
            }
        }
    }

    fn orphan_dependents(&self, owner: &Value) {
        for (kind, dependent, others) in self.dependents(owner) {
            if let Err(err) = self.disown(kind, &dependent, others) {
                tracing::debug!(%err, "dependent changed while it was orphaned");
            }
        }
    }

    /// Objects that name `owner`, each with its other owners.
    fn dependents(&self, owner: &Value) -> Vec<(&'static Kind, Arc<Value>, Vec<Value>)> {
        let uid = &owner["metadata"]["uid"];
        let mut found = Vec::new();
        for kind in KINDS.into_iter().filter(|kind| kind.schema != "EventV1") {
            for object in self.list(kind, "", &Selector::default()).0 {
                let owners = object["metadata"]["ownerReferences"].as_array();
                let Some(owners) = owners else { continue };
                if owners.iter().any(|reference| &reference["uid"] == uid) {
                    let others = owners.iter().filter(|other| &other["uid"] != uid);
                    let others = others.cloned().collect();
                    found.push((kind, object, others));
                }
            }
        }
        found
    }

    fn disown(
        &self,
        kind: &'static Kind,
        object: &Arc<Value>,
        owners: Vec<Value>,
    ) -> Result<(), ApiError> {
        let mut new = (**object).clone();
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
            if !owners.is_empty() {
                metadata.insert("ownerReferences".to_owned(), Value::Array(owners));
            }
        }
        self.swap(kind, object, new, false).map(|_| ())
    }

    fn empty_namespace(&self, name: &str) {
        let kinds = KINDS.into_iter().filter(|kind| kind.namespaced && kind.schema != "EventV1");
        for kind in kinds {
            let options = DeleteOptions::now();
            if let Err(err) = self.delete_collection(kind, name, &Selector::default(), &options) {
                tracing::warn!(namespace = name, %err, "namespace isn't empty");
            }
        }
    }
}

fn check_preconditions(kind: &Kind, old: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let metadata = &old["metadata"];
    for (what, field, wanted) in [
        ("UID", "uid", &options.uid),
        ("ResourceVersion", "resourceVersion", &options.resource_version),
    ] {
        let have = metadata[field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != have) {
            return Err(ApiError::conflict(
                kind,
                name,
                &format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}"
                ),
            ));
        }
    }
    Ok(())
}

/// Only a pod that a kubelet may run is given time; a second request can only shorten it.
fn grace(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    let finished = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let scheduled = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if kind != &POD || finished || !scheduled {
        return 0;
    }
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_period_seconds.unwrap_or(own).max(0)
}

/// The answer to a deletion of many.
pub(crate) fn success(kind: &Kind, name: &str, uid: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid},
    })
}
