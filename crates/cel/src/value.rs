//! Values of an evaluation. Nothing of the device or of the program is copied: values borrow
//! from both, and a list may be in many others. So none is walked without a meter.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use gpu_dra_model::Quantity;

use crate::device::{DeviceView, Domains, Scalar};
use crate::error::EvalError;
use crate::eval::Meter;
use crate::semver::Semver;

mod equality;

pub(crate) use equality::{compare, equal, is_ordered, same};

/// A string or bytes, borrowed or made during the evaluation.
#[derive(Debug)]
pub(crate) enum Shared<'a, T: ?Sized> {
    Borrowed(&'a T),
    Made(Rc<T>),
}

impl<T: ?Sized> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(value) => Self::Borrowed(value),
            Self::Made(value) => Self::Made(Rc::clone(value)),
        }
    }
}

impl<T: ?Sized> Deref for Shared<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(value) => value,
            Self::Made(value) => value,
        }
    }
}

/// The elements of a list.
#[derive(Debug)]
pub(crate) struct Elements<'a> {
    values: Vec<Value<'a>>,
    reflexive: bool,
}

impl<'a> Deref for Elements<'a> {
    type Target = [Value<'a>];
    fn deref(&self) -> &[Value<'a>] {
        &self.values
    }
}

/// The entries of a map that the expression made, each key once.
#[derive(Debug)]
pub(crate) struct Entries<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    reflexive: bool,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(entries: Vec<(Value<'a>, Value<'a>)>) -> Self {
        let reflexive =
            entries.iter().all(|(key, value)| key.is_plain_key() && value.is_reflexive());
        Self { entries, reflexive }
    }
}

