//! Syntax tree to checked expression: the API server's type check for this environment,
//! with its verdicts and close to its words. What is valid there but not evaluated here is
//! refused by name. The first problem ends the check.
//!
//! Recurses with the depth of the tree: call on a deep stack.

use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr, SourceInfo};
use cel::parser::Expression;

use crate::error::{CompileError, Position, short};
use crate::ir::{Access, Index, Kind, Literal, Node, Select, Span, Wrap};
use crate::parse::position;
use crate::regex::Room;
use crate::signatures::{Function, Overload, UNSUPPORTED_MACROS, lookup};
use crate::types::{Type, Variables};

mod aggregates;
mod literals;
mod macros;

pub(crate) use aggregates::check_literals;

type Checked = Result<Node, CompileError>;

/// A variable in sight.
struct Variable {
    name: String,
    ty: Type,
    slot: usize,
}

/// The state of one check.
pub(crate) struct Checker<'a> {
    info: &'a SourceInfo,
    pub(crate) types: Variables,
    scope: Vec<Variable>,
    /// The tokens seen of the node that is being checked.
    extent: Span,
    /// How many slots evaluation needs.
    pub(crate) slots: usize,
    /// What all patterns that are still to come may take together.
    pattern_room: Room,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(info: &'a SourceInfo) -> Self {
        Self {
            info,
            types: Variables::default(),
            scope: Vec::new(),
            extent: Span::NONE,
            slots: 0,
            pattern_room: Room::new(literals::PATTERN_ROOM),
        }
    }

    pub(crate) fn check(&mut self, tree: &Expression) -> Checked {
        let around = std::mem::replace(&mut self.extent, Span::NONE);
        if let Some((start, end)) = self.info.offset_for(tree.id) {
            self.extent.cover(Span { start, end });
        }
        let mut node = self.check_kind(tree)?;
        self.types.measure(&node.ty);
        node.span = self.extent;
        self.extent.cover(around);
        Ok(node)
    }

    fn check_kind(&mut self, tree: &Expression) -> Checked {
        match &tree.expr {
            Expr::Literal(literal) => Ok(literals::literal(literal)),
            Expr::Ident(name) => self.identifier(tree, name),
            Expr::Select(select) => self.select(tree, select),
            Expr::Call(call) => self.call(tree, call),
            Expr::List(list) => self.list(&list.elements, &list.optional_indices),
            Expr::Map(map) => self.map(tree, map),
            Expr::Comprehension(comprehension) => self.comprehension(tree, comprehension),
            Expr::Struct(object) => {
                Err(CompileError::Unsupported { name: format!("the message {}", object.type_name) })
            }
            Expr::Unspecified => Err(self.type_error(tree, "an empty expression".to_owned())),
        }
    }

    fn at(&self, tree: &Expression) -> Position {
        position(self.info, tree.id)
    }

    /// What the source says before this node.
    fn text_before(&self, tree: &Expression) -> String {
        let offset = self.info.offset_for(tree.id).map_or(0, |(start, _)| start as usize);
        let before: String = self.info.source.chars().take(offset).collect();
        before.trim_end().to_owned()
    }

    fn type_error(&self, tree: &Expression, reason: String) -> CompileError {
        CompileError::Type { at: self.at(tree), reason }
    }

    fn expected(&self, tree: &Expression, wanted: &Type, found: &Type) -> CompileError {
        let found = self.types.substitute(found);
        self.type_error(tree, format!("expected type '{wanted}' but found '{found}'"))
    }

    fn undeclared(&self, tree: &Expression, name: &str) -> CompileError {
        CompileError::Undeclared { at: self.at(tree), name: short(name) }
    }

    fn identifier(&self, tree: &Expression, name: &str) -> Checked {
        let local = self.scope.iter().rev().find(|variable| variable.name == name);
        if let Some(variable) = local {
            return Ok(Node::new(Kind::Slot(variable.slot), variable.ty.clone()));
        }
        let global = name.strip_prefix('.').unwrap_or(name);
        if global == "device" {
            return Ok(Node::new(Kind::Device, Type::Device));
        }
        match literals::type_name(global) {
            Some(name) => Ok(Node::new(Kind::Literal(Literal::Type(name)), Type::OfTypes)),
            None => Err(self.undeclared(tree, name)),
        }
    }

    fn select(&mut self, tree: &Expression, select: &SelectExpr) -> Checked {
        let operand = self.check(&select.operand)?;
        let access = if select.test { Access::Test } else { Access::Strict };
        self.select_from(tree, operand, &select.field, access)
    }

    fn select_from(
        &mut self,
        tree: &Expression,
        operand: Node,
        field: &str,
        access: Access,
    ) -> Checked {
        let operand_type = self.types.substitute(&operand.ty);
        let (target, is_optional) = unwrap_optional(&operand_type);
        let field_type = match &target {
            Type::Map(_, value) => value.as_ref().clone(),
            Type::Device => device_field(field).ok_or_else(|| CompileError::UndefinedField {
                at: self.at(tree),
                field: short(field),
            })?,
            Type::Quantity | Type::Semver => {
                return Err(CompileError::UndefinedField {
                    at: self.at(tree),
                    field: short(field),
                });
            }
            Type::Var(_) => {
                self.types.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn() => Type::Dyn,
            other => {
                let reason = format!("type '{other}' does not support field selection");
                return Err(self.type_error(tree, reason));
            }
        };
        let ty = match access {
            Access::Test => Type::Bool,
            Access::Optional => Type::optional(field_type),
            Access::Strict if is_optional => Type::optional(field_type),
            Access::Strict => field_type,
        };
        let select = Select { operand, field: field.into(), access };
        Ok(Node::new(Kind::Select(Box::new(select)), self.types.substitute(&ty)))
    }

    fn call(&mut self, tree: &Expression, call: &CallExpr) -> Checked {
        let name = call.func_name.as_str();
        let Some(target) = &call.target else {
            return match (name, call.args.as_slice()) {
                ("_&&_" | "_||_", [left, right]) => self.logical(name, left, right),
                ("_?._", [operand, field]) => self.optional_select(tree, operand, field),
                _ => self.plain_call(tree, name.strip_prefix('.').unwrap_or(name), &call.args),
            };
        };
        if let Some(checked) = self.two_variables(tree, target, name, &call.args) {
            return checked;
        }
        if UNSUPPORTED_MACROS
            .iter()
            .any(|(macro_name, counts)| *macro_name == name && counts.contains(&call.args.len()))
        {
            return Err(CompileError::Unsupported {
                name: format!("the macro {name} with {} arguments", call.args.len()),
            });
        }
        match (&target.expr, name, call.args.as_slice()) {
            (Expr::Ident(space), "bind", [variable, value, body]) if space == "cel" => {
                return self.bind(variable, value, body);
            }
            (_, "optMap", [variable, body]) => {
                return self.optional_map(target, variable, body, Wrap::Optional);
            }
            (_, "optFlatMap", [variable, body]) => {
                return self.optional_map(target, variable, body, Wrap::Flat);
            }
            _ => {}
        }
        if let Some(qualified) = qualified_name(target).map(|space| format!("{space}.{name}"))
            && lookup(&qualified).is_some()
        {
            return self.plain_call(tree, &qualified, &call.args);
        }
        // Its list may be of several types, which no other list may.
        if name == "format" {
            return Err(CompileError::unsupported_function(name));
        }
        // The arguments first, as cel-go does: it decides which problem is named.
        let mut nodes = self.all(&call.args)?;
        nodes.insert(0, self.check(target)?);
        self.resolve(tree, name, true, nodes)
    }

    fn all(&mut self, trees: &[Expression]) -> Result<Vec<Node>, CompileError> {
        trees.iter().map(|tree| self.check(tree)).collect()
    }

    fn plain_call(&mut self, tree: &Expression, name: &str, arguments: &[Expression]) -> Checked {
        let nodes = self.all(arguments)?;
        self.resolve(tree, name, false, nodes)
    }

    /// `&&` and `||`, flattened: `a && b && c` is one node.
    fn logical(&mut self, name: &str, left: &Expression, right: &Expression) -> Checked {
        let mut terms = Vec::new();
        for tree in [left, right] {
            let node = self.check(tree)?;
            if !self.types.assignable(&node.ty, &Type::Bool) {
                return Err(self.expected(tree, &Type::Bool, &node.ty));
            }
            match (name, node.kind) {
                ("_&&_", Kind::And(inner)) | ("_||_", Kind::Or(inner)) => terms.extend(inner),
                (_, kind) => terms.push(Node { kind, ty: node.ty, span: node.span }),
            }
        }
        let kind = if name == "_&&_" { Kind::And(terms) } else { Kind::Or(terms) };
        Ok(Node::new(kind, Type::Bool))
    }

    fn optional_select(
        &mut self,
        tree: &Expression,
        operand: &Expression,
        field: &Expression,
    ) -> Checked {
        let Expr::Literal(LiteralValue::String(field)) = &field.expr else {
            return Err(self.type_error(tree, "unsupported optional field selection".to_owned()));
        };
        let operand = self.check(operand)?;
        self.select_from(tree, operand, field.inner(), Access::Optional)
    }

    /// Chooses the overloads that take these arguments; what they return together.
    fn resolve(
        &mut self,
        tree: &Expression,
        name: &str,
        member: bool,
        nodes: Vec<Node>,
    ) -> Checked {
        let overloads = match lookup(name) {
            Some(Some(overloads)) => overloads,
            Some(None) => {
                return Err(CompileError::unsupported_function(name));
            }
            None => return Err(self.undeclared(tree, name)),
        };
        let mut chosen: Option<(Function, Type)> = None;
        for Overload { types, function, .. } in
            overloads.iter().filter(|o| o.member == member && o.types.len() == nodes.len() + 1)
        {
            let instance = self.types.instantiate(types);
            let [result, parameters @ ..] = instance.as_slice() else { continue };
            let pairs: Vec<(&Type, &Type)> =
                nodes.iter().map(|node| &node.ty).zip(parameters).collect();
            if !self.types.all_assignable(&pairs) {
                continue;
            }
            let result = self.types.substitute(result);
            chosen = Some(match chosen {
                None => (*function, result),
                Some((first, so_far)) if so_far == Type::Dyn || so_far == result => (first, so_far),
                Some((first, _)) => (first, Type::Dyn),
            });
        }
        let Some((function, ty)) = chosen else {
            let types: Vec<String> =
                nodes.iter().map(|node| self.types.substitute(&node.ty).to_string()).collect();
            let arguments = match types.split_first() {
                Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
                _ => format!("({})", types.join(", ")),
            };
            return Err(CompileError::NoOverload {
                at: self.at(tree),
                function: name.to_owned(),
                arguments,
            });
        };
        Ok(Node::new(self.build(tree, function, nodes)?, ty))
    }

    /// What evaluates the call: some functions have a node of their own.
    fn build(
        &mut self,
        tree: &Expression,
        function: Function,
        mut nodes: Vec<Node>,
    ) -> Result<Kind, CompileError> {
        match function {
            Function::Index | Function::OptionalIndex if nodes.len() == 2 => {
                let (key, operand) = (nodes.pop(), nodes.pop());
                if let (Some(operand), Some(key)) = (operand, key) {
                    if matches!(
                        key.kind,
                        Kind::List(_)
                            | Kind::Map(_)
                            | Kind::Literal(Literal::Null | Literal::Bytes(_))
                    ) {
                        let reason =
                            format!("invalid qualifier type: {}", self.types.known(&key.ty));
                        return Err(CompileError::Type { at: self.at(tree), reason });
                    }
                    let optional = function == Function::OptionalIndex;
                    return Ok(Kind::Index(Box::new(Index { operand, key, optional })));
                }
                Ok(Kind::Call(function, nodes))
            }
            Function::Conditional => Ok(boxed(nodes, Kind::Conditional, function)),
            Function::OptionalOr => Ok(boxed(nodes, Kind::OptionalOr, function)),
            Function::OptionalOrValue => Ok(boxed(nodes, Kind::OptionalOrValue, function)),
            _ => {
                let at = self.at(tree);
                literals::fold(function, nodes, at, &mut self.pattern_room)
            }
        }
    }

    /// Runs `body` with a variable in sight; the slot it has.
    fn with_variable<T>(
        &mut self,
        name: &str,
        ty: Type,
        body: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<(usize, T), CompileError> {
        let slot = self.scope.len();
        self.slots = self.slots.max(slot + 1);
        self.scope.push(Variable { name: name.to_owned(), ty, slot });
        let result = body(self);
        self.scope.pop();
        Ok((slot, result?))
    }
}

fn boxed<const N: usize>(
    nodes: Vec<Node>,
    kind: impl Fn(Box<[Node; N]>) -> Kind,
    function: Function,
) -> Kind {
    match <Box<[Node; N]>>::try_from(nodes) {
        Ok(nodes) => kind(nodes),
        Err(nodes) => Kind::Call(function, nodes),
    }
}

fn unwrap_optional(ty: &Type) -> (Type, bool) {
    match ty {
        Type::Optional(inner) => (inner.as_ref().clone(), true),
        other => (other.clone(), false),
    }
}

fn device_field(field: &str) -> Option<Type> {
    let domains =
        |value: Type| Type::map(Type::String, Type::Map(Arc::new(Type::String), Arc::new(value)));
    match field {
        "driver" => Some(Type::String),
        "allowMultipleAllocations" => Some(Type::Bool),
        "attributes" => Some(domains(Type::Any)),
        "capacity" => Some(domains(Type::Quantity)),
        _ => None,
    }
}

/// `a.b.c` as a name, if that is all there is.
fn qualified_name(tree: &Expression) -> Option<String> {
    match &tree.expr {
        Expr::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
        Expr::Select(select) if !select.test => {
            qualified_name(&select.operand).map(|space| format!("{space}.{}", select.field))
        }
        _ => None,
    }
}
