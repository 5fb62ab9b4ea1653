//! A driver to be measured: its socket, and claims that are allocated to its devices without
//! a scheduler.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use gpu_dra_kubelet::client::{DraApi, Plugin};
use gpu_dra_model::{ClaimRef, ClaimUid, DriverName};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

/// Where the claims are made.
pub(super) const NAMESPACE: &str = "default";

/// A driver to be measured.
pub(super) struct Target {
    /// Its name.
    pub(super) driver: DriverName,
    /// Its socket.
    pub(super) plugin: Plugin,
    /// The claims of the API server.
    pub(super) claims: kube::Api<ResourceClaim>,
    /// Pool and name of each of its whole GPUs, or of one MIG device of each GPU.
    devices: Vec<(String, String)>,
    made: std::sync::atomic::AtomicU64,
}

impl Target {
    /// Finds the devices that `driver` publishes, on GPUs of which no claim has anything: whole
    /// GPUs, where it says types, or of each GPU one MIG device of `profile`.
    pub(super) async fn find(
        client: kube::Client,
        driver: DriverName,
        socket: &Path,
        profile: Option<&str>,
    ) -> anyhow::Result<Self> {
        let slices: kube::Api<ResourceSlice> = kube::Api::all(client.clone());
        let found = slices
            .list(&ListParams::default().fields(&format!("spec.driver={driver}")))
            .await
            .context("can't list ResourceSlices")?;
        let published: Vec<_> = found
            .items
            .into_iter()
            .flat_map(|slice| {
                let pool = slice.spec.pool.name;
                slice.spec.devices.into_iter().flatten().map(move |device| (pool.clone(), device))
            })
            .collect();
        let allocated = allocated(&client, &driver).await?;
        let held = published
            .iter()
            .filter(|(pool, device)| allocated.contains(&(pool.clone(), device.name.clone())));
        let busy: BTreeSet<(&String, String)> =
            held.map(|(pool, device)| (pool, hardware(device))).collect();
        let mut devices: Vec<_> = published
            .iter()
            .filter(|(_, device)| match profile {
                None => text(device, "type").is_none_or(|kind| kind == "gpu"),
                Some(profile) => text(device, "profile") == Some(profile),
            })
            .map(|(pool, device)| (pool, hardware(device), &device.name))
            .filter(|(pool, hardware, _)| !busy.contains(&(*pool, hardware.clone())))
            .collect();
        devices.sort();
        devices.dedup_by(|a, b| (&a.0, &a.1) == (&b.0, &b.1));
        let devices: Vec<_> =
            devices.into_iter().map(|(pool, _, device)| (pool.clone(), device.clone())).collect();
        ensure!(
            !devices.is_empty(),
            "driver {driver} publishes no such device on this cluster that no claim has"
        );
        let plugin = Plugin::dial(driver.clone(), socket, DraApi::V1)?;
        let claims = kube::Api::namespaced(client, NAMESPACE);
        Ok(Self { driver, plugin, claims, devices, made: std::sync::atomic::AtomicU64::new(0) })
    }

    /// How many claims can be prepared at once.
    pub(super) fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Creates a claim that is allocated the `at`-th device.
    pub(super) async fn claim(&self, at: usize) -> anyhow::Result<ClaimRef> {
        let made = self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (pool, device) = &self.devices[at % self.devices.len()];
        let name = format!("bench-{}-{}-{made}", std::process::id(), self.driver);
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [
                {"name": "gpu", "exactly": {"deviceClassName": self.driver.as_str()}},
            ]}},
        });
        let made =
            self.claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await;
        let mut claim = made.context("can't create a claim")?;
        claim.status =
            Some(serde_json::from_value(json!({"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": self.driver.as_str(), "pool": pool, "device": device},
            ]}}}))?);
        let claim = self.claims.replace_status(&name, &PostParams::default(), &claim).await;
        let claim = claim.context("can't allocate a claim")?;
        let uid = ClaimUid::new(claim.metadata.uid.context("the claim has no UID")?)?;
        Ok(ClaimRef { uid, namespace: NAMESPACE.to_owned(), name })
    }

    /// Deletes a claim that is no longer prepared.
    pub(super) async fn delete(&self, claim: &ClaimRef) -> anyhow::Result<()> {
        self.claims.delete(&claim.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Prepares claims in one call, all of which must succeed.
    pub(super) async fn prepare(&self, claims: &[ClaimRef]) -> anyhow::Result<()> {
        for (uid, answer) in self.plugin.prepare(claims).await? {
            answer.map_err(|error| anyhow::anyhow!("claim {uid} not prepared: {error}"))?;
        }
        Ok(())
    }

    /// Unprepares claims in one call, all of which must succeed.
    pub(super) async fn unprepare(&self, claims: &[ClaimRef]) -> anyhow::Result<()> {
        for (uid, answer) in self.plugin.unprepare(claims).await? {
            answer.map_err(|error| anyhow::anyhow!("claim {uid} not unprepared: {error}"))?;
        }
        Ok(())
    }
}

/// Pool and name of the driver's devices that claims have.
async fn allocated(
    client: &kube::Client,
    driver: &DriverName,
) -> anyhow::Result<BTreeSet<(String, String)>> {
    let claims: kube::Api<ResourceClaim> = kube::Api::all(client.clone());
    let claims = claims.list(&ListParams::default()).await.context("can't list claims")?;
    let allocations = claims.items.into_iter().filter_map(|claim| claim.status?.allocation);
    let results = allocations.filter_map(|allocation| allocation.devices?.results).flatten();
    let ours = results.filter(|result| result.driver == driver.as_str());
    Ok(ours.map(|result| (result.pool, result.device)).collect())
}

/// What tells the hardware that a device is part of.
fn hardware(device: &k8s_openapi::api::resource::v1::Device) -> String {
    let names = [text(device, "parentUUID"), text(device, "uuid"), Some(device.name.as_str())];
    names.into_iter().flatten().next().unwrap_or_default().to_owned()
}

fn text<'a>(device: &'a k8s_openapi::api::resource::v1::Device, name: &str) -> Option<&'a str> {
    device.attributes.as_ref()?.get(name)?.string.as_deref()
}
