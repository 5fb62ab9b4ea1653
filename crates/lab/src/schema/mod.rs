//! The field tables of the served API types: which fields exist, of which type, and how their lists merge.
//! They feed decoding, defaulting of empty values, apply and patch merging, and the OpenAPI document.
//! This module never judges values; that is `validate`'s work.
//!
//! Notation of the `.txt` tables: a type's name at the line's start, then one indented line per field:
//! `name type`. The name ends in `!` when the server always writes the field, empty or not. The type is a
//! scalar (`string`, `bool`, `int32`, `int64`, `quantity`, `time`, `raw` for a JSON object handed through,
//! `any`), another type, `*T` where empty differs from unset, `[]T` an atomic list, `[a,b]T` a list keyed by
//! the fields a and b, `<>T` a set, `{}T` a map. `off` marks a field whose feature gate is off by default, so
//! that the server drops it; `atomic` a map that is replaced as one.

mod decode;

pub(crate) use decode::{decode, decode_sparse};

use std::collections::BTreeMap;
use std::sync::LazyLock;

static TABLES: LazyLock<BTreeMap<&'static str, Struct>> = LazyLock::new(|| {
    let mut types = BTreeMap::new();
    for text in [include_str!("resource.txt"), include_str!("core.txt")] {
        parse(text, &mut types);
    }
    types
});

/// The fields of one type, by name.
pub(crate) type Struct = BTreeMap<&'static str, Field>;

/// One field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    /// Written by the server even when empty.
    pub(crate) always: bool,
    /// A Go pointer: an empty value is kept, only an unset one is left out.
    pub(crate) pointer: bool,
    /// Its feature gate is off by default: dropped on write.
    pub(crate) gated: bool,
}

/// What a value looks like and how two of them merge.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Scalar(Scalar),
    /// A named type.
    Struct(&'static str),
    List(Box<Self>, Merge),
    Map(Box<Self>, Merge),
}

/// How a list or map is merged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Merge {
    /// Replaced as one.
    Atomic,
    /// By value (lists), by key (maps).
    Each,
    /// By these fields of the elements.
    Keys(Vec<&'static str>),
}

/// Values without fields of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Quantity,
    Time,
    Raw,
    Any,
}

impl Scalar {
    /// The name that a Go decoder gives the type in its errors.
    pub(crate) fn go_name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Quantity => "resource.Quantity",
            Self::Time => "v1.Time",
            Self::Raw => "runtime.RawExtension",
            Self::Any => "interface {}",
        }
    }
}

/// The fields of a type; an unknown name has none (the tables are checked by a test).
pub(crate) fn fields(name: &str) -> &'static Struct {
    static EMPTY: Struct = BTreeMap::new();
    TABLES.get(name).unwrap_or(&EMPTY)
}

/// All types by name.
#[cfg(test)]
pub(crate) fn types() -> &'static BTreeMap<&'static str, Struct> {
    &TABLES
}

fn parse(text: &'static str, types: &mut BTreeMap<&'static str, Struct>) {
    let mut current = "";
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if !line.starts_with(' ') {
            current = first;
            types.insert(current, Struct::new());
            continue;
        }
        let shape = words.next().unwrap_or_default();
        let marks: Vec<&str> = words.collect();
        let merge = if marks.contains(&"atomic") { Merge::Atomic } else { Merge::Each };
        let field = Field {
            shape: shape_of(shape.trim_start_matches('*'), merge),
            always: first.ends_with('!'),
            pointer: shape.starts_with('*'),
            gated: marks.contains(&"off"),
        };
        types.entry(current).or_default().insert(first.trim_end_matches('!'), field);
    }
}

fn shape_of(text: &'static str, merge: Merge) -> Shape {
    if let Some(element) = text.strip_prefix("{}") {
        return Shape::Map(Box::new(shape_of(element, Merge::Each)), merge);
    }
    if let Some(element) = text.strip_prefix("<>") {
        return Shape::List(Box::new(shape_of(element, Merge::Each)), Merge::Each);
    }
    if let Some((keys, element)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let merge = match keys {
            "" => Merge::Atomic,
            keys => Merge::Keys(keys.split(',').collect()),
        };
        return Shape::List(Box::new(shape_of(element, Merge::Each)), merge);
    }
    match text {
        "string" => Shape::Scalar(Scalar::String),
        "bool" => Shape::Scalar(Scalar::Bool),
        "int32" => Shape::Scalar(Scalar::Int32),
        "int64" => Shape::Scalar(Scalar::Int64),
        "quantity" => Shape::Scalar(Scalar::Quantity),
        "time" => Shape::Scalar(Scalar::Time),
        "raw" => Shape::Scalar(Scalar::Raw),
        "any" => Shape::Scalar(Scalar::Any),
        name => Shape::Struct(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structs_in(shape: &Shape, found: &mut Vec<&'static str>) {
        match shape {
            Shape::Struct(name) => found.push(name),
            Shape::List(element, _) | Shape::Map(element, _) => structs_in(element, found),
            Shape::Scalar(_) => {}
        }
    }

    #[test]
    fn every_named_type_is_in_the_tables() {
        for (name, fields) in types() {
            for (field, spec) in fields {
                let mut found = Vec::new();
                structs_in(&spec.shape, &mut found);
                for used in found {
                    assert!(types().contains_key(used), "{name}.{field} names {used}");
                }
            }
        }
    }

    #[test]
    fn the_notation_reads_as_written() {
        let status = fields("ResourceClaimStatus");
        assert_eq!(
            status["reservedFor"].shape,
            Shape::List(
                Box::new(Shape::Struct("ResourceClaimConsumerReference")),
                Merge::Keys(vec!["uid"])
            )
        );
        assert!(fields("DeviceAttribute")["strings"].gated);
        assert!(fields("ResourcePool")["generation"].always);
        assert!(fields("Device")["allNodes"].pointer);
    }
}
