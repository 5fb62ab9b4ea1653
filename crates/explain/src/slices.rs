//! The slices of a cluster in little memory: what is equal is kept once. Nodes of one kind
//! publish the same devices but for UUIDs, bus addresses and the like, so that a device takes
//! a list of its attributes and no more. Nothing that a verdict rests on is left out.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::rc::Rc;

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceAttribute, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

/// Slices, each as it was added but for its metadata, of which only the name is kept.
#[derive(Debug, Default)]
pub struct Slices {
    kept: Vec<Kept>,
    attributes: Shared<(String, DeviceAttribute)>,
    devices: Shared<Device>,
    counters: Shared<Vec<CounterSet>>,
}

/// One slice.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The slice without devices and counters.
    pub(crate) frame: ResourceSlice,
    pub(crate) counters: Option<Rc<Vec<CounterSet>>>,
    pub(crate) devices: Option<Box<[KeptDevice]>>,
}

/// One device.
#[derive(Debug)]
pub(crate) struct KeptDevice {
    /// The device without attributes.
    pub(crate) plain: Rc<Device>,
    pub(crate) attributes: Option<Attributes>,
}

/// Names and values, in the order of their names.
type Attributes = Box<[Rc<(String, DeviceAttribute)>]>;

impl Slices {
    /// Adds a slice.
    pub fn push(&mut self, mut slice: ResourceSlice) {
        let devices = slice.spec.devices.take();
        let counters = slice.spec.shared_counters.take();
        let name = slice.metadata.name.take();
        slice.metadata = ObjectMeta { name, ..ObjectMeta::default() };
        let devices = devices.map(|devices| devices.into_iter().map(|d| self.device(d)).collect());
        let counters = counters.map(|counters| self.counters.share(counters));
        self.kept.push(Kept { frame: slice, counters, devices });
    }

    fn device(&mut self, mut device: Device) -> KeptDevice {
        let attributes = device.attributes.take().map(|attributes| {
            attributes.into_iter().map(|attribute| self.attributes.share(attribute)).collect()
        });
        KeptDevice { plain: self.devices.share(device), attributes }
    }

    /// Adds slices in place of those of the same names. One without a name is another one.
    pub fn put_all(&mut self, slices: impl IntoIterator<Item = ResourceSlice>) {
        let slices: Vec<ResourceSlice> = slices.into_iter().collect();
        let name = |slice: &ResourceSlice| slice.metadata.name.clone();
        // The last of a name stays.
        let last: HashMap<String, usize> = slices
            .iter()
            .enumerate()
            .filter_map(|(place, slice)| Some((name(slice)?, place)))
            .collect();
        let is_replaced =
            |known: &Kept| name(&known.frame).is_some_and(|name| last.contains_key(&name));
        self.kept.retain(|known| !is_replaced(known));
        for (place, slice) in slices.into_iter().enumerate() {
            if name(&slice).is_none_or(|name| last.get(&name) == Some(&place)) {
                self.push(slice);
            }
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The slices, each made anew.
    pub fn iter(&self) -> impl Iterator<Item = ResourceSlice> {
        self.kept.iter().map(Kept::whole)
    }

    /// The devices, as they are kept.
    pub fn devices(&self) -> impl Iterator<Item = SliceDevice<'_>> {
        self.kept.iter().flat_map(|slice| {
            let devices = slice.devices.iter().flatten();
            devices.map(|device| SliceDevice { frame: &slice.frame, device })
        })
    }

    /// The nodes that slices name, with repetitions.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().filter_map(|kept| kept.frame.spec.node_name.as_deref())
    }

    pub(crate) fn kept(&self) -> &[Kept] {
        &self.kept
    }
}

impl Extend<ResourceSlice> for Slices {
    fn extend<I: IntoIterator<Item = ResourceSlice>>(&mut self, slices: I) {
        slices.into_iter().for_each(|slice| self.push(slice));
    }
}

impl FromIterator<ResourceSlice> for Slices {
    fn from_iter<I: IntoIterator<Item = ResourceSlice>>(slices: I) -> Self {
        let mut all = Self::default();
        all.extend(slices);
        all
    }
}

impl Kept {
    /// The slice as it was.
    pub(crate) fn whole(&self) -> ResourceSlice {
        let mut slice = self.frame.clone();
        slice.spec.shared_counters = self.counters.as_deref().cloned();
        let devices = self.devices.as_deref();
        slice.spec.devices = devices.map(|devices| devices.iter().map(KeptDevice::whole).collect());
        slice
    }

    pub(crate) fn len(&self) -> usize {
        self.devices.as_deref().map_or(0, <[_]>::len)
    }
}

impl KeptDevice {
    fn attribute(&self, name: &str) -> Option<&Rc<(String, DeviceAttribute)>> {
        let attributes = self.attributes.as_deref()?;
        let place = attributes.binary_search_by(|known| known.0.as_str().cmp(name)).ok()?;
        attributes.get(place)
    }

