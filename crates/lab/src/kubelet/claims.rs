//! Claims of pods: what is prepared for whom, and the calls to the drivers.
//! Order and texts are those of Kubernetes 1.36 (`pkg/kubelet/cm/dra`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_dra_kubelet::PreparedDevice;
use gpu_dra_model::{ClaimRef, ClaimUid};
use serde_json::Value;

use super::Shared;
use super::plugins::Plugins;
use crate::control::text;
use crate::error::chain;
use crate::events::LabEvent;
use crate::kinds::RESOURCE_CLAIM;

/// Namespace and name.
type Name = (String, String);

/// What the kubelet knows of a claim that pods on this node use.
#[derive(Debug, Clone)]
struct Claim {
    uid: ClaimUid,
    pods: BTreeSet<String>,
    /// Each driver's devices; empty lists until prepared.
    drivers: BTreeMap<String, Vec<PreparedDevice>>,
    prepared: bool,
}

/// All claims that pods on this node use.
#[derive(Debug, Default)]
pub(super) struct Cache {
    claims: Mutex<BTreeMap<Name, Claim>>,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Claim>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a restart of the kubelet does to it.
    pub(super) fn forget_prepared(&self) {
        for claim in self.lock().values_mut() {
            claim.prepared = false;
        }
    }

    /// The UIDs of all pods that a claim is held for.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.lock().values().flat_map(|claim| claim.pods.iter().cloned()).collect()
    }
}

/// A pod's claim, prepared.
#[derive(Debug, Clone)]
pub(super) struct PodClaim {
    /// The entry of the pod's `resourceClaims`; empty for the claim of extended resources.
    pub(super) entry: String,
    /// Each driver's devices.
    pub(super) drivers: BTreeMap<String, Vec<PreparedDevice>>,
}

/// The entry, and the claim's name.
fn claim_names(pod: &Value) -> Result<Vec<(String, String)>, String> {
    let statuses = pod["status"]["resourceClaimStatuses"].as_array();
    let mut names = Vec::new();
    for entry in pod["spec"]["resourceClaims"].as_array().into_iter().flatten() {
        let entry_name = text(entry, "/name");
        let direct = text(entry, "/resourceClaimName");
        if !direct.is_empty() {
            names.push((entry_name.to_owned(), direct.to_owned()));
            continue;
        }
        let status = statuses.into_iter().flatten().find(|status| status["name"] == entry_name);
        match status.map(|status| text(status, "/resourceClaimName")) {
            // The template asked for nothing.
            Some("") => {}
            Some(name) => names.push((entry_name.to_owned(), name.to_owned())),
            None => return Err("ResourceClaim not created yet".to_owned()),
        }
    }
    let extended = text(pod, "/status/extendedResourceClaimStatus/resourceClaimName");
    if !extended.is_empty() {
        names.push((String::new(), extended.to_owned()));
    }
    Ok(names)
}

impl Shared {
    /// Has all claims of a pod prepared that aren't yet.
    pub(super) async fn prepare(
        &self,
        pod: &Value,
        plugins: &Plugins,
    ) -> Result<Vec<PodClaim>, String> {
        let namespace = text(pod, "/metadata/namespace");
        let names = claim_names(pod)?;
        let mut batches: BTreeMap<String, Vec<ClaimRef>> = BTreeMap::new();
        for (_, name) in &names {
            let (uid, drivers) = self.usable(pod, namespace, name)?;
            for driver in &drivers {
                if plugins.get(driver).is_none() {
                    return Err(format!("DRA driver {driver} is not registered"));
                }
            }
            if self.enter(pod, (namespace, name), &uid, &drivers)? {
                continue;
            }
            for driver in drivers {
                batches.entry(driver).or_default().push(ClaimRef {
                    uid: uid.clone(),
                    namespace: namespace.to_owned(),
                    name: name.clone(),
                });
            }
        }
        for (driver, claims) in &batches {
            self.call_prepare(plugins, driver, claims).await?;
        }
        let mut cache = self.cache.lock();
        let mut prepared = Vec::new();
        for (entry, name) in names {
            let key = (namespace.to_owned(), name);
            let Some(claim) = cache.get_mut(&key) else { continue };
            claim.prepared = true;
            prepared.push(PodClaim { entry, drivers: claim.drivers.clone() });
        }
        Ok(prepared)
    }

