//! A device that may be allocated, with what selectors, capacity and counters need of it,
//! read once per attempt.

use std::cell::OnceCell;
use std::rc::Rc;

use gpu_dra_cel::{Attribute, DeviceView, is_version};
use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceSlice};

use crate::Rules;
use crate::capacity::Capacity;
use crate::counters::Counters;
use crate::node::Location;
use crate::state::DeviceId;

/// What a device takes of shared counters: counter set, counters.
pub(crate) type Consumption<'a> = Vec<(&'a str, Counters<'a>)>;

/// A device that may be allocated.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) id: DeviceId,
    /// The place of its pool among the node's.
    pub(crate) pool: usize,
    pub(crate) slice: &'a ResourceSlice,
    pub(crate) device: &'a Device,
    /// Whether all attributes are of kinds that selectors can read.
    pub(crate) is_readable: bool,
    /// Made when first needed: most verdicts are known from a device that is alike.
    view: OnceCell<DeviceView>,
    pub(crate) capacity: Vec<Capacity<'a>>,
    pub(crate) consumes: Rc<Consumption<'a>>,
}

impl<'a> Candidate<'a> {
    /// Reads a device; its pool's place is set later.
    ///
    /// # Errors
    /// What in it is no quantity, or not supported. The API server lets neither through at
    /// default gates.
    pub(crate) fn read(
        slice: &'a ResourceSlice,
        device: &'a Device,
        consumes: Rc<Consumption<'a>>,
        rules: Rules,
    ) -> Result<Self, String> {
        let capacity = device.capacity.iter().flatten();
        let capacity = capacity.map(|(name, value)| Capacity::read(name, value, rules));
        // What [`attribute`] makes of it, without making it.
        let is_readable = |value: &DeviceAttribute| match value {
            DeviceAttribute { int: Some(_), .. }
            | DeviceAttribute { bool: Some(_), .. }
            | DeviceAttribute { string: Some(_), .. } => true,
            DeviceAttribute { version: Some(text), .. } => is_version(text),
            _ => false,
        };
        Ok(Self {
            id: id_of(slice, device),
            pool: 0,
            slice,
            device,
            is_readable: device.attributes.iter().flatten().all(|(_, value)| is_readable(value)),
            view: OnceCell::new(),
            capacity: capacity.collect::<Result<_, _>>()?,
            consumes,
        })
    }

    /// The device as selectors see it.
    pub(crate) fn view(&self) -> &DeviceView {
        self.view.get_or_init(|| {
            let mut view = attributes(&self.slice.spec.driver, self.device);
            for capacity in &self.capacity {
                view.add_capacity(capacity.name, capacity.value);
            }
            view
        })
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

fn id_of(slice: &ResourceSlice, device: &Device) -> DeviceId {
    DeviceId {
        driver: slice.spec.driver.clone(),
        pool: slice.spec.pool.name.clone(),
        device: device.name.clone(),
    }
}

/// The device as selectors see it.
///
/// # Errors
/// A capacity that is no quantity.
pub(crate) fn view(driver: &str, device: &Device) -> Result<DeviceView, String> {
    let mut view = attributes(driver, device);
    for (name, value) in device.capacity.iter().flatten() {
        view.add_capacity(name, quantity(&value.value.0, "capacity", name)?);
    }
    Ok(view)
}

fn attributes(driver: &str, device: &Device) -> DeviceView {
    let mut view = DeviceView::new(driver, device.allow_multiple_allocations == Some(true));
    for (name, value) in device.attributes.iter().flatten() {
        view.add_attribute(name, attribute(value));
    }
    view
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

/// A quantity of the API, which has checked it; `kind` and `name` say of what.
pub(crate) fn quantity(text: &str, kind: &str, name: &str) -> Result<Quantity, String> {
    text.parse().map_err(|error| format!("{kind} {name}: {error}"))
}
