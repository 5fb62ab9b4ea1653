//! What can be said of a claim and its classes as they are written: expressions that don't
//! compile, classes and attributes that don't exist, adminAccess where it isn't allowed.

use gpu_dra_cel::Selector;
use gpu_dra_model::config::nearest;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceSelector, ResourceClaim};

use super::{Adviser, Weight, compile};
use crate::catalog::{split, value_of};
use crate::question::full_name;
use crate::report::Advice;
use crate::words;

/// What requests and subrequests have in common.
struct Written<'a> {
    name: String,
    class: &'a str,
    selectors: &'a [DeviceSelector],
    admin: bool,
}

impl<'c> Adviser<'c> {
    /// Reads a claim.
    pub(super) fn read(&mut self, claim: &ResourceClaim) {
        let name = full_name(&claim.metadata);
        let about = format!("claim {name}");
        for request in requests(claim) {
            let of_request = format!("{about}, request {}", request.name);
            self.expressions(&of_request, request.selectors);
            match self.class(request.class) {
                Some(class) => {
                    let spec = class.spec.as_ref();
                    let selectors = spec.and_then(|spec| spec.selectors.as_deref());
                    self.expressions(
                        &format!("class {}", request.class),
                        selectors.unwrap_or_default(),
                    );
                }
                None => self.no_class(&of_request, request.class),
            }
            if request.admin {
                self.admin_access(&of_request, claim);
            }
        }
        let spec = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        for (index, constraint) in
            spec.iter().flat_map(|devices| devices.constraints.iter().flatten()).enumerate()
        {
            let attribute =
                constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref());
            if let Some(attribute) = attribute {
                self.constraint(&format!("{about}, constraint #{index}"), attribute);
            }
        }
    }

    pub(super) fn class(&self, name: &str) -> Option<&'c DeviceClass> {
        self.cluster.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
    }

    fn expressions(&mut self, about: &str, selectors: &[DeviceSelector]) {
        for (index, selector) in selectors.iter().enumerate() {
            let text = selector.cel.as_ref().map_or("", |cel| cel.expression.as_str());
            if let Err(error) = Selector::compile(text) {
                let about = format!("{about}, selector #{index}");
                let fix = compile::fix(text, &error, &self.catalog);
                self.refuse(Advice::new(about, error.to_string(), fix));
            }
        }
    }

    pub(super) fn no_class(&mut self, about: &str, class: &str) {
        let mut known: Vec<&str> =
            self.cluster.classes.iter().filter_map(|c| c.metadata.name.as_deref()).collect();
        known.sort_unstable();
        let fix = match nearest(class, &known) {
            Some(near) => format!("did you mean {near}?"),
            None if known.is_empty() => "install the driver's DeviceClasses".to_owned(),
            None => {
                let known: Vec<String> = known.into_iter().map(str::to_owned).collect();
                format!("there are: {}", words::list(&known, 8))
            }
        };
        let problem = format!("DeviceClass {class} does not exist");
        self.add(Weight::Error, Advice::new(about, problem, fix));
    }

    fn admin_access(&mut self, about: &str, claim: &ResourceClaim) {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let label = "resource.kubernetes.io/admin-access=true";
        let Some(known) = self.cluster.admin_access else {
            return;
        };
        match known.get(namespace) {
            Some(true) => {}
            Some(false) => {
                let problem = format!(
                    "adminAccess is refused in namespace {namespace}: it has no label {label}"
                );
                let fix = format!("kubectl label namespace {namespace} {label}");
                self.refuse(Advice::new(about, problem, fix));
            }
            None => {
                let problem = format!(
                    "whether namespace {namespace} allows adminAccess is not known: it must have \
                     the label {label}"
                );
                self.add(Weight::Note, Advice::new(about, problem, None));
            }
        }
    }

    /// An attribute that no device has can't be the same on any two.
    fn constraint(&mut self, about: &str, attribute: &str) {
        let Some((domain, name)) = attribute.split_once('/') else {
            let problem = format!("{attribute} has no domain");
            let fix = format!("write gpu.nvidia.com/{attribute}");
            self.refuse(Advice::new(about, problem, fix));
            return;
        };
        if self.catalog.attribute(domain, name).is_some() {
            return;
        }
        let elsewhere =
            self.catalog.domains_of(name).first().map(|domain| format!("{domain}/{name}"));
        let near = elsewhere
            .or_else(|| Some(format!("{domain}/{}", self.catalog.nearest_name(domain, name)?)));
        let fix = near.map(|near| {
            let values = self.values_on_first_node(&near);
            if values.is_empty() {
                format!("did you mean {near}?")
            } else {
                format!("did you mean {near}? There {}", words::list(&values, 4))
            }
        });
        let problem = format!("no device has attribute {attribute}, so none can be allocated");
        self.add(Weight::Cause, Advice::new(about, problem, fix));
    }

    /// `gpu-0 has 0`, of the first slice with two devices that have the attribute.
    fn values_on_first_node(&self, attribute: &str) -> Vec<String> {
        let mut of_slice = self.cluster.slices.iter().map(|slice| {
            let devices = slice.spec.devices.iter().flatten();
            let values = devices.filter_map(|device| {
                let value = value_of(&slice.spec.driver, device, attribute)?;
                Some(format!("{} has {value}", device.name))
            });
            values.take(4).collect::<Vec<_>>()
        });
        of_slice.find(|values| values.len() > 1).unwrap_or_default()
    }

    /// A request for a capacity that devices have under another name.
    pub(super) fn no_capacity(&mut self, about: &str, driver: &str, name: &str) {
        let (domain, bare) = split(driver, name);
        let known = self.catalog.capacity(domain, bare).is_some();
        let fix = if known {
            let other = if name == bare { format!("{domain}/{bare}") } else { bare.to_owned() };
            Some(format!("write it as the device does: {other}"))
        } else {
            None
        };
        let problem = format!("the devices have no capacity named {name}");
        self.add(Weight::Cause, Advice::new(about, problem, fix));
    }
}

fn requests(claim: &ResourceClaim) -> Vec<Written<'_>> {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    let mut written = Vec::new();
    for request in devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
        if let Some(exactly) = &request.exactly {
            written.push(Written {
                name: request.name.clone(),
                class: &exactly.device_class_name,
                selectors: exactly.selectors.as_deref().unwrap_or_default(),
                admin: exactly.admin_access == Some(true),
            });
        }
        for sub in request.first_available.iter().flatten() {
            written.push(Written {
                name: format!("{}/{}", request.name, sub.name),
                class: &sub.device_class_name,
                selectors: sub.selectors.as_deref().unwrap_or_default(),
                admin: false,
            });
        }
    }
    written
}
