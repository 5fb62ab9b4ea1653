//! Devices that no class of ours can tell apart have one shape: of a thousand nodes alike each
//! kind of device is judged once.

use std::collections::HashMap;

use gpu_dra_allocator::device_view;
use gpu_dra_cel::{DeviceView, EvalError, Selector, Term, is_version};
use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceSlice};

/// The attributes that classes made here read, without domain. A test holds the compiler to it.
pub(crate) const READ: [&str; 4] = ["type", "productName", "profile", "cudaComputeCapability"];

/// The place of a shape in [`Shapes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(u32);

/// All that is the same in devices of one shape.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    attributes: Vec<(&'static str, String)>,
    capacities: Vec<(String, String)>,
    is_readable: bool,
}

/// One shape.
#[derive(Debug)]
pub(crate) struct Shape {
    /// A device of it, which stands for all; None where it has a capacity that is no quantity.
    view: Option<DeviceView>,
    /// Whether selectors can read all attributes; if not, each is an error.
    is_readable: bool,
    /// `type`
    pub(crate) device_type: Option<String>,
    /// `productName`
    pub(crate) product: Option<String>,
    /// `profile`
    pub(crate) profile: Option<String>,
    /// Capacities by name.
    pub(crate) capacity: HashMap<String, Quantity>,
}

/// A verdict about a device: whether the class has it, or what stops every pod that asks.
pub(crate) type Verdict = Result<bool, EvalError>;

impl Shape {
    pub(crate) fn matches(&self, selector: &Selector) -> Verdict {
        match &self.view {
            Some(view) => selector.matches(view),
            None => Err(EvalError::Value("a capacity is no quantity".to_owned())),
        }
    }

    pub(crate) fn explain(&self, selector: &Selector) -> Vec<Term> {
        self.view.as_ref().map(|view| selector.explain(view)).unwrap_or_default()
    }

    /// Whether a class that counts on what the driver publishes can fail on it.
    pub(crate) fn lacks_contract(&self) -> bool {
        !self.is_readable || self.view.is_none() || self.device_type.is_none()
    }
}

/// Every shape that was ever published: as many as there are kinds of hardware.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    ids: HashMap<Key, ShapeId>,
    shapes: Vec<Shape>,
}

impl Shapes {
    /// The shape of a device.
    pub(crate) fn of(&mut self, slice: &ResourceSlice, device: &Device) -> ShapeId {
        let key = key(&slice.spec.driver, device);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        // More kinds than fit are as good as one kind.
        let id = ShapeId(u32::try_from(self.shapes.len()).unwrap_or(u32::MAX));
        let text = |name| {
            key.attributes
                .iter()
                .find(|(known, _)| *known == name)
                .and_then(|(_, value)| value.strip_prefix("string ").map(str::to_owned))
        };
        let quantity = |(name, text): &(String, String)| Some((name.clone(), text.parse().ok()?));
        self.shapes.push(Shape {
            view: device_view(slice, device).ok(),
            is_readable: key.is_readable,
            device_type: text("type"),
            product: text("productName"),
            profile: text("profile"),
            capacity: key.capacities.iter().filter_map(quantity).collect(),
        });
        self.ids.insert(key, id);
        id
    }

    pub(crate) fn get(&self, id: ShapeId) -> Option<&Shape> {
        self.shapes.get(id.0 as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShapeId, &Shape)> {
        (0..).map(ShapeId).zip(&self.shapes)
    }

    pub(crate) fn len(&self) -> usize {
        self.shapes.len()
    }
}

impl ShapeId {
    /// Its place.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

fn key(driver: &str, device: &Device) -> Key {
    let mut attributes = Vec::new();
    let mut is_readable = true;
    for (name, value) in device.attributes.iter().flatten() {
        let (text, readable) = text(value);
        is_readable &= readable;
        let bare = bare(driver, name);
        if let Some(known) = READ.into_iter().find(|known| Some(*known) == bare) {
            attributes.push((known, text));
        }
    }
    attributes.sort();
    let capacities = device.capacity.iter().flatten();
    let capacities = capacities.map(|(name, value)| {
        (bare(driver, name).unwrap_or(name).to_owned(), value.value.0.clone())
    });
    Key { attributes, capacities: capacities.collect(), is_readable }
}

/// The name in the driver's own domain; None: in another's.
fn bare<'a>(driver: &str, name: &'a str) -> Option<&'a str> {
    match name.split_once('/') {
        None => Some(name),
        Some((domain, name)) => (domain == driver).then_some(name),
    }
}

/// Kind and value, and whether selectors can read it.
fn text(value: &DeviceAttribute) -> (String, bool) {
    match value {
        DeviceAttribute { string: Some(text), .. } => (format!("string {text}"), true),
        DeviceAttribute { version: Some(text), .. } => {
            (format!("version {text}"), is_version(text))
        }
        DeviceAttribute { int: Some(value), .. } => (format!("int {value}"), true),
        DeviceAttribute { bool: Some(value), .. } => (format!("bool {value}"), true),
        _ => ("list".to_owned(), false),
    }
}
