//! Opaque configs of this driver, decoded as its node agent does: one that it refuses keeps a
//! pod from starting that the scheduler has placed.

use gpu_dra_model::config::{ConfigError, MAX_CONFIG_BYTES, are_alternatives, decode, problems};
use k8s_openapi::api::resource::v1::{OpaqueDeviceConfiguration, ResourceClaim};

use super::{Adviser, Weight};
use crate::question::{self, full_name};
use crate::report::Advice;

/// The driver whose configs are known.
const DRIVER: &str = "gpu.nvidia.com";

impl Adviser<'_> {
    /// Reads the configs of a claim and of its classes.
    pub(super) fn configs(&mut self, claim: &ResourceClaim, is_open: bool) {
        let mut found = Vec::new();
        let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        let configs = devices.into_iter().flat_map(|devices| devices.config.iter().flatten());
        for (place, config) in configs.enumerate() {
            let names = config.requests.as_deref().unwrap_or_default();
            let is_sure = !are_alternatives(names.iter().map(String::as_str));
            let about = format!("claim {}, config #{place}", full_name(&claim.metadata));
            found.extend(config.opaque.iter().flat_map(|opaque| refused(&about, opaque, is_sure)));
        }
        for name in question::classes(claim) {
            let spec = self.class(name).and_then(|class| class.spec.as_ref());
            let configs = spec.into_iter().flat_map(|spec| spec.config.iter().flatten());
            for (place, config) in configs.enumerate() {
                let about = format!("class {name}, config #{place}");
                found.extend(config.opaque.iter().flat_map(|opaque| refused(&about, opaque, true)));
            }
        }
        for advice in found {
            if is_open {
                self.refuse_by("the node agent", advice);
            } else {
                self.add(Weight::Refused, advice);
            }
        }
    }
}

/// What the node agent has against a config; `is_sure`: it comes to be used.
fn refused(about: &str, opaque: &OpaqueDeviceConfiguration, is_sure: bool) -> Vec<Advice> {
    if opaque.driver != DRIVER {
        return Vec::new();
    }
    let parameters = &opaque.parameters.0;
    let bytes = serde_json::to_vec(parameters).map_or(0, |text| text.len());
    let found = if bytes > MAX_CONFIG_BYTES {
        vec![ConfigError::TooLarge { bytes }]
    } else {
        let unserved = decode(parameters).ok().and_then(|config| config.unserved());
        let mut found = problems(parameters);
        found.extend(unserved.filter(|_| is_sure));
        found
    };
    found.iter().map(|problem| Advice::new(about, problem.to_string(), None)).collect()
}
