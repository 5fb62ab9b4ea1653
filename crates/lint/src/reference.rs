//! What this driver publishes, as a stand-in where no fleet is given: a GPU with MIG devices,
//! one without, and one of which the driver says nothing. Made by the code that makes the real
//! slices, so the names can't drift.

use std::collections::BTreeSet;

use gpu_dra_model::Inventory;
use gpu_dra_slices::{Names, Policy, build};
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

/// The driver's name.
pub(crate) const DRIVER: &str = "gpu.nvidia.com";
/// The domain of the standard attributes.
pub(crate) const STANDARD: &str = "resource.kubernetes.io";

const INVENTORY: &str = include_str!("reference.json");

/// Devices of the driver.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// With all attributes.
    pub(crate) full: Vec<Device>,
    /// A whole GPU without those that are left out where unknown.
    pub(crate) bare: Vec<Device>,
}

/// The devices; none if the inventory beside this file were broken, which a test sees.
pub(crate) fn reference() -> Reference {
    let Ok(inventory) = serde_json::from_str::<Inventory>(INVENTORY) else {
        return Reference::default();
    };
    let mut names = Names::default();
    names.assign(&inventory);
    let pool = build(&inventory, &names, &Policy::default(), &BTreeSet::new()).pool;
    let mut reference = Reference::default();
    for device in pool.devices() {
        let is_bare = device.name == "gpu-2";
        let list = if is_bare { &mut reference.bare } else { &mut reference.full };
        list.push(device.clone());
    }
    let vfio = reference.full.iter().find(|device| device.name == "gpu-1").cloned();
    reference.full.extend(vfio.map(passed_through));
    reference
}

/// A GPU that is passed through to a virtual machine, as the incumbent publishes it.
fn passed_through(mut gpu: Device) -> Device {
    gpu.name = "gpu-vfio-1".to_owned();
    let attributes = gpu.attributes.get_or_insert_default();
    attributes.retain(|name, _| name.contains('/') || name == "uuid" || name == "productName");
    let text = |value: &str| DeviceAttribute {
        string: Some(value.to_owned()),
        ..DeviceAttribute::default()
    };
    for (name, value) in [("type", "vfio"), ("deviceID", "0x27b8"), ("vendorID", "0x10de")] {
        attributes.insert(name.to_owned(), text(value));
    }
    if let Some(capacity) = &mut gpu.capacity
        && let Some(memory) = capacity.remove("memory")
    {
        capacity.insert("addressableMemory".to_owned(), memory);
    }
    gpu
}

#[cfg(test)]
mod tests {
    use gpu_dra_slices::attributes::{Unknown, WHOLE_GPU};

    use super::*;

    #[test]
    fn it_has_every_attribute_and_every_type() {
        let reference = reference();
        let [bare] = reference.bare.as_slice() else { panic!("one bare GPU") };
        let has =
            |device: &Device, key: &str| device.attributes.as_ref().unwrap().contains_key(key);
        for row in WHOLE_GPU {
            assert!(
                reference.full.iter().any(|d| d.name == "gpu-0" && has(d, row.key)),
                "{}",
                row.key
            );
            let left_out =
                matches!(row.unknown, Unknown::LeftOut(_)) && !row.key.ends_with("pciBusID");
            assert_eq!(has(bare, row.key), !left_out, "{}", row.key);
        }
        let types: BTreeSet<_> = reference
            .full
            .iter()
            .filter_map(|device| device.attributes.as_ref()?.get("type")?.string.as_deref())
            .collect();
        assert_eq!(types.into_iter().collect::<Vec<_>>(), ["gpu", "mig", "monitor", "vfio"]);
        assert!(reference.full.iter().any(|d| has(d, "profile") && has(d, "parentUUID")));
    }
}
