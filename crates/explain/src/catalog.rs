//! What all devices of the cluster publish: names, kinds and values, gathered once. Advice
//! rests on it: "no device has that, but they have this".

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use gpu_dra_model::Quantity;
use gpu_dra_model::config::nearest;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};

use crate::slices::Slices;

/// Distinct values kept of one attribute. Of one with more it is not said that no device has
/// a value.
pub const MAX_VALUES: usize = 48;

/// Names and values in use.
#[derive(Debug, Default)]
pub(crate) struct Catalog<'a> {
    drivers: BTreeSet<&'a str>,
    attributes: HashMap<(&'a str, &'a str), Published<'a>>,
    capacities: HashMap<(&'a str, &'a str), Largest<'a>>,
}

/// One attribute.
#[derive(Debug, Default)]
pub(crate) struct Published<'a> {
    /// `string`, `int`, `bool`, `version`.
    pub(crate) kinds: BTreeSet<&'static str>,
    /// The first distinct values, as text.
    pub(crate) values: BTreeSet<Cow<'a, str>>,
    /// Whether there are others.
    pub(crate) has_more: bool,
    /// The types of the devices that have it: gpu, mig.
    pub(crate) types: BTreeSet<&'a str>,
}

/// One capacity.
#[derive(Debug)]
pub(crate) struct Largest<'a> {
    pub(crate) value: Quantity,
    pub(crate) what: &'a str,
}

impl<'a> Catalog<'a> {
    pub(crate) fn of(slices: &'a Slices) -> Self {
        let mut catalog = Self::default();
        // By address: what is equal is there once, and nodes of one kind have much that is.
        let mut seen = HashSet::new();
        for slice in slices.kept() {
            let driver = slice.frame.spec.driver.as_str();
            catalog.drivers.insert(driver);
            for device in slice.devices.iter().flatten() {
                let kind = device.string("type").unwrap_or_default();
                for attribute in device.attributes.iter().flatten() {
                    if seen.insert((driver, kind, Rc::as_ptr(attribute).addr())) {
                        catalog.add_attribute(driver, kind, &attribute.0, &attribute.1);
                    }
                }
                let what = device.string("productName").unwrap_or(driver);
                if seen.insert((driver, what, Rc::as_ptr(&device.plain).addr())) {
                    catalog.add_capacities(driver, what, &device.plain);
                }
            }
        }
        catalog
    }

    fn add_attribute(
        &mut self,
        driver: &'a str,
        kind_of_device: &'a str,
        name: &'a str,
        value: &'a DeviceAttribute,
    ) {
        let published = self.attributes.entry(split(driver, name)).or_default();
        let (kind, text) = shown(value);
        published.kinds.insert(kind);
        published.types.insert(kind_of_device);
        if published.values.len() < MAX_VALUES {
            published.values.insert(text);
        } else if !published.values.contains(&text) {
            published.has_more = true;
        }
    }

    fn add_capacities(&mut self, driver: &'a str, what: &'a str, device: &'a Device) {
        for (name, value) in device.capacity.iter().flatten() {
            let Ok(quantity) = value.value.0.parse::<Quantity>() else { continue };
            let known = self.capacities.entry(split(driver, name));
            let known = known.or_insert(Largest { value: quantity, what });
            if quantity > known.value {
                *known = Largest { value: quantity, what };
            }
        }
    }

    /// The drivers, in the order of their names.
    pub(crate) fn drivers(&self) -> Vec<&'a str> {
        self.drivers.iter().copied().collect()
    }

    pub(crate) fn attribute<'s>(
        &'s self,
        domain: &'s str,
        name: &'s str,
    ) -> Option<&'s Published<'a>> {
        self.attributes.get(&(domain, name))
    }

    pub(crate) fn capacity<'s>(
        &'s self,
        domain: &'s str,
        name: &'s str,
    ) -> Option<&'s Largest<'a>> {
        self.capacities.get(&(domain, name))
    }

    /// The domains in which something of this name is.
    pub(crate) fn domains_of(&self, name: &str) -> Vec<&'a str> {
        let names = self.attributes.keys().filter(|(_, known)| *known == name);
        names.map(|(domain, _)| *domain).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The domain in which a capacity of this name is.
    pub(crate) fn domain_of_capacity(&self, name: &str) -> Option<&'a str> {
        let names = self.capacities.keys().filter(|(_, known)| *known == name);
        names.map(|(domain, _)| *domain).min()
    }

    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.attributes.keys().chain(self.capacities.keys()).any(|(known, _)| *known == domain)
    }

    /// The domain that was probably meant.
    pub(crate) fn nearest_domain(&self, domain: &str) -> Option<&'a str> {
        let known: BTreeSet<&str> = self.attributes.keys().map(|(known, _)| *known).collect();
        let part = |known: &&&str| known.ends_with(domain) || domain.ends_with(**known);
        let known: Vec<&'a str> = known.into_iter().collect();
        known.iter().find(part).copied().or_else(|| nearest(domain, &known))
    }

    /// The attribute of the domain that was probably meant.
    pub(crate) fn nearest_name(&self, domain: &str, name: &str) -> Option<&'a str> {
        let known: BTreeSet<&str> =
            self.attributes.keys().filter(|(d, _)| *d == domain).map(|(_, name)| *name).collect();
        nearest(name, &known.into_iter().collect::<Vec<_>>())
    }
}

/// Domain and name of an attribute or capacity; without domain it is the driver's.
pub(crate) fn split<'a>(driver: &'a str, name: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

/// What a device is, in a word or two.
pub(crate) fn what<'a>(driver: &'a str, device: &'a Device) -> &'a str {
    string(device, "productName").unwrap_or(driver)
}

/// A string attribute of the driver's domain.
pub(crate) fn string<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    device.attributes.as_ref()?.get(name)?.string.as_deref()
}

/// An attribute by its full name, as text.
pub(crate) fn value_of(driver: &str, device: &Device, full_name: &str) -> Option<String> {
    let attributes = device.attributes.as_ref()?;
    let bare = full_name.split_once('/').filter(|(domain, _)| *domain == driver);
    let value = attributes.get(full_name).or_else(|| attributes.get(bare?.1))?;
    Some(shown(value).1.into_owned())
}

fn shown(value: &DeviceAttribute) -> (&'static str, Cow<'_, str>) {
    match value {
        DeviceAttribute { string: Some(text), .. } => ("string", text.into()),
        DeviceAttribute { int: Some(number), .. } => ("int", number.to_string().into()),
        DeviceAttribute { bool: Some(flag), .. } => ("bool", flag.to_string().into()),
        DeviceAttribute { version: Some(text), .. } => ("version", text.into()),
        _ => ("list", "a list".into()),
    }
}
