//! The scheduler: gives each waiting pod a node and its claims devices, or says why it can't.
//! It goes over all waiting pods, oldest first, whenever something changes that could help one of them. Which
//! devices a claim gets is the allocator's decision, the same that `explain` and `lint` use.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::AllocationResult;
use serde_json::{Value, json};

use super::claims::FINALIZER;
use super::devices::{self, Devices, Snapshot, Unfit};
use super::extended::{self, SpecialClaim};
use super::{finished, is_deleting, patch_status, text};
use crate::api::{ApiServer, Notice, Subresource, Watch, WriteOptions, now};
use crate::error::ApiError;
use crate::events::Herald;
use crate::kinds::{DEVICE_CLASS, Kind, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE};
use crate::selector::Selector;

const NAME: &str = "default-scheduler";

/// Why a pod can't be placed now.
#[derive(Debug)]
enum Unplaced {
    /// Something is still to come by itself (a claim of a template); nobody needs to be told.
    Waiting,
    /// The reason, for the pod's event and condition.
    Because(String),
    /// Someone else wrote at the same time; another pass follows.
    Overtaken(ApiError),
}

impl From<ApiError> for Unplaced {
    fn from(err: ApiError) -> Self {
        Self::Overtaken(err)
    }
}

pub(crate) struct Scheduler {
    server: Arc<ApiServer>,
    herald: Herald,
}

/// A claim that the pod needs.
struct Needed {
    claim: Arc<Value>,
    /// Made for extended resources, and not stored yet.
    special: Option<SpecialClaim>,
}

impl Scheduler {
    pub(crate) fn new(server: Arc<ApiServer>, herald: Herald) -> Self {
        Self { server, herald }
    }