impl<'a> Deref for Entries<'a> {
    type Target = [(Value<'a>, Value<'a>)];
    fn deref(&self) -> &[(Value<'a>, Value<'a>)] {
        &self.entries
    }
}

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Shared<'a, str>),
    Bytes(Shared<'a, [u8]>),
    Quantity {
        value: Quantity,
        /// The result of `add` or `sub`. The API server then can't find it equal to
        /// anything but from the left: `quantity("2") == q.add(1)` is an error there.
        computed: bool,
    },
    Semver(Shared<'a, Semver>),
    Type(&'static str),
    Optional(Option<Rc<Self>>),
    List(Rc<Elements<'a>>),
    Map(Rc<Entries<'a>>),
    Device(&'a DeviceView),
    /// `device.attributes`: looking up an unknown domain gives an empty one.
    Attributes(&'a Domains<Scalar>),
    /// `device.capacity`: as above.
    Capacities(&'a Domains<Quantity>),
    AttributeDomain(&'a BTreeMap<String, Scalar>),
    CapacityDomain(&'a BTreeMap<String, Quantity>),
}

const DEVICE_FIELDS: [&str; 4] = ["allowMultipleAllocations", "attributes", "capacity", "driver"];
static NO_ATTRIBUTES: BTreeMap<String, Scalar> = BTreeMap::new();
static NO_CAPACITIES: BTreeMap<String, Quantity> = BTreeMap::new();

impl<'a> Value<'a> {
    pub(crate) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::String(Shared::Made(text.into()))
    }

    pub(crate) fn list(values: Vec<Self>) -> Self {
        let reflexive = values.iter().all(Self::is_reflexive);
        Self::List(Rc::new(Elements { values, reflexive }))
    }

    /// Whether it is found equal to itself inside a list: only what is no number isn't. Known
    /// of lists and maps since they were made, for the same one may be in many places.
    fn is_reflexive(&self) -> bool {
        match self {
            Self::Double(number) => !number.is_nan(),
            Self::List(elements) => elements.reflexive,
            Self::Map(entries) => entries.reflexive,
            Self::Optional(Some(value)) => value.is_reflexive(),
            _ => true,
        }
    }

    /// Whether it is a key that is found again.
    fn is_plain_key(&self) -> bool {
        match self {
            Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::String(_) => true,
            Self::Double(number) => !number.is_nan(),
            _ => false,
        }
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(crate) fn quantity(value: Quantity) -> Self {
        Self::Quantity { value, computed: false }
    }

    pub(crate) fn scalar(scalar: &'a Scalar) -> Self {
        match scalar {
            Scalar::Int(value) => Self::Int(*value),
            Scalar::Bool(value) => Self::Bool(*value),
            Scalar::String(value) => Self::String(Shared::Borrowed(value)),
            Scalar::Version(value) => Self::Semver(Shared::Borrowed(value)),
        }
    }

    /// What `type()` says, without parameters.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Quantity { .. } => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::List(_) => "list",
            Self::Map(_)
            | Self::Device(_)
            | Self::Attributes(_)
            | Self::Capacities(_)
            | Self::AttributeDomain(_)
            | Self::CapacityDomain(_) => "map",
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a field or key in a map; None where it isn't there, or where this is no
    /// map at all, which cel-go tells no different.
    pub(crate) fn find(&self, key: &Self, meter: &mut Meter) -> Result<Option<Self>, EvalError> {
        if let Self::Map(entries) = self {
            for (known, value) in entries.iter() {
                if same(known, key, meter)? {
                    return Ok(Some(value.clone()));
                }
            }
            return Ok(None);
        }
        key.as_str().map_or(Ok(None), |key| self.find_field(key, meter))
    }

    /// [`Self::find`] for a text.
    pub(crate) fn find_field(
        &self,
        key: &str,
        meter: &mut Meter,
    ) -> Result<Option<Self>, EvalError> {
        if let Self::Map(entries) = self {
            meter.work(entries.len())?;
        }
        Ok(match self {
            Self::Device(device) => match key {
                "driver" => Some(Value::String(Shared::Borrowed(&device.driver))),
                "allowMultipleAllocations" => Some(Value::Bool(device.allow_multiple_allocations)),
                "attributes" => Some(Value::Attributes(&device.attributes)),
                "capacity" => Some(Value::Capacities(&device.capacity)),
                _ => None,
            },
            Self::Attributes(domains) => {
                Some(Value::AttributeDomain(domains.get(key).unwrap_or(&NO_ATTRIBUTES)))
            }
            Self::Capacities(domains) => {
                Some(Value::CapacityDomain(domains.get(key).unwrap_or(&NO_CAPACITIES)))
            }
            Self::AttributeDomain(attributes) => attributes.get(key).map(Value::scalar),
            Self::CapacityDomain(capacities) => capacities.get(key).map(|q| Value::quantity(*q)),
            Self::Map(entries) => entries
                .iter()
                .find(|(known, _)| known.as_str() == Some(key))
                .map(|(_, value)| value.clone()),
            _ => None,
        })
    }

    /// The keys of a map that are really there; None for what is no map.
    pub(crate) fn keys(&self) -> Option<Vec<Self>> {
        fn borrowed<'a, T>(keys: &'a BTreeMap<String, T>) -> Vec<Value<'a>> {
            keys.keys().map(|key| Value::String(Shared::Borrowed(key))).collect()
        }
        match self {
            Self::Map(entries) => Some(entries.iter().map(|(key, _)| key.clone()).collect()),
            Self::Attributes(domains) => Some(borrowed(domains)),
            Self::Capacities(domains) => Some(borrowed(domains)),
            Self::AttributeDomain(attributes) => Some(borrowed(attributes)),
            Self::CapacityDomain(capacities) => Some(borrowed(capacities)),
            Self::Device(_) => {
                let fields = DEVICE_FIELDS.into_iter();
                Some(fields.map(|field| Value::String(Shared::Borrowed(field))).collect())
            }
            _ => None,
        }
    }

    /// Whether a key is really in a map; None for what is no map.
    pub(crate) fn has_key(&self, key: &Self, meter: &mut Meter) -> Result<Option<bool>, EvalError> {
        if let Self::Map(_) = self {
            return Ok(Some(self.find(key, meter)?.is_some()));
        }
        match key.as_str() {
            Some(text) => self.has_field(text, meter),
            None => Ok((self.type_name() == "map").then_some(false)),
        }
    }

    /// [`Self::has_key`] for a text.
    pub(crate) fn has_field(
        &self,
        field: &str,
        meter: &mut Meter,
    ) -> Result<Option<bool>, EvalError> {
        Ok(match self {
            Self::Map(_) => Some(self.find_field(field, meter)?.is_some()),
            Self::Attributes(domains) => Some(domains.contains_key(field)),
            Self::Capacities(domains) => Some(domains.contains_key(field)),
            Self::AttributeDomain(known) => Some(known.contains_key(field)),
            Self::CapacityDomain(known) => Some(known.contains_key(field)),
            Self::Device(_) => Some(DEVICE_FIELDS.contains(&field)),
            _ => None,
        })
    }

    /// Elements, entries or characters; None where that means nothing.
    pub(crate) fn size(&self, meter: &mut Meter) -> Result<Option<usize>, EvalError> {
        Ok(match self {
            Self::String(text) => {
                meter.scan(text.len())?;
                Some(text.chars().count())
            }
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(values) => Some(values.len()),
            Self::Map(entries) => Some(entries.len()),
            Self::Attributes(domains) => Some(domains.len()),
            Self::Capacities(domains) => Some(domains.len()),
            Self::AttributeDomain(known) => Some(known.len()),
            Self::CapacityDomain(known) => Some(known.len()),
            Self::Device(_) => Some(DEVICE_FIELDS.len()),
            _ => None,
        })
    }
}
