//! List and map literals: their elements must have one type.

use cel::common::ast::{EntryExpr, MapExpr};
use cel::parser::Expression;

use super::{Checked, Checker, unwrap_optional};
use crate::error::{CompileError, Position};
use crate::ir::{Element, Entry, Kind, Node};
use crate::types::{Type, Variables, most_general};

impl Checker<'_> {
    pub(super) fn list(&mut self, elements: &[Expression], optional: &[usize]) -> Checked {
        let mut element_type: Option<Type> = None;
        let mut nodes = Vec::with_capacity(elements.len());
        for (index, tree) in elements.iter().enumerate() {
            let value = self.check(tree)?;
            let optional = optional.contains(&index);
            let ty = self.element_type(tree, &value.ty, optional)?;
            element_type = Some(self.join(tree, element_type, ty)?);
            nodes.push(Element { value, optional });
        }
        let element_type = element_type.unwrap_or_else(|| self.types.fresh());
        Ok(Node::new(Kind::List(nodes), Type::list(element_type)))
    }

    pub(super) fn map(&mut self, tree: &Expression, map: &MapExpr) -> Checked {
        let (mut key_type, mut value_type): (Option<Type>, Option<Type>) = (None, None);
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(self.type_error(tree, "a map entry without key".to_owned()));
            };
            let key = self.check(&entry.key)?;
            key_type = Some(self.join(&entry.key, key_type, key.ty.clone())?);
            let value = self.check(&entry.value)?;
            let ty = self.element_type(&entry.value, &value.ty, entry.optional)?;
            value_type = Some(self.join(&entry.value, value_type, ty)?);
            entries.push(Entry { key, value, optional: entry.optional });
        }
        let key_type = key_type.unwrap_or_else(|| self.types.fresh());
        let value_type = value_type.unwrap_or_else(|| self.types.fresh());
        Ok(Node::new(Kind::Map(entries), Type::map(key_type, value_type)))
    }

    fn element_type(
        &self,
        tree: &Expression,
        ty: &Type,
        optional: bool,
    ) -> Result<Type, CompileError> {
        let ty = self.types.substitute(ty);
        match (optional, unwrap_optional(&ty)) {
            (true, (inner, true)) => Ok(inner),
            (true, (inner, false)) if !inner.is_dyn() => {
                Err(self.expected(tree, &Type::optional(inner.clone()), &inner))
            }
            _ => Ok(ty),
        }
    }

    /// The common type of the elements of a literal, which must be of one kind.
    fn join(
        &mut self,
        tree: &Expression,
        so_far: Option<Type>,
        next: Type,
    ) -> Result<Type, CompileError> {
        let Some(so_far) = so_far else { return Ok(next) };
        if !self.types.assignable(&so_far, &next) {
            return Err(self.expected(tree, &self.types.substitute(&so_far), &next));
        }
        Ok(most_general(&so_far, &next).clone())
    }
}

/// The elements of a literal must have one type in the end: cel-go checks it once all types
/// are known, and takes `any` beside `int` for a mistake.
pub(crate) fn check_literals(root: &Node, types: &Variables) -> Result<(), CompileError> {
    let mut mixed = None;
    let mut compare = |parts: &mut dyn Iterator<Item = (&Type, bool)>| {
        let mut first: Option<Type> = None;
        for (ty, optional) in parts {
            let ty = types.known(ty);
            let ty = if optional { unwrap_optional(&ty).0 } else { ty };
            match &first {
                None => first = Some(ty),
                Some(first) if *first == ty => {}
                Some(first) => {
                    mixed.get_or_insert_with(|| {
                        format!("expected type '{first}' but found '{ty}' in a literal")
                    });
                }
            }
        }
    };
    root.each(|node, _| match &node.kind {
        Kind::List(elements) => {
            compare(&mut elements.iter().map(|element| (&element.value.ty, element.optional)));
        }
        Kind::Map(entries) => {
            compare(&mut entries.iter().map(|entry| (&entry.key.ty, false)));
            compare(&mut entries.iter().map(|entry| (&entry.value.ty, entry.optional)));
        }
        _ => {}
    });
    match mixed {
        Some(reason) => Err(CompileError::Type { at: Position { line: 1, column: 1 }, reason }),
        None => Ok(()),
    }
}
