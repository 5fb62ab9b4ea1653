//! Names of specs and devices.
//!
//! A vendor and class of our own (`k8s.<driver name>/claim`) can't clash with specs that
//! the NVIDIA toolkit leaves on a node. Names contain the claim's UID and are never used
//! again with other content, so a runtime that caches them can't be wrong.

use std::fmt;

use gpu_dra_model::ids::{CdiDeviceId, ClaimUid, DeviceName, DriverName, IdError};

const CLASS: &str = "claim";

/// Tells the shares of one device apart: `shareID` of an allocation result
/// (`resource.k8s.io/v1`, consumable capacity), a UUID made by the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId(Box<str>);

impl ShareId {
    /// Checks the text and wraps it. The API demands a UUID; here it is enough that the
    /// text can stand in a CDI name.
    ///
    /// Returns `None` for an empty text, one of more than 63 bytes, or one with anything but
    /// lower-case letters, digits and `-`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let valid = bytes.len() <= 63
            && bytes.iter().all(|&b| inner(b) || b == b'-')
            && bytes.last().is_some_and(|&b| inner(b));
        valid.then(|| Self(text.into()))
    }

    /// The share id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn vendor(driver: &DriverName) -> String {
    format!("k8s.{driver}")
}

/// The `vendor/class` of our specs, e.g. `k8s.gpu.nvidia.com/claim`.
#[must_use]
pub fn kind(driver: &DriverName) -> String {
    format!("{}/{CLASS}", vendor(driver))
}

/// The name of a prepared device, unique to the claim, the device and the share: the
/// kubelet reports health by it. `<claim UID>-<device>` as the incumbent writes it, with
/// `_<share id>` behind; no device name has a `_`, so the parts can't run together.
#[must_use]
pub fn device_name(claim: &ClaimUid, device: &DeviceName, share: Option<&ShareId>) -> String {
    match share {
        Some(share) => format!("{claim}-{device}_{share}"),
        None => format!("{claim}-{device}"),
    }
}

/// The qualified name, `vendor/class=name`, that Prepare answers with.
///
/// # Errors
/// Never for names made of checked parts; the check is [`CdiDeviceId`]'s own.
pub fn device_id(
    driver: &DriverName,
    claim: &ClaimUid,
    device: &DeviceName,
    share: Option<&ShareId>,
) -> Result<CdiDeviceId, IdError> {
    CdiDeviceId::new(format!("{}={}", kind(driver), device_name(claim, device, share)))
}

/// The file's name in the CDI directory, e.g. `k8s.gpu.nvidia.com-claim_<UID>.json`
/// (the CDI convention for transient specs, `<vendor>-<class>_<id>.json`).
#[must_use]
pub fn file_name(driver: &DriverName, claim: &ClaimUid) -> String {
    format!("{}-{CLASS}_{claim}.json", vendor(driver))
}

/// The claim that a file of this name in the CDI directory belongs to; `None` if the file
/// is not one of this driver's claim specs. Made for finding leftovers.
#[must_use]
pub fn claim_of_file_name(driver: &DriverName, name: &str) -> Option<ClaimUid> {
    let rest = name.strip_prefix("k8s.")?.strip_prefix(driver.as_str())?;
    let uid = rest.strip_prefix('-')?.strip_prefix(CLASS)?.strip_prefix('_')?;
    ClaimUid::new(uid.strip_suffix(".json")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> (DriverName, ClaimUid, DeviceName) {
        (
            DriverName::new("gpu.nvidia.com").unwrap(),
            ClaimUid::new("3f6d9d56-3531-4f8c-9006-3673aee2dc74").unwrap(),
            DeviceName::new("gpu-7").unwrap(),
        )
    }

    #[test]
    fn names_are_the_incumbents() {
        let (driver, claim, device) = ids();
        assert_eq!(
            device_id(&driver, &claim, &device, None).unwrap().as_str(),
            "k8s.gpu.nvidia.com/claim=3f6d9d56-3531-4f8c-9006-3673aee2dc74-gpu-7"
        );
        assert_eq!(
            file_name(&driver, &claim),
            "k8s.gpu.nvidia.com-claim_3f6d9d56-3531-4f8c-9006-3673aee2dc74.json"
        );
    }

    #[test]
    fn two_shares_of_a_device_have_two_names() {
        let (driver, claim, device) = ids();
        let share = |text| ShareId::new(text).unwrap();
        let one = share("a3f6d9d5-0000-4f8c-9006-000000000001");
        let two = share("a3f6d9d5-0000-4f8c-9006-000000000002");
        let first = device_id(&driver, &claim, &device, Some(&one)).unwrap();
        let second = device_id(&driver, &claim, &device, Some(&two)).unwrap();
        assert_ne!(first, second);
        assert!(first.as_str().contains(one.as_str()));
        // A device called like a device and a share is another device still.
        let odd = DeviceName::new("gpu-7-a3f6d9d5").unwrap();
        assert_ne!(
            device_name(&claim, &odd, None),
            device_name(&claim, &device, Some(&share("a3f6d9d5")))
        );
    }

    #[test]
    fn share_ids_that_break_names_are_refused() {
        for bad in ["", "a/b", "a=b", "A", "a-", "a b", &"a".repeat(64)] {
            assert_eq!(ShareId::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_file_name_leads_back_to_its_claim_and_to_no_other() {
        let (driver, claim, _) = ids();
        assert_eq!(claim_of_file_name(&driver, &file_name(&driver, &claim)), Some(claim.clone()));
        for other in [
            "nvidia.yaml",
            "k8s.gpu.nvidia.com-claim_not-a-uid.json",
            "k8s.gpu.nvidia.com-claim_3f6d9d56-3531-4f8c-9006-3673aee2dc74.yaml",
            ".k8s.gpu.nvidia.com-claim_3f6d9d56-3531-4f8c-9006-3673aee2dc74.json.tmp",
            "k8s.gpu.example.com-claim_3f6d9d56-3531-4f8c-9006-3673aee2dc74.json",
        ] {
            assert_eq!(claim_of_file_name(&driver, other), None, "{other}");
        }
    }
}
