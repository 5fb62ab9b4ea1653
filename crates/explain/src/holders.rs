//! Who holds devices: claims, and the pods that those are reserved for.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::question::full_name;
use crate::words;

/// What to do about devices that others hold. Kubernetes preempts no pod for devices of
/// claims (KEP-5690 is to change that).
pub(crate) const FIX: &str = "wait until it is given back, or delete the pod that uses it: no pod \
                              is preempted for its devices, whatever its priority";

/// `default/held (pod first)` of each.
pub(crate) fn named(holders: &BTreeSet<String>, claims: &[ResourceClaim]) -> Vec<String> {
    let with_pods = |holder: &String| {
        let claim = claims.iter().find(|claim| full_name(&claim.metadata) == **holder);
        let users = claim.and_then(|claim| claim.status.as_ref()?.reserved_for.as_ref());
        let pods = users.into_iter().flatten().filter(|user| user.resource == "pods");
        let pods: Vec<String> = pods.map(|pod| pod.name.clone()).collect();
        match pods.as_slice() {
            [] => holder.clone(),
            [pod] => format!("{holder} (pod {pod})"),
            pods => format!("{holder} (pods {})", words::list(pods, 3)),
        }
    };
    holders.iter().map(with_pods).collect()
}
