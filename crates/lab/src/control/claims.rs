//! The claim controller: makes claims from templates, lets go of claims whose pods are done, takes back what
//! nobody uses. As kube-controller-manager's, without its queues: each change is dealt with at once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{finished, is_deleting, text};
use crate::api::{ApiServer, DeleteOptions, Notice, Subresource, WriteOptions};
use crate::error::ApiError;
use crate::events::Herald;
use crate::kinds::{POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
use crate::selector::Selector;

const NAME: &str = "resource-claim-controller";
/// How often a change is dealt with when others write at the same time.
const TRIES: usize = 5;
/// Keeps an allocated claim from being deleted.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Which entry of the pod's `resourceClaims` a generated claim is for.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

pub(crate) struct ClaimController {
    server: Arc<ApiServer>,
    herald: Herald,
}

impl ClaimController {
    pub(crate) fn new(server: Arc<ApiServer>, herald: Herald) -> Self {
        Self { server, herald }
    }

    /// Runs until the server stops.
    pub(crate) async fn run(self) {
        let all = Selector::default;
        let mut pods = self.server.watch(&POD, "", all(), None);
        let mut claims = self.server.watch(&RESOURCE_CLAIM, "", all(), None);
        let mut templates = self.server.watch(&RESOURCE_CLAIM_TEMPLATE, "", all(), None);
        loop {
            let notice = tokio::select! {
                notice = pods.next(None) => notice,
                notice = claims.next(None) => notice,
                notice = templates.next(None) => notice,
            };
            match notice {
                None => return,
                Some(Ok(Notice::Object(_, object))) => self.deal_with(&object),
                Some(Ok(_)) => {}
                Some(Err(_)) => {
                    pods = self.server.watch(&POD, "", all(), None);
                    claims = self.server.watch(&RESOURCE_CLAIM, "", all(), None);
                    templates = self.server.watch(&RESOURCE_CLAIM_TEMPLATE, "", all(), None);
                }
            }
        }
    }

    /// Each step reads the present anew, so that one who was overtaken only has to start again.
    fn deal_with(&self, object: &Value) {
        for _ in 0..TRIES {
            match self.changed(object) {
                Ok(()) => return,
                Err(err) => tracing::debug!(%err, "claim controller was overtaken"),
            }
        }
        tracing::warn!(name = text(object, "/metadata/name"), "claims not brought up to date");
    }

    fn changed(&self, object: &Value) -> Result<(), ApiError> {
        let namespace = text(object, "/metadata/namespace");
        match object["kind"].as_str() {
            Some("Pod") => self.sync_pod(object),
            Some("ResourceClaim") => self.sync_claim(namespace, text(object, "/metadata/name")),
            _ => {
                let (pods, _) = self.server.list(&POD, namespace, &Selector::default());
                pods.iter().try_for_each(|pod| self.sync_pod(pod))
            }
        }
    }

    fn sync_pod(&self, seen: &Value) -> Result<(), ApiError> {
        let (namespace, name) = (text(seen, "/metadata/namespace"), text(seen, "/metadata/name"));
        let pod = self.server.get(&POD, namespace, name).ok();
        let pod = pod.filter(|pod| pod["metadata"]["uid"] == seen["metadata"]["uid"]);
        let (claims, _) = self.server.list(&RESOURCE_CLAIM, namespace, &Selector::default());
        for claim in claims {
            let reserved = claim["status"]["reservedFor"].as_array().into_iter().flatten();
            let uid = &seen["metadata"]["uid"];
            if reserved.into_iter().any(|consumer| &consumer["uid"] == uid)
                || owned_by(&claim, seen)
            {
                self.sync_claim(namespace, text(&claim, "/metadata/name"))?;
            }
        }
        match pod {
            Some(pod) if !finished(&pod) && !is_deleting(&pod) => self.make_claims(&pod),
            _ => Ok(()),
        }
    }

    /// A claim for each template that the pod names, and its name in the pod's status.
    fn make_claims(&self, pod: &Value) -> Result<(), ApiError> {
        let mut statuses = Vec::new();
        for entry in pod["spec"]["resourceClaims"].as_array().into_iter().flatten() {
            let template = text(entry, "/resourceClaimTemplateName");
            if template.is_empty() {
                continue;
            }
            match self.make_claim(pod, text(entry, "/name"), template) {
                Ok(name) => {
                    statuses.push(json!({"name": entry["name"], "resourceClaimName": name}));
                }
                Err(err) => {
                    let why = format!("PodResourceClaim {}: {err}", text(entry, "/name"));
                    self.herald.warn(pod, NAME, "FailedResourceClaimCreation", &why);
                }
            }
        }
        let have = pod["status"]["resourceClaimStatuses"].as_array();
        if have.map(Vec::as_slice).unwrap_or_default() == statuses {
            return Ok(());
        }
        let patch = json!({"status": {"resourceClaimStatuses": statuses}});
        let at = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        super::patch_status(&self.server, &POD, at, patch, NAME)
    }

    fn make_claim(&self, pod: &Value, entry: &str, template: &str) -> Result<String, ApiError> {
        let namespace = text(pod, "/metadata/namespace");
        let (claims, _) = self.server.list(&RESOURCE_CLAIM, namespace, &Selector::default());
        let made = claims.iter().find(|claim| {
            owned_by(claim, pod) && claim["metadata"]["annotations"][POD_CLAIM_NAME] == entry
        });
        if let Some(made) = made {
            return Ok(text(made, "/metadata/name").to_owned());
        }
        let template = self.server.get(&RESOURCE_CLAIM_TEMPLATE, namespace, template)?;
        let mut metadata = template["spec"]["metadata"].clone();
        metadata["annotations"][POD_CLAIM_NAME] = entry.into();
        metadata["generateName"] = format!("{}-{entry}-", text(pod, "/metadata/name")).into();
        metadata["ownerReferences"] = json!([super::owner(pod)]);
        let claim = json!({"metadata": metadata, "spec": template["spec"]["spec"]});
        let by = WriteOptions::by(NAME);
        let made = self.server.create(&RESOURCE_CLAIM, namespace, claim, &by)?;
        Ok(text(&made.object, "/metadata/name").to_owned())
    }

    fn sync_claim(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let Ok(claim) = self.server.get(&RESOURCE_CLAIM, namespace, name) else { return Ok(()) };
        let reserved = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let valid: Vec<Value> =
            reserved.iter().filter(|consumer| self.uses(namespace, consumer)).cloned().collect();
        let allocated = claim["status"].get("allocation").is_some();
        let released = valid.is_empty() && (!reserved.is_empty() || is_deleting(&claim));
        let mut claim = claim;
        if valid.len() < reserved.len() || (released && allocated) {
            let mut new = (*claim).clone();
            if let Some(status) = new["status"].as_object_mut() {
                status.remove("reservedFor");
                if released {
                    status.remove("allocation");
                } else {
                    status.insert("reservedFor".to_owned(), valid.clone().into());
                }
            }
            let part = Subresource::Status;
            let by = WriteOptions::by(NAME);
            claim = self.server.update(&RESOURCE_CLAIM, (namespace, name), part, new, &by)?.object;
        }
        let protected = claim["metadata"]["finalizers"].as_array();
        if claim["status"].get("allocation").is_none()
            && protected.is_some_and(|list| list.iter().any(|finalizer| finalizer == FINALIZER))
            && (released || is_deleting(&claim))
        {
            let mut new = (*claim).clone();
            if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
            let by = WriteOptions::by(NAME);
            let part = Subresource::Main;
            claim = self.server.update(&RESOURCE_CLAIM, (namespace, name), part, new, &by)?.object;
        }
        if valid.is_empty() && self.owner_is_done(&claim) && !is_deleting(&claim) {
            let uid = claim["metadata"]["uid"].as_str().map(str::to_owned);
            let options = DeleteOptions { uid, ..DeleteOptions::default() };
            self.server.delete(&RESOURCE_CLAIM, namespace, name, &options)?;
        }
        Ok(())
    }

    /// Whether a consumer of a claim is a pod that is still there and not done.
    fn uses(&self, namespace: &str, consumer: &Value) -> bool {
        if consumer["resource"] != "pods" {
            return true;
        }
        self.server.get(&POD, namespace, text(consumer, "/name")).is_ok_and(|pod| {
            let never_ran = is_deleting(&pod) && text(&pod, "/spec/nodeName").is_empty();
            pod["metadata"]["uid"] == consumer["uid"] && !finished(&pod) && !never_ran
        })
    }

    /// A generated claim of a pod that ran to its end isn't needed any more.
    fn owner_is_done(&self, claim: &Value) -> bool {
        let owners = claim["metadata"]["ownerReferences"].as_array();
        let pod = owners.into_iter().flatten().find(|owner| owner["kind"] == "Pod");
        let namespace = text(claim, "/metadata/namespace");
        pod.is_some_and(|owner| match self.server.get(&POD, namespace, text(owner, "/name")) {
            Ok(pod) => pod["metadata"]["uid"] == owner["uid"] && finished(&pod),
            Err(_) => false,
        })
    }
}

fn owned_by(claim: &Value, pod: &Value) -> bool {
    let owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| owner["uid"] == pod["metadata"]["uid"])
}
