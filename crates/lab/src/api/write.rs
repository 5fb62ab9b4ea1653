//! Create and update: identity, defaults, rules, managed fields, then one compare-and-swap in the store.

use std::sync::Arc;

use serde_json::Value;

use super::input::{Accepted, FieldValidation};
use super::metadata::{check_identity, keep_identity};
use super::{ApiServer, identity, key_of, strategy};
use crate::apply::{self, Operation, Writer};
use crate::error::ApiError;
use crate::json::Document;
use crate::kinds::{Kind, NAMESPACE};
use crate::store::Key;
use crate::validate;

/// How often a patch is tried anew when others write the same object meanwhile.
pub(super) const TRIES: usize = 16;

/// Which part of an object a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// Everything but the status.
    Main,
    /// The status alone.
    Status,
}

/// How a patch's body is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' merge, in which keyed lists merge by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// The options of a write request.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Judge, answer, keep nothing.
    pub dry_run: bool,
    /// Who writes, for `managedFields`.
    pub field_manager: String,
    /// Unknown and doubled fields.
    pub field_validation: FieldValidation,
    /// Apply takes over fields of other managers.
    pub force: bool,
}

impl WriteOptions {
    /// The defaults, for the named writer.
    #[must_use]
    pub fn by(manager: &str) -> Self {
        Self { field_manager: manager.to_owned(), ..Self::default() }
    }
}

/// What a write came to.
#[derive(Debug, Clone)]
pub struct Written {
    /// The object as kept.
    pub object: Arc<Value>,
    /// Whether it is new.
    pub created: bool,
    /// Sentences for the client's `Warning` headers.
    pub warnings: Vec<String>,
}

impl ApiServer {
    /// Creates an object from its JSON value.
    ///
    /// # Errors
    /// As a real API server: 400, 404 for an unknown namespace, 409 for a taken name, 422.
    pub fn create(
        &self,
        kind: &'static Kind,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let document = Document { value: object, duplicates: Vec::new() };
        self.create_document(kind, namespace, &document, options)
    }

    pub(crate) fn create_document(
        &self,
        kind: &'static Kind,
        namespace: &str,
        document: &Document,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let Accepted { object, warnings } =
            self.accept(kind, document, options.field_validation)?;
        let object = self.prepare(kind, namespace, object)?;
        let writer = Writer::new(options, Operation::Update, Subresource::Main);
        let object = apply::track(kind, None, object, &writer);
        self.insert(kind, object, warnings, options)
    }

