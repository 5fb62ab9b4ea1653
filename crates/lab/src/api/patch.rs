//! Patches: the three that edit an object as it is, and server-side apply.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::input::Accepted;
use super::write::{PatchType, Subresource, TRIES, WriteOptions, Written};
use super::{ApiServer, FieldValidation};
use crate::apply::{self, Operation, Writer};
use crate::error::ApiError;
use crate::json::Document;
use crate::kinds::Kind;
use crate::schema::{self, Shape};

impl ApiServer {
    /// Patches an object, or its status. Apply creates what isn't there.
    ///
    /// # Errors
    /// As a real API server: 400, 404, 409 for a contested field or a named old revision, 422.
    pub fn patch(
        &self,
        kind: &'static Kind,
        (namespace, name): (&str, &str),
        subresource: Subresource,
        (patch_type, patch): (PatchType, Value),
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let document = Document { value: patch, duplicates: Vec::new() };
        let at = (namespace, name);
        self.patch_document(kind, at, subresource, (patch_type, &document), options)
    }

    pub(crate) fn patch_document(
        &self,
        kind: &'static Kind,
        at: (&str, &str),
        subresource: Subresource,
        (patch_type, document): (PatchType, &Document),
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let mut failure = ApiError::modified(kind, at.1);
        for _ in 0..TRIES {
            let tried = match patch_type {
                PatchType::Apply => self.apply_once(kind, at, subresource, document, options),
                edit => self.edit_once(kind, at, subresource, (edit, document), options),
            };
            match tried {
                Err(err) if err.reason == "Conflict" && err.causes.is_empty() => failure = err,
                done => return done,
            }
        }
        Err(failure)
    }

    fn edit_once(
        &self,
        kind: &'static Kind,
        (namespace, name): (&str, &str),
        subresource: Subresource,
        (patch_type, document): (PatchType, &Document),
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let old = self.get(kind, namespace, name)?;
        let mut patched = kind.shown(&old);
        edit(kind, &mut patched, patch_type, &document.value)?;
        let patched = Document { value: patched, duplicates: document.duplicates.clone() };
        let Accepted { object, warnings } =
            self.accept(kind, &patched, options.field_validation)?;
        let new = self.replacement(kind, &old, object, subresource)?;
        let writer = Writer::new(options, Operation::Update, subresource);
        let new = apply::track(kind, Some(&old), new, &writer);
        let object = self.swap(kind, &old, new, options.dry_run)?;
        Ok(Written { object, created: false, warnings })
    }

    fn apply_once(
        &self,
        kind: &'static Kind,
        (namespace, name): (&str, &str),
        subresource: Subresource,
        document: &Document,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if options.field_manager.is_empty() {
            return Err(ApiError::bad_request(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ));
        }
        // Type, unknown and doubled fields; the filled-in object isn't what is applied.
        let warnings = self.accept(kind, document, options.field_validation)?.warnings;
        let applied = self.sparse(kind, namespace, name, &document.value)?;
        let writer = Writer::new(options, Operation::Apply, subresource);
        let live = match self.get(kind, namespace, name) {
            Ok(live) => Some(live),
            Err(err) if err.code == 404 && subresource == Subresource::Main => None,
            Err(err) => return Err(err),
        };
        let merged = apply::apply(kind, live.as_deref(), &applied, &writer, options.force)?;
        let managed = merged["metadata"].get("managedFields").cloned();
        let document = Document { value: kind.shown(&merged), duplicates: Vec::new() };
        let Accepted { object, .. } = self.accept(kind, &document, FieldValidation::Ignore)?;
        let Some(live) = live else {
            let mut object = self.prepare(kind, namespace, object)?;
            put_managed(&mut object, managed);
            return self.insert(kind, object, warnings, options);
        };
        let mut new = self.replacement(kind, &live, object, subresource)?;
        put_managed(&mut new, managed);
        let object = self.swap(kind, &live, new, options.dry_run)?;
        Ok(Written { object, created: false, warnings })
    }

    /// Just the fields that the manager gives, with the name from the path.
    fn sparse(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        given: &Value,
    ) -> Result<Value, ApiError> {
        let decoded = self
            .faults()
            .with_dropped(|dropped| schema::decode_sparse(kind.schema, given, dropped))
            .map_err(|mismatch| ApiError::bad_request(mismatch.0))?;
        let mut applied = kind.to_stored(decoded.value);
        if !applied["metadata"].is_object() {
            applied["metadata"] = json!({});
        }
        if applied["metadata"].get("managedFields").is_some() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let given_name = applied["metadata"]["name"].as_str().unwrap_or_default();
        if !given_name.is_empty() && given_name != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given_name}) does not match the name on the URL ({name})"
            )));
        }
        applied["metadata"]["name"] = name.into();
        if !namespace.is_empty() {
            applied["metadata"]["namespace"] = namespace.into();
        }
        Ok(applied)
    }
}

fn put_managed(object: &mut Value, managed: Option<Value>) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(managed) = managed {
            metadata.insert("managedFields".to_owned(), managed);
        }
    }
}

fn edit(kind: &Kind, object: &mut Value, how: PatchType, patch: &Value) -> Result<(), ApiError> {
    match how {
        PatchType::Json => {
            let patch: json_patch::Patch = serde_json::from_value(patch.clone())
                .map_err(|err| ApiError::bad_request(format!("not a JSON patch: {err}")))?;
            json_patch::patch(object, &patch).map_err(|err| {
                ApiError::new(
                    422,
                    "Invalid",
                    Cow::from(format!(
                        "the server rejected our request due to an error in our request: {err}"
                    )),
                )
            })
        }
        PatchType::Strategic => {
            apply::strategic(&Shape::Struct(kind.schema), object, patch);
            Ok(())
        }
        PatchType::Merge | PatchType::Apply => {
            json_patch::merge(object, patch);
            Ok(())
        }
    }
}
