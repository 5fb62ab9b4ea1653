//! Where claims are read: the API server, and a map in tests.

use futures::future::BoxFuture;
use gpu_dra_model::ClaimRef;
use k8s_openapi::api::resource::v1::ResourceClaim;

/// A claim that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClaimSourceError {
    /// There is no such object.
    #[error("claim {0} doesn't exist (any more); the kubelet's next call will be without it")]
    NotFound(ClaimRef),
    /// The API server didn't give it.
    #[error("claim {claim} can't be read from the API server ({reason}); it will be tried again")]
    Unavailable {
        /// The claim.
        claim: ClaimRef,
        /// What the client said.
        reason: String,
    },
}

/// Gives the claim as it is now.
pub trait ClaimSource: Send + Sync {
    /// Reads one claim by namespace and name.
    fn get<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<ResourceClaim, ClaimSourceError>>;
}

/// The API server.
pub struct ApiServer(pub kube::Client);

impl ClaimSource for ApiServer {
    fn get<'a>(
        &'a self,
        claim: &'a ClaimRef,
    ) -> BoxFuture<'a, Result<ResourceClaim, ClaimSourceError>> {
        let api = kube::Api::<ResourceClaim>::namespaced(self.0.clone(), &claim.namespace);
        Box::pin(async move {
            match api.get_opt(&claim.name).await {
                Ok(Some(object)) => Ok(object),
                Ok(None) => Err(ClaimSourceError::NotFound(claim.clone())),
                Err(error) => Err(ClaimSourceError::Unavailable {
                    claim: claim.clone(),
                    reason: error.to_string(),
                }),
            }
        })
    }
}
