//! From a prepared claim to its spec, and from the spec to bytes that are equal whenever
//! the content is: a rewrite after a restart can be compared byte by byte.

use gpu_dra_model::ids::{ClaimUid, DeviceName, DriverName};

use crate::document::{ContainerEdits, Device, Spec};
use crate::name::{ShareId, device_name, kind};
use crate::validate::SpecError;
use crate::version::CdiVersion;

/// One allocated device. The caller has merged requests that name the same one: there is
/// one CDI device per (claim, device, share), however many requests hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecDevice {
    /// Its name in the pool.
    pub device: DeviceName,
    /// Which share of it, where the allocation has one.
    pub share: Option<ShareId>,
    /// What a container gets that uses it.
    pub edits: ContainerEdits,
}

/// The spec of one claim: `common` for each container that uses the claim, and the edits
/// of each device for the containers that use that device. The declared version is the
/// lowest that the content needs.
///
/// # Errors
/// A rule of the CDI specification that the result would break: a reader would drop the
/// whole file, and the pod would fail with an "unresolvable CDI device".
pub fn claim_spec(
    driver: &DriverName,
    claim: &ClaimUid,
    devices: &[SpecDevice],
    common: &ContainerEdits,
) -> Result<Spec, SpecError> {
    let mut devices: Vec<Device> = devices
        .iter()
        .map(|entry| Device {
            name: device_name(claim, &entry.device, entry.share.as_ref()),
            container_edits: sorted(entry.edits.clone()),
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    let mut spec = Spec {
        cdi_version: CdiVersion::V0_3,
        kind: kind(driver),
        devices,
        container_edits: sorted(common.clone()),
    };
    spec.cdi_version = spec.lowest_version();
    spec.validate()?;
    Ok(spec)
}

/// Nodes and mounts in the order of their paths in the container (so a folder comes before
/// what is mounted into it). Environment and hooks keep their order: the last value of a
/// variable wins, and hooks run one after the other.
fn sorted(mut edits: ContainerEdits) -> ContainerEdits {
    edits.device_nodes.sort_by(|a, b| a.path.cmp(&b.path));
    edits.mounts.sort_by(|a, b| a.container_path.cmp(&b.container_path));
    edits.additional_gids.sort_unstable();
    edits
}

impl Spec {
    /// The file's content: JSON, indented for the people who look into it.
    ///
    /// # Errors
    /// [`SpecError::Encode`]; no document that the types allow is known to cause it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SpecError> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(SpecError::Encode)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