    /// Gives a new object its identity and defaults, and judges it.
    pub(super) fn prepare(
        &self,
        kind: &'static Kind,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        let metadata = &mut object["metadata"];
        let text =
            |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let given = text(metadata, "namespace");
        if !given.is_empty() && given != namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !text(metadata, "resourceVersion").is_empty() {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        if text(metadata, "name").is_empty() && !text(metadata, "generateName").is_empty() {
            metadata["name"] = (text(metadata, "generateName") + &identity::suffix()).into();
        }
        metadata["uid"] = identity::uid().into();
        metadata["creationTimestamp"] = identity::now().into();
        if let Some(map) = metadata.as_object_mut() {
            for field in [
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
                "selfLink",
                "managedFields",
            ] {
                map.remove(field);
            }
        }
        if kind.generation {
            metadata["generation"] = 1.into();
        }
        strategy::prepare_create(kind, &mut object);
        let mut errors = validate::create(kind, &object);
        errors.extend(self.admit(kind, &object, None));
        if !errors.is_empty() {
            return Err(ApiError::invalid(kind, &key_of(&object).name, errors));
        }
        strategy::finish(kind, &mut object);
        Ok(object)
    }

    pub(super) fn insert(
        &self,
        kind: &'static Kind,
        object: Value,
        warnings: Vec<String>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let key = key_of(&object);
        let mut store = self.store();
        if kind.namespaced {
            let namespace = Key { namespace: String::new(), name: key.namespace.clone() };
            let Some(found) = store.get(NAMESPACE.store, &namespace) else {
                return Err(ApiError::not_found(&NAMESPACE, &key.namespace));
            };
            if found["metadata"].get("deletionTimestamp").is_some() {
                return Err(ApiError::new(
                    403,
                    "Forbidden",
                    format!(
                        "{} \"{}\" is forbidden: unable to create new content in namespace {} because it is being terminated",
                        kind.qualified(),
                        key.name,
                        key.namespace
                    ),
                ));
            }
        }
        if store.get(kind.store, &key).is_some() {
            return Err(ApiError::exists(kind, &key.name));
        }
        if options.dry_run {
            return Ok(Written { object: Arc::new(object), created: true, warnings });
        }
        let object = store.put(kind.store, key, object);
        self.announce(&store);
        Ok(Written { object, created: true, warnings })
    }

    /// Replaces an object, or its status.
    ///
    /// # Errors
    /// As a real API server: 400, 404, 409 when it was changed meanwhile, 422.
    pub fn update(
        &self,
        kind: &'static Kind,
        (namespace, name): (&str, &str),
        subresource: Subresource,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let document = Document { value: object, duplicates: Vec::new() };
        self.update_document(kind, (namespace, name), subresource, &document, options)
    }

    pub(crate) fn update_document(
        &self,
        kind: &'static Kind,
        (namespace, name): (&str, &str),
        subresource: Subresource,
        document: &Document,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let Accepted { object, warnings } =
            self.accept(kind, document, options.field_validation)?;
        let writer = Writer::new(options, Operation::Update, subresource);
        let mut failure = ApiError::modified(kind, name);
        for _ in 0..TRIES {
            let old = self.get(kind, namespace, name)?;
            let new = self.replacement(kind, &old, object.clone(), subresource)?;
            let new = apply::track(kind, Some(&old), new, &writer);
            match self.swap(kind, &old, new, options.dry_run) {
                Ok(object) => return Ok(Written { object, created: false, warnings }),
                // Only a writer that named a revision is told of the race; others go again.
                Err(conflict) => failure = conflict,
            }
        }
        Err(failure)
    }

    /// The object to keep instead of `old`, judged.
    pub(super) fn replacement(
        &self,
        kind: &'static Kind,
        old: &Value,
        mut new: Value,
        subresource: Subresource,
    ) -> Result<Value, ApiError> {
        let key = key_of(old);
        check_identity(kind, &key, old, &new)?;
        keep_identity(old, &mut new);
        match subresource {
            Subresource::Main if kind.status => new["status"] = old["status"].clone(),
            Subresource::Main => {}
            Subresource::Status => {
                let status = new["status"].take();
                new = old.clone();
                new["status"] = status;
            }
        }
        strategy::prepare_update(kind, old, &mut new, subresource);
        let mut errors = validate::update(kind, &new, old, subresource);
        errors.extend(self.admit(kind, &new, Some(old)));
        if !errors.is_empty() {
            return Err(ApiError::invalid(kind, &key.name, errors));
        }
        strategy::finish(kind, &mut new);
        if kind.generation && new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = (generation + 1).into();
        }
        Ok(new)
    }

    /// Puts `new` in the place of `old` if that is still there; writes nothing when nothing changed, and
    /// removes an object that was only waiting for its last finalizer.
    pub(super) fn swap(
        &self,
        kind: &'static Kind,
        old: &Arc<Value>,
        new: Value,
        dry_run: bool,
    ) -> Result<Arc<Value>, ApiError> {
        let key = key_of(old);
        let mut store = self.store();
        let current = store.get(kind.store, &key);
        if !current.is_some_and(|current| Arc::ptr_eq(current, old)) {
            return Err(ApiError::modified(kind, &key.name));
        }
        if **old == new {
            return Ok(old.clone());
        }
        if dry_run {
            return Ok(Arc::new(new));
        }
        let released = new["metadata"].get("deletionTimestamp").is_some()
            && new["metadata"].get("finalizers").is_none()
            && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0;
        let object = store.put(kind.store, key.clone(), new);
        if released {
            store.remove(kind.store, &key);
        }
        self.announce(&store);
        drop(store);
        if released {
            self.collect_dependents(&object);
        }
        Ok(object)
    }

    /// The rules that look at other objects: access to devices for administration needs a labelled namespace.
    fn admit(
        &self,
        kind: &Kind,
        object: &Value,
        old: Option<&Value>,
    ) -> Vec<crate::error::FieldError> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let labelled = || {
            self.get(&NAMESPACE, "", namespace).is_ok_and(|found| {
                found["metadata"]["labels"]["resource.kubernetes.io/admin-access"] == "true"
            })
        };
        if old.is_some_and(|old| old["spec"] == object["spec"]) {
            return Vec::new();
        }
        validate::admin_access(kind, object, labelled)
    }
}
