//! The requests of a claim with their alternatives, alike and with their places.

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, DeviceClaim, DeviceSelector, DeviceToleration, ResourceClaim,
};

use crate::object::{Claim, Object};
use crate::path::Path;
use crate::world::ClaimRequest;

/// A request, or one alternative of it.
#[derive(Debug)]
pub(crate) struct Asked<'c> {
    /// `request`, or `request/subrequest`.
    pub(crate) name: String,
    /// Where its fields are.
    pub(crate) path: Path,
    pub(crate) class: &'c str,
    pub(crate) selectors: &'c [DeviceSelector],
    pub(crate) mode: Option<&'c str>,
    pub(crate) count: Option<i64>,
    pub(crate) admin: bool,
    pub(crate) tolerations: &'c [DeviceToleration],
    pub(crate) capacity: Option<&'c CapacityRequirements>,
}

impl Asked<'_> {
    /// The request, for an alternative that of which it is one.
    pub(crate) fn base(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Whether it is one alternative of several.
    pub(crate) fn is_alternative(&self) -> bool {
        self.name.contains('/')
    }

    /// Whether a constraint or config that names `name` is about it.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.base() == name
    }

    /// How many devices it gets; None for all there are.
    pub(crate) fn devices(&self) -> Option<usize> {
        (self.mode != Some("All")).then(|| usize::try_from(self.count.unwrap_or(1)).ok())?
    }
}

/// What a claim asks for.
pub(crate) fn devices(claim: &ResourceClaim) -> Option<&DeviceClaim> {
    claim.spec.as_ref()?.devices.as_ref()
}

/// The path of `spec.devices`.
pub(crate) fn devices_path(object: &Object<'_>, claim: &Claim) -> Path {
    object.root.keys(claim.spec).key("devices")
}

/// The requests, alternatives one by one.
pub(crate) fn all<'c>(object: &Object<'_>, claim: &'c Claim) -> Vec<Asked<'c>> {
    let list = devices_path(object, claim).key("requests");
    let pointer = format!("/{}/devices/requests", claim.spec.replace('.', "/"));
    let written = object.value.pointer(&pointer);
    let requests = devices(&claim.claim).and_then(|devices| devices.requests.as_deref());
    let mut all = Vec::new();
    for (place, request) in requests.unwrap_or_default().iter().enumerate() {
        let path = list.index(place);
        if let Some(exactly) = &request.exactly {
            // v1beta1 has the fields in the request itself.
            let nested = written.and_then(|list| list.get(place)?.get("exactly")).is_some();
            all.push(Asked {
                name: request.name.clone(),
                path: if nested { path.key("exactly") } else { path.clone() },
                class: &exactly.device_class_name,
                selectors: exactly.selectors.as_deref().unwrap_or_default(),
                mode: exactly.allocation_mode.as_deref(),
                count: exactly.count,
                admin: exactly.admin_access == Some(true),
                tolerations: exactly.tolerations.as_deref().unwrap_or_default(),
                capacity: exactly.capacity.as_ref(),
            });
        }
        for (number, sub) in request.first_available.iter().flatten().enumerate() {
            all.push(Asked {
                name: format!("{}/{}", request.name, sub.name),
                path: path.key("firstAvailable").index(number),
                class: &sub.device_class_name,
                selectors: sub.selectors.as_deref().unwrap_or_default(),
                mode: sub.allocation_mode.as_deref(),
                count: sub.count,
                admin: false,
                tolerations: sub.tolerations.as_deref().unwrap_or_default(),
                capacity: sub.capacity.as_ref(),
            });
        }
    }
    all
}

/// The requests as containers may name them.
pub(crate) fn names(claim: &ResourceClaim) -> Vec<ClaimRequest> {
    let requests = devices(claim).and_then(|devices| devices.requests.as_deref());
    let requests = requests.unwrap_or_default().iter().map(|request| {
        let subs = request.first_available.iter().flatten();
        let exactly = request.exactly.iter().map(|exactly| exactly.device_class_name.clone());
        ClaimRequest {
            name: request.name.clone(),
            classes: exactly.chain(subs.clone().map(|s| s.device_class_name.clone())).collect(),
            alternatives: subs.map(|sub| sub.name.clone()).collect(),
        }
    });
    requests.collect()
}
