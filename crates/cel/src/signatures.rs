//! Every function of the environment: its call style and types, as the API server 1.36
//! declares them, and which of them this crate evaluates. The table is the whole truth; a
//! function that isn't in it is undeclared.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::Type;

mod table;

pub(crate) use table::UNSUPPORTED_MACROS;
use table::{ORDER, SIGNATURES, UNSUPPORTED};

/// What a call does, once its overload is chosen. The values decide the rest at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Negate,
    Not,
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    In,
    /// `in` a list of nothing but literals.
    InLiterals,
    /// `in` an empty list literal: false, without a look at the element.
    InNothing,
    Index,
    OptionalIndex,
    Conditional,
    Size,
    Bool,
    Bytes,
    Double,
    Dyn,
    Int,
    String,
    Type,
    Uint,
    CharAt,
    Contains,
    EndsWith,
    Find,
    FindAll,
    Join,
    LowerAscii,
    Matches,
    MatchesGlobal,
    Quote,
    Replace,
    Split,
    StartsWith,
    Substring,
    Trim,
    UpperAscii,
    IndexOf,
    LastIndexOf,
    Distinct,
    First,
    Flatten,
    IsSorted,
    Last,
    Max,
    Min,
    Range,
    Reverse,
    SetsContains,
    SetsEquivalent,
    SetsIntersects,
    Slice,
    Sort,
    Sum,
    HasValue,
    OptionalNone,
    OptionalOr,
    OptionalOrValue,
    OptionalOf,
    OptionalOfNonZero,
    OptionalUnwrap,
    OptionalValue,
    CompareTo,
    IsGreaterThan,
    IsLessThan,
    AsApproximateFloat,
    AsInteger,
    IsInteger,
    IsQuantity,
    Quantity,
    QuantityAdd,
    QuantitySub,
    Sign,
    IsSemver,
    Major,
    Minor,
    Patch,
    Semver,
}

/// One overload.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    /// Called as `x.f(…)`; the target is the first parameter.
    pub(crate) member: bool,
    /// The result, then the parameters. Type variables are numbered from 0.
    pub(crate) types: Vec<Type>,
    pub(crate) function: Function,
}

/// All overloads of a function in the order of declaration, or None where the API server
/// knows it and this crate doesn't evaluate it.
pub(crate) fn lookup(name: &str) -> Option<Option<&'static [Overload]>> {
    static TABLE: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(build);
    if let Some(overloads) = TABLE.get(name) {
        return Some(Some(overloads));
    }
    UNSUPPORTED.contains(&name).then_some(None)
}

fn build() -> HashMap<&'static str, Vec<Overload>> {
    use Function as F;
    let mut table: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    let mut add = |name: &'static str, function: Function, signatures: &'static str| {
        for signature in signatures.split(';') {
            let (parameters, result) = signature.split_once("->").unwrap_or((signature, ""));
            let (member, parameters) = match parameters.trim().strip_prefix("on ") {
                Some(rest) => (true, rest),
                None => (false, parameters.trim()),
            };
            let types = std::iter::once(result).chain(parameters.split_whitespace()).map(read_type);
            table.entry(name).or_default().push(Overload {
                member,
                types: types.collect(),
                function,
            });
        }
    };
    for (name, function) in
        [("_<_", F::Less), ("_<=_", F::LessEquals), ("_>_", F::Greater), ("_>=_", F::GreaterEquals)]
    {
        add(name, function, ORDER);
    }
    for (name, function) in [("isGreaterThan", F::IsGreaterThan), ("isLessThan", F::IsLessThan)] {
        add(name, function, "on quantity quantity -> bool; on semver semver -> bool");
    }
    for (name, function) in [("max", F::Max), ("min", F::Min)] {
        add(
            name,
            function,
            "on [int] -> int; on [uint] -> uint; on [double] -> double; on [bool] -> bool; on [string] -> string; on [bytes] -> bytes; on [duration] -> duration; on [timestamp] -> timestamp",
        );
    }
    for (name, function) in [
        ("sets.contains", F::SetsContains),
        ("sets.equivalent", F::SetsEquivalent),
        ("sets.intersects", F::SetsIntersects),
    ] {
        add(name, function, "[A] [A] -> bool");
    }
    for (name, function) in [("major", F::Major), ("minor", F::Minor), ("patch", F::Patch)] {
        add(name, function, "on semver -> int");
    }
    for (name, function) in [("indexOf", F::IndexOf), ("lastIndexOf", F::LastIndexOf)] {
        add(
            name,
            function,
            "on [A] A -> int; on string string -> int; on string string int -> int",
        );
    }
    for (name, function) in
        [("lowerAscii", F::LowerAscii), ("upperAscii", F::UpperAscii), ("trim", F::Trim)]
    {
        add(name, function, "on string -> string");
    }
    for (name, function) in
        [("contains", F::Contains), ("startsWith", F::StartsWith), ("endsWith", F::EndsWith)]
    {
        add(name, function, "on string string -> bool");
    }
    for &(name, function, signatures) in SIGNATURES {
        add(name, function, signatures);
    }
    table
}

fn read_type(text: &str) -> Type {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('?') {
        return Type::optional(read_type(inner));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return Type::list(read_type(inner));
    }
    if let Some(inner) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
        let (key, value) = inner.split_once(':').unwrap_or((inner, "dyn"));
        return Type::map(read_type(key), read_type(value));
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "semver" => Type::Semver,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::OfTypes,
        "A" => Type::Var(0),
        "B" => Type::Var(1),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_read_as_written() {
        let overloads = lookup("@in").unwrap().unwrap();
        let (a, b) = (Type::Var(0), Type::Var(1));
        assert_eq!(overloads[0].types, [Type::Bool, a.clone(), Type::list(a.clone())]);
        assert_eq!(overloads[1].types, [Type::Bool, a.clone(), Type::map(a, b)]);
        let none = &lookup("optional.none").unwrap().unwrap()[0];
        assert_eq!(none.types, [Type::optional(Type::Var(0))]);
        let flatten = lookup("flatten").unwrap().unwrap();
        assert!(flatten[0].member);
        assert_eq!(flatten[0].types[1], Type::list(Type::list(Type::Var(0))));
        assert!(lookup("url").unwrap().is_none() && lookup("version").is_none());
        for (name, _, signatures) in SIGNATURES {
            assert!(
                !signatures.split_whitespace().any(|word| {
                    !["->", "on"].contains(&word)
                        && read_type(word.trim_end_matches(';')) == Type::Dyn
                        && word.trim_end_matches(';') != "dyn"
                }),
                "{name} has a word that is no type"
            );
        }
    }
}
