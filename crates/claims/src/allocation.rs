//! The part of a ResourceClaim's allocation that is ours: the results and the opaque configs
//! of this driver. Other drivers' results and configs are none of our business.

use std::collections::BTreeMap;

use gpu_dra_model::{ClaimRef, DeviceName, DriverName, PoolName, Quantity, RequestName};
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};

use crate::refusal::Refusal;

/// What the scheduler gave this claim of this driver's devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// The claim.
    pub claim: ClaimRef,
    /// Our results, in the allocation's order.
    pub devices: Vec<AllocatedDevice>,
    /// Our opaque configs, in the allocation's order.
    pub configs: Vec<OpaqueConfig>,
}

/// One result of the allocation (`DeviceRequestAllocationResult`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// The request, or `request/subrequest`, that it serves.
    pub request: RequestName,
    /// The pool it comes from.
    pub pool: PoolName,
    /// The device.
    pub device: DeviceName,
    /// Access for monitoring: the device may belong to others, nothing may be changed.
    pub admin: bool,
    /// Which share of a device that serves several claims.
    pub share_id: Option<String>,
    /// What the share takes of the device's capacities, by their names in the driver's domain.
    pub consumed: BTreeMap<String, Quantity>,
}

/// One opaque config of this driver (`DeviceAllocationConfiguration`).
#[derive(Debug, Clone, PartialEq)]
pub struct OpaqueConfig {
    /// Position in `status.allocation.devices.config`, for messages.
    pub index: usize,
    /// Who wrote it.
    pub source: ConfigSource,
    /// The requests it is for, as `request` or `request/subrequest`; empty means all.
    pub requests: Vec<String>,
    /// The raw parameters.
    pub parameters: serde_json::Value,
}

/// Who wrote a config. The order is the precedence: what the claim says beats the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The DeviceClass, an administrator's.
    Class,
    /// The ResourceClaim, a user's.
    Claim,
}

impl Allocation {
    /// Takes our part out of a claim that was read from the API server.
    ///
    /// # Errors
    /// When the object is another one than the kubelet means, isn't allocated, or holds
    /// names that no API server lets pass.
    pub fn of(
        object: &ResourceClaim,
        claim: &ClaimRef,
        driver: &DriverName,
    ) -> Result<Self, Refusal> {
        let now = object.metadata.uid.as_deref().unwrap_or_default();
        if now != claim.uid.as_str() {
            return Err(Refusal::OtherUid { claim: claim.clone(), now: now.to_owned() });
        }
        let allocation = object.status.as_ref().and_then(|status| status.allocation.as_ref());
        let allocation = allocation.ok_or_else(|| Refusal::NotAllocated(claim.clone()))?;
        let found = allocation.devices.clone().unwrap_or_default();

        let results = found.results.unwrap_or_default();
        let ours =
            results.iter().enumerate().filter(|(_, result)| result.driver == driver.as_str());
        let devices = ours
            .map(|(index, result)| {
                device(result, driver).map_err(|error| Refusal::Malformed {
                    claim: claim.clone(),
                    index,
                    reason: error.to_string(),
                })
            })
            .collect::<Result<_, _>>()?;
        let configs = found.config.unwrap_or_default();
        let configs = configs
            .into_iter()
            .enumerate()
            .filter_map(|(index, config)| opaque(index, config, driver))
            .collect();
        Ok(Self { claim: claim.clone(), devices, configs })
    }
}

fn device(
    result: &DeviceRequestAllocationResult,
    driver: &DriverName,
) -> Result<AllocatedDevice, gpu_dra_model::IdError> {
    let consumed = result.consumed_capacity.iter().flatten().filter_map(|(name, amount)| {
        let own = name.split_once('/').is_none_or(|(domain, _)| domain == driver.as_str());
        let name = name.rsplit('/').next().unwrap_or(name);
        own.then(|| Some((name.to_owned(), amount.0.parse().ok()?))).flatten()
    });
    Ok(AllocatedDevice {
        request: RequestName::new(&result.request)?,
        pool: PoolName::new(&result.pool)?,
        device: DeviceName::new(&result.device)?,
        admin: result.admin_access.unwrap_or(false),
        share_id: result.share_id.clone(),
        consumed: consumed.collect(),
    })
}

fn opaque(
    index: usize,
    config: DeviceAllocationConfiguration,
    driver: &DriverName,
) -> Option<OpaqueConfig> {
    let opaque = config.opaque.filter(|opaque| opaque.driver == driver.as_str())?;
    // The API knows these two; an unknown one is treated as the less trusted.
    let source =
        if config.source == "FromClass" { ConfigSource::Class } else { ConfigSource::Claim };
    Some(OpaqueConfig {
        index,
        source,
        requests: config.requests.unwrap_or_default(),
        parameters: opaque.parameters.0,
    })
}