    /// A string attribute.
    pub(crate) fn string(&self, name: &str) -> Option<&str> {
        self.attribute(name)?.1.string.as_deref()
    }

    /// The device as it was.
    pub(crate) fn whole(&self) -> Device {
        let attributes = self.attributes.as_ref();
        let attributes =
            attributes.map(|all| all.iter().map(|attribute| (**attribute).clone()).collect());
        Device { attributes, ..(*self.plain).clone() }
    }
}

/// A device of [`Slices`].
#[derive(Debug, Clone, Copy)]
pub struct SliceDevice<'s> {
    frame: &'s ResourceSlice,
    device: &'s KeptDevice,
}

impl<'s> SliceDevice<'s> {
    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &'s str {
        &self.frame.spec.driver
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &'s str {
        &self.frame.spec.pool.name
    }

    /// The device without its attributes; equal ones have one address.
    #[must_use]
    pub fn plain(&self) -> &'s Device {
        &self.device.plain
    }

    /// A string attribute.
    #[must_use]
    pub fn string(&self, name: &str) -> Option<&'s str> {
        self.device.string(name)
    }

    /// The address of an attribute, 0 where there is none: equal ones have one.
    #[must_use]
    pub fn address(&self, name: &str) -> usize {
        self.device.attribute(name).map_or(0, |attribute| Rc::as_ptr(attribute).addr())
    }

    /// The device as it was, made anew.
    #[must_use]
    pub fn whole(&self) -> Device {
        self.device.whole()
    }
}

/// Values of which equal ones are kept once, found by a hash of what they are as JSON.
#[derive(Debug)]
struct Shared<T>(HashMap<u64, Vec<Rc<T>>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: PartialEq + Serialize> Shared<T> {
    fn share(&mut self, value: T) -> Rc<T> {
        let mut hash = Hash(DefaultHasher::new());
        // Half a hash is one too: equality decides.
        drop(serde_json::to_writer(&mut hash, &value));
        let alike = self.0.entry(hash.0.finish()).or_default();
        match alike.iter().find(|known| ***known == value) {
            Some(known) => Rc::clone(known),
            None => {
                let new = Rc::new(value);
                alike.push(Rc::clone(&new));
                new
            }
        }
    }
}

/// A hash that can be written to.
struct Hash(DefaultHasher);

impl std::io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, uuid: &str) -> ResourceSlice {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "labels": {"a": "b"}},
            "spec": {
                "driver": "gpu.nvidia.com", "nodeName": name,
                "pool": {"name": name, "generation": 3, "resourceSliceCount": 1},
                "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "8Gi"}}}],
                "devices": [
                    {"name": "gpu-0", "capacity": {"memory": {"value": "8Gi"}}, "attributes": {
                        "uuid": {"string": uuid}, "index": {"int": 0}, "flag": {"bool": true},
                        "driverVersion": {"version": "1.2.3"},
                    }},
                    {"name": "bare"},
                    {"name": "gpu-1", "attributes": {}, "nodeName": "x", "taints": [
                        {"key": "k", "effect": "NoSchedule"},
                    ]},
                ],
            },
        }))
        .unwrap()
    }

    #[test]
    fn all_but_metadata_comes_back() {
        let all = [slice("a", "GPU-1"), slice("b", "GPU-2"), ResourceSlice::default()];
        let slices: Slices = all.iter().cloned().collect();
        let back: Vec<_> = slices.iter().collect();
        for (was, is) in all.iter().zip(&back) {
            assert_eq!((&was.spec, &was.metadata.name), (&is.spec, &is.metadata.name));
        }
        assert_eq!(slices.node_names().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn what_is_equal_is_kept_once() {
        let slices: Slices =
            (0..100).map(|n| slice(&format!("node-{n}"), &format!("GPU-{n}"))).collect();
        assert_eq!(slices.devices.0.len(), 3);
        assert_eq!(slices.counters.0.len(), 1);
        assert_eq!(slices.attributes.0.len(), 100 + 3);
    }

    #[test]
    fn a_name_is_there_once() {
        let mut slices: Slices = [slice("a", "GPU-1"), slice("b", "GPU-2")].into_iter().collect();
        slices.put_all([slice("a", "GPU-3"), slice("c", "GPU-4"), slice("c", "GPU-5")]);
        let names: Vec<_> = slices.iter().filter_map(|slice| slice.metadata.name).collect();
        assert_eq!(names, ["b", "a", "c"]);
        let last = slices.iter().last().unwrap();
        assert_eq!(last.spec, slice("c", "GPU-5").spec);
    }

    #[test]
    fn slices_without_a_name_are_all_there() {
        let mut nameless = slice("a", "GPU-1");
        nameless.metadata.name = None;
        let mut slices: Slices = [nameless.clone()].into_iter().collect();
        slices.put_all([nameless.clone(), nameless]);
        assert_eq!(slices.iter().count(), 3);
    }
}