    /// Runs until the server stops.
    pub(crate) async fn run(self) {
        let kinds: [&'static Kind; 5] =
            [&POD, &RESOURCE_CLAIM, &RESOURCE_SLICE, &DEVICE_CLASS, &NODE];
        let mut watches: Vec<Watch> = kinds.iter().map(|kind| self.watch(kind)).collect();
        loop {
            let notices = watches.iter_mut().map(|watch| Box::pin(watch.next(None)));
            let (notice, index, _) = futures::future::select_all(notices).await;
            match notice {
                None => return,
                Some(Err(_)) => {
                    if let (Some(watch), Some(kind)) = (watches.get_mut(index), kinds.get(index)) {
                        *watch = self.watch(kind);
                    }
                }
                Some(Ok(Notice::Object(..))) => {}
                Some(Ok(_)) => continue,
            }
            // What else is there already needs no pass of its own.
            for watch in &mut watches {
                watch.skip_pending();
            }
            self.pass();
        }
    }

    fn watch(&self, kind: &'static Kind) -> Watch {
        self.server.watch(kind, "", Selector::default(), None)
    }

    fn pass(&self) {
        let waiting = Selector::field("spec.nodeName", "");
        let (mut pods, _) = self.server.list(&POD, "", &waiting);
        pods.retain(|pod| {
            !finished(pod)
                && !is_deleting(pod)
                && pod["spec"].get("schedulingGates").is_none()
                && text(pod, "/spec/schedulerName") == NAME
        });
        if pods.is_empty() {
            return;
        }
        pods.sort_by_key(|pod| text(pod, "/metadata/creationTimestamp").to_owned());
        let snapshot = Snapshot::read(&self.server);
        let mut devices = Devices::new(&snapshot);
        for pod in pods {
            match self.schedule(&pod, &snapshot, &mut devices) {
                Ok(()) | Err(Unplaced::Waiting) => {}
                Err(Unplaced::Because(why)) => self.refuse(&pod, &why),
                Err(Unplaced::Overtaken(err)) => {
                    tracing::debug!(%err, "scheduler was overtaken");
                }
            }
        }
    }

    fn schedule(
        &self,
        pod: &Value,
        snapshot: &Snapshot,
        devices: &mut Devices<'_>,
    ) -> Result<(), Unplaced> {
        let mut needed = self.needed(pod)?;
        let open: Vec<&Value> = needed
            .iter()
            .map(|needed| &*needed.claim)
            .filter(|claim| claim["status"].get("allocation").is_none())
            .collect();
        let open = devices::typed_claims(&open).map_err(Unplaced::Because)?;
        let mut reasons: Vec<String> = Vec::new();
        for node in snapshot.nodes() {
            let placed = fits(pod, &node.object)
                .and_then(|()| allocated_here(&needed, &node.object))
                .map_err(Unfit::Here)
                .and_then(|()| devices.allocate(node, &open));
            match placed {
                Ok(allocations) => {
                    let name = text(&node.object, "/metadata/name");
                    return self.bind(pod, name, &mut needed, allocations, devices);
                }
                Err(Unfit::Here(why)) => reasons.push(why),
                Err(Unfit::Everywhere(why)) => return Err(Unplaced::Because(why)),
            }
        }
        Err(Unplaced::Because(summary(reasons.len(), &reasons)))
    }

    /// The claims of the pod, and one for its extended resources.
    fn needed(&self, pod: &Value) -> Result<Vec<Needed>, Unplaced> {
        let namespace = text(pod, "/metadata/namespace");
        let statuses = pod["status"]["resourceClaimStatuses"].as_array();
        let mut needed = Vec::new();
        for entry in pod["spec"]["resourceClaims"].as_array().into_iter().flatten() {
            let direct = text(entry, "/resourceClaimName");
            let name = if direct.is_empty() {
                let mut found =
                    statuses.into_iter().flatten().filter(|s| s["name"] == entry["name"]);
                found.next().map(|status| text(status, "/resourceClaimName"))
            } else {
                Some(direct)
            };
            let Some(name) = name else { return Err(Unplaced::Waiting) };
            let claim = self
                .server
                .get(&RESOURCE_CLAIM, namespace, name)
                .map_err(|_| Unplaced::Because(format!("resourceclaim \"{name}\" not found")))?;
            if is_deleting(&claim) {
                let why = format!("resourceclaim \"{name}\" is being deleted");
                return Err(Unplaced::Because(why));
            }
            needed.push(Needed { claim, special: None });
        }
        let (classes, _) = self.server.list(&DEVICE_CLASS, "", &Selector::default());
        if let Some(special) = extended::claim(pod, &classes) {
            let claim = self.stored_special(pod).unwrap_or_else(|| Arc::new(special.claim.clone()));
            let stored = claim["metadata"].get("uid").is_some();
            needed.push(Needed { claim, special: (!stored).then_some(special) });
        }
        Ok(needed)
    }

    /// The claim for extended resources from an earlier attempt that didn't get to the end.
    fn stored_special(&self, pod: &Value) -> Option<Arc<Value>> {
        let namespace = text(pod, "/metadata/namespace");
        let (claims, _) = self.server.list(&RESOURCE_CLAIM, namespace, &Selector::default());
        claims.into_iter().find(|claim| {
            let owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            claim["metadata"]["annotations"][extended::ANNOTATION] == "true"
                && owners.into_iter().any(|owner| owner["uid"] == pod["metadata"]["uid"])
        })
    }

    /// Writes the allocations, reserves all claims for the pod, and binds it.
    fn bind(
        &self,
        pod: &Value,
        node: &str,
        needed: &mut [Needed],
        allocations: Vec<AllocationResult>,
        devices: &mut Devices<'_>,
    ) -> Result<(), Unplaced> {
        let at = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let by = WriteOptions::by(NAME);
        let mut allocations = allocations.into_iter();
        for needed in needed {
            if let Some(special) = &needed.special {
                let claim = special.claim.clone();
                needed.claim = self.server.create(&RESOURCE_CLAIM, at.0, claim, &by)?.object;
            }
            if needed.claim["metadata"]["annotations"][extended::ANNOTATION] == "true" {
                let status = extended::status(pod, &needed.claim);
                let patch = json!({"status": {"extendedResourceClaimStatus": status}});
                patch_status(&self.server, &POD, at, patch, NAME)?;
            }
            let open = needed.claim["status"].get("allocation").is_none();
            let allocation = if open { allocations.next() } else { None };
            self.reserve(pod, &needed.claim, allocation.as_ref())?;
            if let Some(allocation) = &allocation {
                devices.assume(&needed.claim, allocation);
            }
        }
        self.server.bind(at, node, &by)?;
        let message = format!("Successfully assigned {}/{} to {node}", at.0, at.1);
        self.herald.inform(pod, NAME, "Scheduled", &message);
        Ok(())
    }

    fn reserve(
        &self,
        pod: &Value,
        claim: &Value,
        allocation: Option<&AllocationResult>,
    ) -> Result<(), ApiError> {
        let at = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        let by = WriteOptions::by(NAME);
        let mut new = claim.clone();
        let mut finalizers =
            claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if allocation.is_some() && !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.into());
            new["metadata"]["finalizers"] = finalizers.into();
            let updated = self.server.update(&RESOURCE_CLAIM, at, Subresource::Main, new, &by)?;
            new = (*updated.object).clone();
        }
        if let Some(allocation) = allocation {
            new["status"]["allocation"] = json!(allocation);
            new["status"]["allocation"]["allocationTimestamp"] = now().into();
        }
        let mut consumers = new["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        if !consumers.iter().any(|consumer| consumer["uid"] == pod["metadata"]["uid"]) {
            consumers.push(json!({
                "resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
            }));
        }
        new["status"]["reservedFor"] = consumers.into();
        self.server.update(&RESOURCE_CLAIM, at, Subresource::Status, new, &by).map(|_| ())
    }

    /// Tells the reason by event and condition, unless it is the one told last.
    fn refuse(&self, pod: &Value, why: &str) {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
        if told.is_some_and(|told| told["message"] == why) {
            return;
        }
        self.herald.warn(pod, NAME, "FailedScheduling", why);
        let mut conditions = conditions;
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastProbeTime": null, "lastTransitionTime": now(),
        }));
        let at = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        let patch = json!({"status": {"conditions": conditions}});
        if let Err(err) = patch_status(&self.server, &POD, at, patch, NAME) {
            tracing::debug!(%err, "pod went while it was refused");
        }
    }
}

