//! A checked expression, ready to be evaluated: names are resolved to slots and functions,
//! macros to loops, literals to values. What the checker can't express here it refuses, so
//! that evaluation meets no surprise.

use gpu_dra_model::Quantity;

use crate::regex::Pattern;
use crate::semver::Semver;
use crate::signatures::Function;
use crate::types::Type;

/// An expression with its type.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) ty: Type,
    /// Where it is written.
    pub(crate) span: Span,
}

/// From the first to the last token of an expression, counted in characters. Brackets and
/// names of functions at its ends are not in it: the parser keeps no tokens for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    /// Nowhere yet.
    pub(crate) const NONE: Self = Self { start: u32::MAX, end: 0 };

    pub(crate) fn cover(&mut self, other: Self) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
    }
}

/// What an expression does.
#[derive(Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    /// A literal that a call was reduced to, and the length of the text it read.
    Parsed(Literal, u64),
    /// The variable `device`.
    Device,
    /// A variable of a loop or of `cel.bind`.
    Slot(usize),
    Select(Box<Select>),
    Index(Box<Index>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// Condition, then, else.
    Conditional(Box<[Node; 3]>),
    /// `a.or(b)`: `b` only if `a` is empty.
    OptionalOr(Box<[Node; 2]>),
    /// `a.orValue(b)`: `b` only if `a` is empty.
    OptionalOrValue(Box<[Node; 2]>),
    Call(Function, Vec<Node>),
    /// A call whose pattern is a literal: subject, and the pattern compiled.
    Regex(Function, Vec<Node>, Pattern),
    Loop(Box<Loop>),
    Bind(Box<Bind>),
    /// `optMap` and `optFlatMap`: the target, and what becomes of its value.
    OptionalMap(Box<Bind>, Wrap),
}

#[derive(Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Box<[u8]>),
    /// `quantity("40Gi")`, read once.
    Quantity(Quantity),
    /// `semver("9.0.0")`, read once.
    Semver(Semver),
    Type(&'static str),
}

/// `a.b`, `a.?b` and `has(a.b)`.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Node,
    pub(crate) field: Box<str>,
    pub(crate) access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Missing is an error.
    Strict,
    /// Missing is an empty optional.
    Optional,
    /// Only whether it is there.
    Test,
}

/// `a[b]` and `a[?b]`.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) operand: Node,
    pub(crate) key: Node,
    pub(crate) optional: bool,
}

/// An element of a list literal; an optional one is left out when empty.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

/// An entry of a map literal; an optional one is left out when its value is empty.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

/// A comprehension macro.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) range: Node,
    /// The slot of the loop variable.
    pub(crate) slot: usize,
    /// The slot of the second variable: with it the first is the index or key, and this one
    /// the element or value.
    pub(crate) second: Option<usize>,
    pub(crate) purpose: Purpose,
}

#[derive(Debug)]
pub(crate) enum Purpose {
    /// True unless one is false.
    All(Node),
    /// True if one is true.
    Exists(Node),
    /// True if exactly one is true.
    ExistsOne(Node),
    /// The items, of those elements that pass the filter.
    Collect { filter: Option<Node>, item: Node, into: Collection },
}

/// What items are collected into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collection {
    /// A list: `map`, `filter`, `transformList`.
    List,
    /// A map from the keys or indices of the range: `transformMap`.
    Map,
    /// All entries of the items, which are maps, in one: `transformMapEntry`.
    Entries,
}

/// `cel.bind`: the value is computed when first read.
#[derive(Debug)]
pub(crate) struct Bind {
    pub(crate) slot: usize,
    pub(crate) value: Node,
    pub(crate) body: Node,
}

/// Whether `optMap` wraps the result again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrap {
    /// `optMap`
    Optional,
    /// `optFlatMap`
    Flat,
}

impl Node {
    pub(crate) fn new(kind: Kind, ty: Type) -> Self {
        Self { kind, ty, span: Span::NONE }
    }

    /// Runs `visit` on this node and all below, parents first, not recursively.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Self, usize)) {
        let mut waiting = vec![(self, 1)];
        while let Some((node, depth)) = waiting.pop() {
            visit(node, depth);
            node.children(|child| waiting.push((child, depth + 1)));
        }
    }

    pub(crate) fn children<'a>(&'a self, mut visit: impl FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Parsed(..) | Kind::Device | Kind::Slot(_) => {}
            Kind::Select(select) => visit(&select.operand),
            Kind::Index(index) => {
                visit(&index.operand);
                visit(&index.key);
            }
            Kind::List(elements) => elements.iter().for_each(|element| visit(&element.value)),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            Kind::And(nodes)
            | Kind::Or(nodes)
            | Kind::Call(_, nodes)
            | Kind::Regex(_, nodes, _) => {
                nodes.iter().for_each(visit);
            }
            Kind::Conditional(nodes) => nodes.iter().for_each(visit),
            Kind::OptionalOr(nodes) | Kind::OptionalOrValue(nodes) => nodes.iter().for_each(visit),
            Kind::Loop(lap) => {
                visit(&lap.range);
                match &lap.purpose {
                    Purpose::All(node) | Purpose::Exists(node) | Purpose::ExistsOne(node) => {
                        visit(node);
                    }
                    Purpose::Collect { filter, item, .. } => {
                        filter.iter().for_each(&mut visit);
                        visit(item);
                    }
                }
            }
            Kind::Bind(bind) | Kind::OptionalMap(bind, _) => {
                visit(&bind.value);
                visit(&bind.body);
            }
        }
    }
}
