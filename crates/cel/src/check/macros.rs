//! Macros: the loops that the parser expanded the standard ones to, and those that it leaves
//! as calls: `cel.bind`, `optMap`, `optFlatMap`, and the loops with two variables. Only these
//! shapes exist, since no one can write a comprehension by hand; any other is refused.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue};
use cel::parser::Expression;

use super::{Checked, Checker};
use crate::error::{CompileError, short};
use crate::ir::{Bind, Collection, Kind, Loop, Node, Purpose, Wrap};
use crate::types::Type;

/// What a comprehension is for, read from its shape.
enum Shape<'a> {
    All(&'a Expression),
    Exists(&'a Expression),
    ExistsOne(&'a Expression),
    Collect { filter: Option<&'a Expression>, item: &'a Expression },
}

impl Checker<'_> {
    pub(super) fn comprehension(
        &mut self,
        tree: &Expression,
        whole: &ComprehensionExpr,
    ) -> Checked {
        let Some(shape) = shape(whole) else {
            return Err(CompileError::Unsupported { name: "this macro".to_owned() });
        };
        // The parser knows existsOne as another name of exists_one, Kubernetes 1.36 doesn't.
        if matches!(shape, Shape::ExistsOne(_)) && self.text_before(tree).ends_with("existsOne") {
            return Err(CompileError::Unsupported { name: "the macro existsOne".to_owned() });
        }
        let range = self.check(&whole.iter_range)?;
        let element = self.element_of(&whole.iter_range, &range)?;
        let (slot, (purpose, ty)) = self.with_variable(&whole.iter_var, element, |checker| {
            Ok(match shape {
                Shape::All(test) => (Purpose::All(checker.test(test)?), Type::Bool),
                Shape::Exists(test) => (Purpose::Exists(checker.test(test)?), Type::Bool),
                Shape::ExistsOne(test) => (Purpose::ExistsOne(checker.test(test)?), Type::Bool),
                Shape::Collect { filter, item } => {
                    let filter = filter.map(|filter| checker.test(filter)).transpose()?;
                    let item = checker.check(item)?;
                    let ty = Type::list(checker.types.substitute(&item.ty));
                    (Purpose::Collect { filter, item, into: Collection::List }, ty)
                }
            })
        })?;
        Ok(Node::new(Kind::Loop(Box::new(Loop { range, slot, second: None, purpose })), ty))
    }

    /// A loop with two variables: index and element of a list, or key and value of a map.
    /// None where the call is no such macro.
    pub(super) fn two_variables(
        &mut self,
        tree: &Expression,
        target: &Expression,
        name: &str,
        arguments: &[Expression],
    ) -> Option<Checked> {
        let (into, filter, [first, second, body]) = match (name, arguments) {
            ("all" | "exists" | "existsOne" | "exists_one", [first, second, test]) => {
                (None, None, [first, second, test])
            }
            (_, [first, second, item]) => (Some(collection(name)?), None, [first, second, item]),
            (_, [first, second, filter, item]) => {
                (Some(collection(name)?), Some(filter), [first, second, item])
            }
            _ => return None,
        };
        Some(self.loop_of_two(tree, target, [first, second], |checker, key| {
            let Some(into) = into else {
                let test = checker.test(body)?;
                let purpose = match name {
                    "all" => Purpose::All(test),
                    "exists" => Purpose::Exists(test),
                    _ => Purpose::ExistsOne(test),
                };
                return Ok((purpose, Type::Bool));
            };
            let filter = filter.map(|filter| checker.test(filter)).transpose()?;
            let item = checker.check(body)?;
            let ty = match into {
                Collection::List => Type::list(checker.types.substitute(&item.ty)),
                Collection::Map => Type::map(key, checker.types.substitute(&item.ty)),
                Collection::Entries => {
                    let map = Type::map(checker.types.fresh(), checker.types.fresh());
                    if !checker.types.assignable(&item.ty, &map) {
                        let found = checker.types.substitute(&item.ty);
                        return Err(CompileError::NoOverload {
                            at: checker.at(tree),
                            function: "cel.@mapInsert".to_owned(),
                            arguments: format!("(map(dyn, dyn), {found})"),
                        });
                    }
                    checker.types.substitute(&map)
                }
            };
            Ok((Purpose::Collect { filter, item, into }, ty))
        }))
    }

    fn loop_of_two(
        &mut self,
        tree: &Expression,
        target: &Expression,
        variables: [&Expression; 2],
        body: impl FnOnce(&mut Self, Type) -> Result<(Purpose, Type), CompileError>,
    ) -> Checked {
        let mut names = Vec::with_capacity(2);
        for variable in variables {
            let Expr::Ident(name) = &variable.expr else {
                let reason = "argument must be a simple name".to_owned();
                return Err(self.type_error(variable, reason));
            };
            if names.contains(&name) {
                return Err(
                    self.type_error(variable, format!("duplicate variable name: {}", short(name)))
                );
            }
            if name == "__result__" {
                let reason = "iteration variable overwrites accumulator variable".to_owned();
                return Err(self.type_error(tree, reason));
            }
            names.push(name);
        }
        let [first, second] = names.as_slice() else {
            return Err(self.type_error(tree, "a loop with two variables".to_owned()));
        };
        let range = self.check(target)?;
        let element = self.element_of(target, &range)?;
        let (key, value) = match self.types.substitute(&range.ty) {
            Type::List(_) => (Type::Int, element),
            Type::Map(key, value) => (key.as_ref().clone(), value.as_ref().clone()),
            _ => (Type::Dyn, Type::Dyn),
        };
        let (slot, (second, (purpose, ty))) =
            self.with_variable(first, key.clone(), |checker| {
                checker.with_variable(second, value, |checker| body(checker, key))
            })?;
        let lap = Loop { range, slot, second: Some(second), purpose };
        Ok(Node::new(Kind::Loop(Box::new(lap)), ty))
    }

    /// An expression that must be a bool.
    fn test(&mut self, tree: &Expression) -> Checked {
        let node = self.check(tree)?;
        if self.types.assignable(&node.ty, &Type::Bool) {
            return Ok(node);
        }
        Err(self.expected(tree, &Type::Bool, &node.ty))
    }

    /// The type of the loop variable: elements of lists, keys of maps.
    fn element_of(&mut self, tree: &Expression, range: &Node) -> Result<Type, CompileError> {
        match self.types.substitute(&range.ty) {
            Type::List(element) | Type::Map(element, _) => Ok(element.as_ref().clone()),
            variable @ Type::Var(_) => {
                self.types.assignable(&Type::Dyn, &variable);
                Ok(Type::Dyn)
            }
            // Not `any`: cel-go is stricter here than elsewhere.
            Type::Dyn => Ok(Type::Dyn),
            other => {
                let reason = format!(
                    "expression of type '{other}' cannot be range of a comprehension \
                     (must be list, map, or dynamic)"
                );
                Err(self.type_error(tree, reason))
            }
        }
    }

    pub(super) fn bind(
        &mut self,
        variable: &Expression,
        value: &Expression,
        body: &Expression,
    ) -> Checked {
        let Expr::Ident(name) = &variable.expr else {
            return Err(self.type_error(
                variable,
                "cel.bind() variable names must be simple identifiers".to_owned(),
            ));
        };
        let value = self.check(value)?;
        let (slot, body) =
            self.with_variable(name, value.ty.clone(), |checker| checker.check(body))?;
        let ty = self.types.substitute(&body.ty);
        Ok(Node::new(Kind::Bind(Box::new(Bind { slot, value, body })), ty))
    }

    pub(super) fn optional_map(
        &mut self,
        target: &Expression,
        variable: &Expression,
        body: &Expression,
        wrap: Wrap,
    ) -> Checked {
        let Expr::Ident(name) = &variable.expr else {
            return Err(self.type_error(
                variable,
                "optMap() variable name must be a simple identifier".to_owned(),
            ));
        };
        let value = self.check(target)?;
        let inner = self.types.fresh();
        if !self.types.assignable(&value.ty, &Type::optional(inner.clone())) {
            let arguments = format!("{}.()", self.types.substitute(&value.ty));
            return Err(CompileError::NoOverload {
                at: self.at(target),
                function: "hasValue".to_owned(),
                arguments,
            });
        }
        let inner = self.types.substitute(&inner);
        let (slot, mapped) = self.with_variable(name, inner, |checker| checker.check(body))?;
        let mut ty = self.types.substitute(&mapped.ty);
        let none = Type::optional(self.types.fresh());
        if wrap == Wrap::Optional {
            ty = Type::optional(ty);
        } else if !self.types.assignable(&ty, &none) {
            return Err(self.expected(body, &none, &ty));
        }
        let bind = Box::new(Bind { slot, value, body: mapped });
        Ok(Node::new(Kind::OptionalMap(bind, wrap), ty))
    }
}

fn collection(name: &str) -> Option<Collection> {
    match name {
        "transformList" => Some(Collection::List),
        "transformMap" => Some(Collection::Map),
        "transformMapEntry" => Some(Collection::Entries),
        _ => None,
    }
}

fn shape(whole: &ComprehensionExpr) -> Option<Shape<'_>> {
    if whole.iter_var2.is_some() {
        return None;
    }
    let step = as_call(&whole.loop_step)?;
    match (&whole.accu_init.expr, step.func_name.as_str(), step.args.as_slice()) {
        (Expr::Literal(LiteralValue::Boolean(_)), "_&&_", [_, test]) => Some(Shape::All(test)),
        (Expr::Literal(LiteralValue::Boolean(_)), "_||_", [_, test]) => Some(Shape::Exists(test)),
        (Expr::Literal(LiteralValue::Int(_)), "_?_:_", [test, _, _]) => {
            Some(Shape::ExistsOne(test))
        }
        (Expr::List(_), "_?_:_", [filter, step, _]) => {
            let item = appended(as_call(step)?)?;
            Some(Shape::Collect { filter: Some(filter), item })
        }
        (Expr::List(_), "_+_", _) => Some(Shape::Collect { filter: None, item: appended(step)? }),
        _ => None,
    }
}

fn as_call(tree: &Expression) -> Option<&CallExpr> {
    match &tree.expr {
        Expr::Call(call) if call.target.is_none() => Some(call),
        _ => None,
    }
}

/// The `x` of `result + [x]`.
fn appended(step: &CallExpr) -> Option<&Expression> {
    match step.args.as_slice() {
        [_, Expression { expr: Expr::List(list), .. }] if step.func_name == "_+_" => {
            list.elements.first()
        }
        _ => None,
    }
}
