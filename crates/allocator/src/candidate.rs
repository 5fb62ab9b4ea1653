//! A device that may be allocated, with what selectors, capacity and counters need of it,
//! read once per attempt.

use gpu_dra_cel::{Attribute, DeviceView};
use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceSlice};

use crate::capacity::Capacity;
use crate::counters::Counters;
use crate::node::Location;
use crate::state::DeviceId;

/// What a device takes of shared counters: counter set, counters.
pub(crate) type Consumption<'a> = Vec<(&'a str, Counters<'a>)>;

/// A device that may be allocated.
pub(crate) struct Candidate<'a> {
    pub(crate) id: DeviceId,
    /// The place of its pool among the node's.
    pub(crate) pool: usize,
    pub(crate) slice: &'a ResourceSlice,
    pub(crate) device: &'a Device,
    pub(crate) view: DeviceView,
    pub(crate) capacity: Vec<Capacity<'a>>,
    pub(crate) consumes: Consumption<'a>,
}

impl<'a> Candidate<'a> {
    /// Reads a device; its pool's place is set later.
    ///
    /// # Errors
    /// What in it is no quantity, or not supported. The API server lets neither through at
    /// default gates.
    pub(crate) fn read(slice: &'a ResourceSlice, device: &'a Device) -> Result<Self, String> {
        let shareable = device.allow_multiple_allocations == Some(true);
        let mut view = DeviceView::new(&slice.spec.driver, shareable);
        for (name, value) in device.attributes.iter().flatten() {
            view.add_attribute(name, attribute(value));
        }
        let mut capacity = Vec::new();
        for (name, value) in device.capacity.iter().flatten() {
            let read = Capacity::read(name, value)?;
            view.add_capacity(name, read.value);
            capacity.push(read);
        }
        let consumes = consumption(device)?;
        Ok(Self { id: id_of(slice, device), pool: 0, slice, device, view, capacity, consumes })
    }

    /// Several claims may have a part each.
    pub(crate) fn is_shareable(&self) -> bool {
        self.device.allow_multiple_allocations == Some(true)
    }

    /// Where the device is, by itself or by its slice.
    pub(crate) fn location(&self) -> Location<'a> {
        if self.slice.spec.per_device_node_selection == Some(true) {
            device_location(self.device)
        } else {
            slice_location(self.slice)
        }
    }
}

pub(crate) fn slice_location(slice: &ResourceSlice) -> Location<'_> {
    Location {
        node_name: slice.spec.node_name.as_deref(),
        all_nodes: slice.spec.all_nodes == Some(true),
        selector: slice.spec.node_selector.as_ref(),
    }
}

pub(crate) fn device_location(device: &Device) -> Location<'_> {
    Location {
        node_name: device.node_name.as_deref(),
        all_nodes: device.all_nodes == Some(true),
        selector: device.node_selector.as_ref(),
    }
}

pub(crate) fn id_of(slice: &ResourceSlice, device: &Device) -> DeviceId {
    DeviceId {
        driver: slice.spec.driver.clone(),
        pool: slice.spec.pool.name.clone(),
        device: device.name.clone(),
    }
}

fn attribute(value: &DeviceAttribute) -> Attribute {
    match value {
        DeviceAttribute { int: Some(value), .. } => Attribute::Int(*value),
        DeviceAttribute { bool: Some(value), .. } => Attribute::Bool(*value),
        DeviceAttribute { string: Some(value), .. } => Attribute::String(value.clone()),
        DeviceAttribute { version: Some(value), .. } => Attribute::Version(value.clone()),
        _ => Attribute::List,
    }
}

/// What a device takes of its pool's counters.
pub(crate) fn consumption(device: &Device) -> Result<Consumption<'_>, String> {
    let mut read = Vec::new();
    for consumed in device.consumes_counters.iter().flatten() {
        // With the feature gate off, which is the default, the scheduler ignores such pools.
        if consumed.compatibility_groups.as_ref().is_some_and(|groups| !groups.is_empty()) {
            return Err(format!("device {}: compatibilityGroups are not supported", device.name));
        }
        read.push((consumed.counter_set.as_str(), Counters::read(&consumed.counters)?));
    }
    Ok(read)
}

/// A quantity of the API, which has checked it.
pub(crate) fn quantity(text: &str, what: &str) -> Result<Quantity, String> {
    text.parse().map_err(|error| format!("{what}: {error}"))
}
