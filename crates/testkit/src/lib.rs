//! Builders that read as sentences, for tests of all crates:
//! `claim("train").gets("gpu", "gpu-0").with_class_config(json!({..})).object()`.
//!
//! Only tests depend on it; a builder panics on a wrong name, as a test should.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use gpu_dra_model::{ClaimRef, ClaimUid, DriverName, GpuUuid};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult, OpaqueDeviceConfiguration, ResourceClaim, ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::Value;

/// The driver that all builders use.
pub const DRIVER: &str = "gpu.nvidia.com";

/// The pool of the node that all builders use.
pub const POOL: &str = "node-a";

/// [`DRIVER`] as a name.
#[must_use]
pub fn driver() -> DriverName {
    DriverName::new(DRIVER).unwrap()
}

/// The `n`-th claim UID.
#[must_use]
pub fn claim_uid(n: u32) -> ClaimUid {
    ClaimUid::new(format!("0f6c1f3a-2b7e-4c55-9d1f-{n:012x}")).unwrap()
}

/// The `n`-th GPU's UUID.
#[must_use]
pub fn gpu_uuid(n: u32) -> GpuUuid {
    GpuUuid::new(format!("GPU-11111111-0000-0000-0000-{n:012x}")).unwrap()
}

/// A claim in namespace `team-a`, allocated with nothing yet.
#[must_use]
pub fn claim(name: &str) -> ClaimBuilder {
    ClaimBuilder {
        name: name.to_owned(),
        uid: claim_uid(1),
        results: Vec::new(),
        configs: Vec::new(),
        allocated: true,
    }
}

/// Makes a ResourceClaim.
#[derive(Debug, Clone)]
pub struct ClaimBuilder {
    name: String,
    uid: ClaimUid,
    results: Vec<DeviceRequestAllocationResult>,
    configs: Vec<DeviceAllocationConfiguration>,
    allocated: bool,
}

impl ClaimBuilder {
    /// With the `n`-th UID; the first by default.
    #[must_use]
    pub fn uid(mut self, n: u32) -> Self {
        self.uid = claim_uid(n);
        self
    }

    /// Not allocated by the scheduler.
    #[must_use]
    pub fn not_allocated(mut self) -> Self {
        self.allocated = false;
        self
    }

    /// Was given `device` for `request` (or `request/subrequest`).
    #[must_use]
    pub fn gets(self, request: &str, device: &str) -> Self {
        self.result(request, device, |_| {})
    }

    /// Was given access to `device` for monitoring.
    #[must_use]
    pub fn watches(self, request: &str, device: &str) -> Self {
        self.result(request, device, |result| result.admin_access = Some(true))
    }

    /// Was given the share `id` of `device`.
    #[must_use]
    pub fn shares(self, request: &str, device: &str, id: &str) -> Self {
        self.gets_share(request, device, id, &[])
    }

    /// Was given the share `id` of `device`, with so much of its capacities.
    #[must_use]
    pub fn gets_share(
        self,
        request: &str,
        device: &str,
        id: &str,
        consumed: &[(&str, &str)],
    ) -> Self {
        let consumed = consumed
            .iter()
            .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
            .collect();
        self.result(request, device, |result| {
            result.share_id = Some(id.to_owned());
            result.consumed_capacity = Some(consumed);
        })
    }

    /// Was given a device of another driver too.
    #[must_use]
    pub fn gets_of(self, driver: &str, request: &str, device: &str) -> Self {
        self.result(request, device, |result| result.driver = driver.to_owned())
    }

    /// Was given a device of another pool.
    #[must_use]
    pub fn gets_from(self, pool: &str, request: &str, device: &str) -> Self {
        self.result(request, device, |result| result.pool = pool.to_owned())
    }

    /// Has a config from its class for these requests.
    #[must_use]
    pub fn with_class_config(self, requests: &[&str], parameters: Value) -> Self {
        self.config("FromClass", DRIVER, requests, parameters)
    }

    /// Has a config of its own for these requests.
    #[must_use]
    pub fn with_config(self, requests: &[&str], parameters: Value) -> Self {
        self.config("FromClaim", DRIVER, requests, parameters)
    }

    /// Has a config of its own for another driver.
    #[must_use]
    pub fn with_config_of(self, driver: &str, parameters: Value) -> Self {
        self.config("FromClaim", driver, &[], parameters)
    }

    /// How the kubelet names it.
    #[must_use]
    pub fn reference(&self) -> ClaimRef {
        ClaimRef { uid: self.uid.clone(), namespace: "team-a".to_owned(), name: self.name.clone() }
    }

    /// The object as the API server has it.
    #[must_use]
    pub fn object(&self) -> ResourceClaim {
        let allocation = AllocationResult {
            devices: Some(DeviceAllocationResult {
                results: Some(self.results.clone()),
                config: Some(self.configs.clone()),
            }),
            ..Default::default()
        };
        ResourceClaim {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some("team-a".to_owned()),
                uid: Some(self.uid.to_string()),
                ..Default::default()
            },
            status: Some(ResourceClaimStatus {
                allocation: self.allocated.then_some(allocation),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn result(
        mut self,
        request: &str,
        device: &str,
        change: impl FnOnce(&mut DeviceRequestAllocationResult),
    ) -> Self {
        let mut result = DeviceRequestAllocationResult {
            request: request.to_owned(),
            device: device.to_owned(),
            driver: DRIVER.to_owned(),
            pool: POOL.to_owned(),
            ..Default::default()
        };
        change(&mut result);
        self.results.push(result);
        self
    }

    fn config(mut self, source: &str, driver: &str, requests: &[&str], parameters: Value) -> Self {
        self.configs.push(DeviceAllocationConfiguration {
            source: source.to_owned(),
            requests: Some(requests.iter().map(ToString::to_string).collect()),
            opaque: Some(OpaqueDeviceConfiguration {
                driver: driver.to_owned(),
                parameters: RawExtension(parameters),
            }),
        });
        self
    }
}

/// A GpuConfig that asks for this time-slicing interval.
#[must_use]
pub fn time_slicing(interval: &str) -> Value {
    serde_json::json!({
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {
            "strategy": "TimeSlicing",
            "timeSlicingConfig": {"interval": interval},
        },
    })
}
