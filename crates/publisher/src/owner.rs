//! The UID of our Node object, which owns the slices. It is asked for once, and again when
//! slices vanish: the node may have been deleted and registered anew.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, future};
use gpu_dra_slices::Owner;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::error::PublishError;
use crate::writer::within_limit;

pub(crate) struct OwnerLookup {
    nodes: Api<Node>,
    node: String,
    owner: Option<Owner>,
    asking: Option<BoxFuture<'static, Result<Owner, PublishError>>>,
    not_before: Instant,
    backoff: Backoff,
}

impl OwnerLookup {
    pub(crate) fn new(nodes: Api<Node>, node: String) -> Self {
        Self {
            nodes,
            node,
            owner: None,
            asking: None,
            not_before: Instant::now(),
            backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
        }
    }

    pub(crate) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// What is known may be out of date: ask again.
    pub(crate) fn forget(&mut self) {
        self.owner = None;
        self.asking = None;
    }

    /// Comes back when an answer is there; never while the owner is known. Nothing is lost
    /// when this is dropped half-way.
    pub(crate) async fn next(&mut self) -> Result<(), PublishError> {
        if self.owner.is_some() {
            return future::pending().await;
        }
        sleep_until(self.not_before).await;
        let (nodes, node) = (&self.nodes, &self.node);
        let asking = self.asking.get_or_insert_with(|| ask(nodes.clone(), node.clone()).boxed());
        let answer = asking.await;
        self.asking = None;
        match answer {
            Ok(owner) => {
                self.owner = Some(owner);
                self.backoff.reset();
                Ok(())
            }
            Err(error) => {
                let wait = self.backoff.next().max(error.retry_after().unwrap_or_default());
                self.not_before = Instant::now() + wait;
                Err(error)
            }
        }
    }
}

/// Metadata alone: a Node's status with its image list is large.
async fn ask(nodes: Api<Node>, node: String) -> Result<Owner, PublishError> {
    let object = within_limit("get", &node, nodes.get_metadata(&node)).await?;
    Ok(Owner { uid: object.metadata.uid.unwrap_or_default() })
}
