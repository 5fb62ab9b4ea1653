//! The devices that selectors are judged on. Those of a fleet stay in its slices, where what
//! is equal is there once: a device as an object, or as selectors see it, is made when it is
//! looked at, so that thousands of nodes take little memory. Verdicts are kept by what was read.

use std::borrow::Cow;
use std::collections::HashMap;

use gpu_dra_allocator::device_view;
use gpu_dra_cel::{DeviceView, EvalError, Field, Selector};
use gpu_dra_explain::SliceDevice;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};

/// Where a device comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the fleet.
    Fleet,
    /// From the stand-in.
    Reference,
    /// A GPU of which little is known, that may be in a fleet some day.
    Bare,
    /// Another driver's, that may be in a fleet some day.
    Foreign,
}

/// A device that selectors are judged on.
#[derive(Debug)]
pub(crate) struct Judged<'f> {
    pub(crate) driver: &'f str,
    pub(crate) pool: &'f str,
    pub(crate) origin: Origin,
    device: Source<'f>,
}

#[derive(Debug)]
enum Source<'f> {
    Fleet(SliceDevice<'f>),
    Own(Box<Device>),
}

impl<'f> Judged<'f> {
    /// A device of a fleet's slices.
    pub(crate) fn of_fleet(device: SliceDevice<'f>) -> Self {
        Self {
            driver: device.driver(),
            pool: device.pool(),
            origin: Origin::Fleet,
            device: Source::Fleet(device),
        }
    }

    /// A device that is in no fleet.
    pub(crate) fn made_up(driver: &'f str, pool: &'f str, origin: Origin, device: Device) -> Self {
        Self { driver, pool, origin, device: Source::Own(Box::new(device)) }
    }

    /// The device, perhaps without its attributes.
    pub(crate) fn plain(&self) -> &Device {
        match &self.device {
            Source::Fleet(device) => device.plain(),
            Source::Own(device) => device,
        }
    }

    /// The device as it is published.
    pub(crate) fn whole(&self) -> Cow<'_, Device> {
        match &self.device {
            Source::Fleet(device) => Cow::Owned(device.whole()),
            Source::Own(device) => Cow::Borrowed(&**device),
        }
    }

    /// The device by itself: free of counters that are elsewhere, and of taints.
    pub(crate) fn by_itself(&self) -> Device {
        Device { consumes_counters: None, taints: None, ..self.whole().into_owned() }
    }

    /// A string attribute of the driver's.
    pub(crate) fn string(&self, name: &str) -> Option<&str> {
        match &self.device {
            Source::Fleet(device) => device.string(name),
            Source::Own(device) => device.attributes.as_ref()?.get(name)?.string.as_deref(),
        }
    }

    /// The device as selectors see it; None for one that can't be in a cluster, with a
    /// capacity that is no quantity.
    pub(crate) fn view(&self) -> Option<DeviceView> {
        let mut slice = ResourceSlice::default();
        self.driver.clone_into(&mut slice.spec.driver);
        device_view(&slice, &self.whole()).ok()
    }
}

/// Devices that are equal in all that some selectors read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Alike<'f>(&'f str, Vec<usize>);

/// What selectors say of devices, found out once for those that are alike.
pub(crate) struct Verdicts<'s, 'f> {
    selectors: Vec<&'s Selector>,
    known: HashMap<Alike<'f>, Matched>,
}

/// Whether all match, or which fails and why.
pub(crate) type Matched = Result<bool, (usize, EvalError)>;

impl<'s, 'f> Verdicts<'s, 'f> {
    pub(crate) fn new(selectors: impl IntoIterator<Item = &'s Selector>) -> Self {
        Self { selectors: selectors.into_iter().collect(), known: HashMap::new() }
    }

    /// One after the other, as the scheduler does; None for a device that can't be.
    pub(crate) fn of(&mut self, judged: &Judged<'f>) -> Option<Matched> {
        let key = self.alike(judged);
        if let Some(known) = key.as_ref().and_then(|key| self.known.get(key)) {
            return Some(known.clone());
        }
        let view = judged.view()?;
        let matched = self.judge(&view);
        if let Some(key) = key {
            self.known.insert(key, matched.clone());
        }
        Some(matched)
    }

    fn judge(&self, view: &DeviceView) -> Matched {
        for (place, selector) in self.selectors.iter().enumerate() {
            if !selector.matches(view).map_err(|error| (place, error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// None where it can't be told what is read.
    pub(crate) fn alike(&self, judged: &Judged<'f>) -> Option<Alike<'f>> {
        let Source::Fleet(device) = &judged.device else { return None };
        let mut addresses = Vec::new();
        for selector in &self.selectors {
            let reads = selector.reads();
            if reads.anything {
                return None;
            }
            for read in &reads.fields {
                match &read.field {
                    Field::Driver => {}
                    Field::Attribute { domain, name } => {
                        addresses.push(device.address(name));
                        addresses.push(device.address(&format!("{domain}/{name}")));
                    }
                    Field::Capacity { .. } | Field::AllowMultipleAllocations => {
                        addresses.push(std::ptr::from_ref(device.plain()).addr());
                    }
                }
            }
        }
        Some(Alike(judged.driver, addresses))
    }
}
