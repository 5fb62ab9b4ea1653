//! The device that a selector looks at, laid out once for many evaluations.

use std::collections::BTreeMap;

use gpu_dra_model::Quantity;

use crate::semver::Semver;

/// An attribute's value as published.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// `int`
    Int(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(String),
    /// `version`, not yet parsed.
    Version(String),
    /// One of the list kinds, `ints`, `bools`, `strings`, `versions`. They need the feature
    /// gate DRAListTypeAttributes (alpha, off): with it off any evaluation on such a device
    /// is an error.
    List,
}

/// An attribute as expressions see it.
#[derive(Debug, Clone)]
pub(crate) enum Scalar {
    Int(i64),
    Bool(bool),
    String(String),
    Version(Semver),
}

/// Names to values in their domains.
pub(crate) type Domains<T> = BTreeMap<String, BTreeMap<String, T>>;

/// The variable `device`.
#[derive(Debug, Clone)]
pub struct DeviceView {
    pub(crate) driver: String,
    pub(crate) allow_multiple_allocations: bool,
    pub(crate) attributes: Domains<Scalar>,
    pub(crate) capacity: Domains<Quantity>,
    /// The first attribute that no expression can read, and why.
    pub(crate) unreadable: Option<(String, String)>,
}

impl DeviceView {
    /// A device of this driver, without attributes yet.
    #[must_use]
    pub fn new(driver: &str, allow_multiple_allocations: bool) -> Self {
        Self {
            driver: driver.to_owned(),
            allow_multiple_allocations,
            attributes: BTreeMap::new(),
            capacity: BTreeMap::new(),
            unreadable: None,
        }
    }

    /// Adds an attribute; a name without domain is in the driver's.
    pub fn add_attribute(&mut self, name: &str, value: Attribute) {
        let scalar = match value {
            Attribute::Int(value) => Ok(Scalar::Int(value)),
            Attribute::Bool(value) => Ok(Scalar::Bool(value)),
            Attribute::String(value) => Ok(Scalar::String(value)),
            Attribute::Version(text) => match Semver::parse(&text) {
                Some(version) => Ok(Scalar::Version(version)),
                None => Err("parse semantic version"),
            },
            Attribute::List => Err("unsupported attribute value"),
        };
        match scalar {
            Ok(scalar) => insert(&mut self.attributes, &self.driver, name, scalar),
            Err(reason) => {
                self.unreadable.get_or_insert_with(|| (name.to_owned(), reason.to_owned()));
            }
        }
    }

    /// Adds a capacity; a name without domain is in the driver's.
    pub fn add_capacity(&mut self, name: &str, value: Quantity) {
        insert(&mut self.capacity, &self.driver, name, value);
    }
}

/// Whether an attribute of kind `version` can be read; if not, any evaluation on the device
/// is an error.
#[must_use]
pub fn is_version(text: &str) -> bool {
    Semver::parse(text).is_some()
}

fn insert<T>(domains: &mut Domains<T>, driver: &str, name: &str, value: T) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    domains.entry(domain.to_owned()).or_default().insert(id.to_owned(), value);
}
