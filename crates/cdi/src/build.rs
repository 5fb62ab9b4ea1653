//! From a prepared claim to its spec, and from the spec to bytes that are equal whenever
//! the content is: a rewrite after a restart can be compared byte by byte.

use std::borrow::Cow;

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
/// of each device for the containers that use that device, each in the order of
/// [`ContainerEdits::sorted`]. The declared version is the lowest that the content needs.
///
/// # Errors
/// A rule of the CDI specification that the result would break: a reader would drop the
/// whole file, and the pod would fail with an "unresolvable CDI device".
pub fn claim_spec<'a>(
    driver: &DriverName,
    claim: &ClaimUid,
    devices: &'a [SpecDevice],
    common: &'a ContainerEdits,
) -> Result<Spec<'a>, SpecError> {
    let mut devices: Vec<_> = devices
        .iter()
        .map(|entry| Device {
            name: device_name(claim, &entry.device, entry.share.as_ref()),
            container_edits: sorted(&entry.edits),
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    let mut spec = Spec {
        cdi_version: CdiVersion::V0_3,
        kind: kind(driver),
        devices,
        container_edits: sorted(common),
    };
    spec.cdi_version = spec.lowest_version();
    spec.validate()?;
    Ok(spec)
}

fn sorted(edits: &ContainerEdits) -> Cow<'_, ContainerEdits> {
    if edits.is_sorted() { Cow::Borrowed(edits) } else { Cow::Owned(edits.clone().sorted()) }
}

/// A node's spec has 60 mounts and more.
const USUAL_BYTES: usize = 24 * 1024;

impl Spec<'_> {
    /// The file's content: JSON, indented for the people who look into it.
    ///
    /// # Errors
    /// [`SpecError::Encode`]; no document that the types allow is known to cause it.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SpecError> {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer_pretty(&mut bytes, self).map_err(SpecError::Encode)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