    /// Reads the claim from the API server and checks that this pod may use it: its UID and drivers.
    fn usable(
        &self,
        pod: &Value,
        namespace: &str,
        name: &str,
    ) -> Result<(ClaimUid, BTreeSet<String>), String> {
        let claim = self
            .server
            .get(&RESOURCE_CLAIM, namespace, name)
            .map_err(|err| format!("fetch ResourceClaim {namespace}/{name}: {err}"))?;
        let pod_uid = &pod["metadata"]["uid"];
        let reserved = claim["status"]["reservedFor"].as_array();
        if !reserved.into_iter().flatten().any(|consumer| &consumer["uid"] == pod_uid) {
            let (pod, uid) = (text(pod, "/metadata/name"), text(pod, "/metadata/uid"));
            return Err(format!(
                "pod {pod} ({uid}) is not allowed to use ResourceClaim {name} ({})",
                text(&claim, "/metadata/uid")
            ));
        }
        let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
        let Some(results) = results else {
            return Err(format!("ResourceClaim {name} is not allocated"));
        };
        let drivers = results.iter().map(|result| text(result, "/driver").to_owned()).collect();
        let uid = ClaimUid::new(text(&claim, "/metadata/uid")).map_err(|err| err.to_string())?;
        Ok((uid, drivers))
    }

    /// Notes that the pod uses the claim; whether it is prepared already.
    fn enter(
        &self,
        pod: &Value,
        (namespace, name): (&str, &str),
        uid: &ClaimUid,
        drivers: &BTreeSet<String>,
    ) -> Result<bool, String> {
        let mut cache = self.cache.lock();
        let key = (namespace.to_owned(), name.to_owned());
        let claim = cache.entry(key).or_insert_with(|| Claim {
            uid: uid.clone(),
            pods: BTreeSet::new(),
            drivers: drivers.iter().map(|driver| (driver.clone(), Vec::new())).collect(),
            prepared: false,
        });
        if claim.uid != *uid {
            return Err(format!(
                "old ResourceClaim with same name {name} and different UID {} still exists",
                claim.uid
            ));
        }
        claim.pods.insert(text(pod, "/metadata/uid").to_owned());
        Ok(claim.prepared)
    }

    async fn call_prepare(
        &self,
        plugins: &Plugins,
        driver: &str,
        claims: &[ClaimRef],
    ) -> Result<(), String> {
        let Some(plugin) = plugins.get(driver) else {
            return Err(format!("DRA driver {driver} is not registered"));
        };
        let mut answers = plugin.prepare(claims).await.map_err(|err| chain(&err))?;
        for claim in claims {
            let answer = answers.remove(&claim.uid).unwrap_or_else(|| Err("no answer".to_owned()));
            let devices = answer.map_err(|err| {
                format!("NodePrepareResources failed for ResourceClaim {}: {err}", claim.name)
            })?;
            let ids = devices.iter().flat_map(|device| &device.cdi_ids);
            self.herald.tell(LabEvent::ClaimPrepared {
                namespace: claim.namespace.clone(),
                name: claim.name.clone(),
                driver: driver.to_owned(),
                cdi_ids: ids.map(|id| id.as_str().to_owned()).collect(),
            });
            let key = (claim.namespace.clone(), claim.name.clone());
            if let Some(entry) = self.cache.lock().get_mut(&key) {
                entry.drivers.insert(driver.to_owned(), devices);
            }
        }
        Ok(())
    }

    /// Gives up all claims of a pod; those that no other pod on this node uses are unprepared.
    pub(super) async fn unprepare(&self, pod_uid: &str, plugins: &Plugins) -> Result<(), String> {
        let mut batches: BTreeMap<String, Vec<ClaimRef>> = BTreeMap::new();
        let mut last = Vec::new();
        {
            let mut cache = self.cache.lock();
            for ((namespace, name), claim) in cache.iter_mut() {
                if !claim.pods.contains(pod_uid) {
                    continue;
                }
                if claim.pods.len() > 1 {
                    claim.pods.remove(pod_uid);
                    continue;
                }
                claim.prepared = false;
                let of = ClaimRef {
                    uid: claim.uid.clone(),
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                for driver in claim.drivers.keys() {
                    batches.entry(driver.clone()).or_default().push(of.clone());
                }
                last.push(of);
            }
        }
        for (driver, claims) in &batches {
            let Some(plugin) = plugins.get(driver) else {
                return Err(format!("DRA driver {driver} is not registered"));
            };
            let mut answers = plugin.unprepare(claims).await.map_err(|err| chain(&err))?;
            for claim in claims {
                let answer = answers.remove(&claim.uid).unwrap_or(Ok(()));
                answer.map_err(|err| {
                    format!("NodeUnprepareResources failed for ResourceClaim {}: {err}", claim.name)
                })?;
            }
        }
        for ClaimRef { uid, namespace, name } in last {
            let key = (namespace.clone(), name.clone());
            let mut cache = self.cache.lock();
            if cache.get(&key).is_some_and(|claim| claim.uid == uid && claim.pods.len() <= 1) {
                cache.remove(&key);
            }
            drop(cache);
            self.herald.tell(LabEvent::ClaimUnprepared { namespace, name });
        }
        Ok(())
    }
}
