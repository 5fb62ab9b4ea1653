//! Values of an evaluation, their equality and order. Nothing of the device or of the
//! program is copied: values borrow from both.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use gpu_dra_model::Quantity;

use crate::device::{DeviceView, Domains, Scalar};
use crate::error::EvalError;
use crate::semver::Semver;

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
    List(Rc<Vec<Self>>),
    Map(Rc<Vec<(Self, Self)>>),
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
        Self::List(Rc::new(values))
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
    pub(crate) fn find(&self, key: &Self) -> Option<Self> {
        if let Self::Map(entries) = self {
            let found = entries.iter().find(|(known, _)| same_key(known, key));
            return found.map(|(_, value)| value.clone());
        }
        key.as_str().and_then(|key| self.find_field(key))
    }

    /// [`Self::find`] for a text.
    pub(crate) fn find_field(&self, key: &str) -> Option<Self> {
        match self {
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
        }
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
    pub(crate) fn has_key(&self, key: &Self) -> Option<bool> {
        if let Self::Map(entries) = self {
            return Some(entries.iter().any(|(known, _)| same_key(known, key)));
        }
        match key.as_str() {
            Some(text) => self.has_field(text),
            None => self.size().filter(|_| self.type_name() == "map").map(|_| false),
        }
    }

    /// [`Self::has_key`] for a text.
    pub(crate) fn has_field(&self, field: &str) -> Option<bool> {
        match self {
            Self::Map(_) => Some(self.find_field(field).is_some()),
            Self::Attributes(domains) => Some(domains.contains_key(field)),
            Self::Capacities(domains) => Some(domains.contains_key(field)),
            Self::AttributeDomain(known) => Some(known.contains_key(field)),
            Self::CapacityDomain(known) => Some(known.contains_key(field)),
            Self::Device(_) => Some(DEVICE_FIELDS.contains(&field)),
            _ => None,
        }
    }

    /// Elements, entries or characters; None where that means nothing.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(values) => Some(values.len()),
            Self::Map(entries) => Some(entries.len()),
            Self::Attributes(domains) => Some(domains.len()),
            Self::Capacities(domains) => Some(domains.len()),
            Self::AttributeDomain(known) => Some(known.len()),
            Self::CapacityDomain(known) => Some(known.len()),
            Self::Device(_) => Some(DEVICE_FIELDS.len()),
            _ => None,
        }
    }
}

/// Keys of map literals: numbers are the same across their types.
fn same_key(known: &Value<'_>, key: &Value<'_>) -> bool {
    equal(known, key).unwrap_or(false)
}

/// `==`: values of different kinds are unequal, but a quantity or version on the left that
/// meets something else is an error, as in the API server.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>) -> Result<bool, EvalError> {
    Ok(match (left, right) {
        (Value::Null, other) | (other, Value::Null) => matches!(other, Value::Null),
        (Value::Quantity { value: a, .. }, Value::Quantity { value: b, computed: false }) => a == b,
        (Value::Semver(a), Value::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Value::Quantity { .. } | Value::Semver(_), _) => {
            return Err(EvalError::NoSuchOverload);
        }
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => **a == **b,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b)?,
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| not_unequal(a, b))
        }
        _ => match (left.keys(), right.keys()) {
            (Some(keys), Some(others)) => {
                keys.len() == others.len()
                    && keys.iter().all(|key| match (left.find(key), right.has_key(key)) {
                        (Some(a), Some(true)) => {
                            right.find(key).is_some_and(|b| not_unequal(&a, &b))
                        }
                        _ => false,
                    })
            }
            _ => compare_numbers(left, right) == Some(Ordering::Equal),
        },
    })
}

/// Inside lists and maps cel-go takes an error for equality.
fn not_unequal(left: &Value<'_>, right: &Value<'_>) -> bool {
    equal(left, right).unwrap_or(true)
}

/// `<` and its like; None where the two have no order.
pub(crate) fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bytes(a), Value::Bytes(b)) => Some((**a).cmp(&**b)),
        _ => compare_numbers(left, right),
    }
}

/// Numbers of any types; where one is a double, both are compared as doubles.
#[allow(clippy::cast_precision_loss)]
fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    let as_double = |value: &Value<'_>| match value {
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        _ => None,
    };
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        _ => as_double(left)?.partial_cmp(&as_double(right)?),
    }
}
