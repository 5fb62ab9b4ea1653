//! What of a device an expression reads: by this, devices that differ in nothing that is
//! read are judged once, and names that no device has are found without evaluating.

use crate::ir::{Access, Kind, Literal, Node};
use crate::source::excerpt;

/// One thing that an expression reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// `device.driver`
    Driver,
    /// `device.allowMultipleAllocations`
    AllowMultipleAllocations,
    /// `device.attributes["domain"].name`
    Attribute {
        /// The domain.
        domain: String,
        /// The name without domain.
        name: String,
    },
    /// `device.capacity["domain"].name`
    Capacity {
        /// The domain.
        domain: String,
        /// The name without domain.
        name: String,
    },
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Driver => f.write_str("driver"),
            Self::AllowMultipleAllocations => f.write_str("allowMultipleAllocations"),
            Self::Attribute { domain, name } | Self::Capacity { domain, name } => {
                write!(f, "{domain}/{name}")
            }
        }
    }
}

/// A field with how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The field.
    pub field: Field,
    /// By `.?` or `has()`, so that a device without it is no error.
    pub guarded: bool,
    /// As it is written.
    pub text: String,
}

/// All that an expression reads.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// The fields by name, in no order.
    pub fields: Vec<Read>,
    /// Keys are computed, or a domain is looked at as a whole: anything may be read.
    pub anything: bool,
}

/// What the expression reads.
pub(crate) fn of(root: &Node, text: &[char]) -> Reads {
    let mut reads = Reads::default();
    let mut waiting = vec![root];
    while let Some(node) = waiting.pop() {
        if let Some((field, guarded)) = field(node) {
            let (text, ..) = excerpt(text, node.span);
            reads.fields.push(Read { field, guarded, text });
            continue;
        }
        // The bare device, one of its maps or domains: what becomes of it isn't known.
        reads.anything |= matches!(node.kind, Kind::Device);
        node.children(|child| waiting.push(child));
    }
    reads
}

/// The field that the node is, and whether its lack is no error.
pub(crate) fn field(node: &Node) -> Option<(Field, bool)> {
    let (operand, name, guarded) = step(node)?;
    if matches!(operand.kind, Kind::Device) {
        return match name {
            "driver" => Some((Field::Driver, guarded)),
            "allowMultipleAllocations" => Some((Field::AllowMultipleAllocations, guarded)),
            _ => None,
        };
    }
    let (map, domain, domain_guarded) = step(operand)?;
    let (device, which, _) = step(map)?;
    if !matches!(device.kind, Kind::Device) {
        return None;
    }
    let (domain, name) = (domain.to_owned(), name.to_owned());
    let field = match which {
        "attributes" => Field::Attribute { domain, name },
        "capacity" => Field::Capacity { domain, name },
        _ => return None,
    };
    Some((field, guarded || domain_guarded))
}

/// One lookup by a name that is written down.
fn step(node: &Node) -> Option<(&Node, &str, bool)> {
    match &node.kind {
        Kind::Select(select) => {
            Some((&select.operand, &select.field, select.access != Access::Strict))
        }
        Kind::Index(index) => match &index.key.kind {
            Kind::Literal(Literal::String(key)) => Some((&index.operand, key, index.optional)),
            _ => None,
        },
        _ => None,
    }
}
