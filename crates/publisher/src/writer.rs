//! One write to the API server, with a time limit and with preconditions, so that it never
//! overwrites or deletes what someone else has changed since.

use std::time::Duration;

use gpu_dra_slices::{Violation, Write, validate};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};

use crate::error::PublishError;

/// Longest wait for one answer. The client itself would wait for ever.
const LIMIT: Duration = Duration::from_secs(30);

/// What a write did.
pub(crate) enum Outcome {
    /// The slice is stored.
    Stored {
        /// What was sent.
        sent: Box<ResourceSlice>,
        /// What the server made of it.
        got: Box<ResourceSlice>,
    },
    /// The slice of this name is gone.
    Removed(String),
}

/// Carries out one write.
pub(crate) async fn execute(
    api: &Api<ResourceSlice>,
    write: Write,
) -> Result<Outcome, PublishError> {
    let params = PostParams::default();
    match write {
        Write::Create(sent) => {
            let object = label(&sent);
            let got = within_limit("create", &object, api.create(&params, &sent)).await?;
            Ok(Outcome::Stored { sent, got: Box::new(got) })
        }
        Write::Update(sent) => {
            let name = sent.metadata.name.clone().unwrap_or_default();
            let object = label(&sent);
            let got = within_limit("update", &object, api.replace(&name, &params, &sent)).await?;
            Ok(Outcome::Stored { sent, got: Box::new(got) })
        }
        Write::Delete { name, uid, resource_version } => {
            let params =
                DeleteParams::default().preconditions(Preconditions { resource_version, uid });
            let object = format!("resourceslice {name}");
            match within_limit("delete", &object, api.delete(&name, &params)).await {
                Ok(_) => Ok(Outcome::Removed(name)),
                Err(PublishError::Conflict { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) => {
                    Ok(Outcome::Removed(name))
                }
                Err(error) => Err(error),
            }
        }
    }
}

/// What the server would refuse is not sent.
pub(crate) fn check(write: &Write) -> Result<(), PublishError> {
    let slice = match write {
        Write::Create(slice) | Write::Update(slice) => slice,
        Write::Delete { .. } => return Ok(()),
    };
    first(&label(slice), validate(slice))
}

/// An error for the first violation, if there is one.
pub(crate) fn first(object: &str, violations: Vec<Violation>) -> Result<(), PublishError> {
    match violations.into_iter().next() {
        None => Ok(()),
        Some(Violation { field, rule }) => {
            Err(PublishError::Invalid { object: object.to_owned(), field, rule })
        }
    }
}

pub(crate) async fn within_limit<T>(
    verb: &'static str,
    object: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, PublishError> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer.map_err(|source| PublishError::new(verb, object, source)),
        Err(_elapsed) => {
            Err(PublishError::Timeout { verb, object: object.to_owned(), limit: LIMIT })
        }
    }
}

/// A slice that is to be created has no name yet, only how it begins.
fn label(slice: &ResourceSlice) -> String {
    let metadata = &slice.metadata;
    let name = metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default();
    format!("resourceslice {name}")
}