/// Whether the pod may run on the node, its devices aside.
fn fits(pod: &Value, node: &Value) -> Result<(), String> {
    let wanted = pod["spec"]["nodeSelector"].as_object().into_iter().flatten();
    for (key, value) in wanted {
        if node["metadata"]["labels"].get(key) != Some(value) {
            return Err("node(s) didn't match Pod's node affinity/selector".to_owned());
        }
    }
    if node["spec"]["unschedulable"] == true {
        return Err("node(s) were unschedulable".to_owned());
    }
    Ok(())
}

/// Whether the claims that have devices have them on this node.
fn allocated_here(needed: &[Needed], node: &Value) -> Result<(), String> {
    for needed in needed {
        let selector = needed.claim.pointer("/status/allocation/nodeSelector");
        if selector.is_some_and(|selector| !devices::selects(selector, node)) {
            let name = text(&needed.claim, "/metadata/name");
            return Err(format!("resourceclaim \"{name}\" is allocated on another node"));
        }
    }
    Ok(())
}

/// `0/3 nodes are available: 2 …, 1 ….`, as the real scheduler sums up.
fn summary(nodes: usize, reasons: &[String]) -> String {
    let mut counted: Vec<(usize, &str)> = Vec::new();
    for reason in reasons {
        match counted.iter_mut().find(|(_, known)| known == reason) {
            Some((count, _)) => *count += 1,
            None => counted.push((1, reason)),
        }
    }
    if counted.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let parts: Vec<String> =
        counted.iter().map(|(count, reason)| format!("{count} {reason}")).collect();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted() {
        let reasons = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(summary(3, &reasons), "0/3 nodes are available: 2 a, 1 b.");
    }
}
