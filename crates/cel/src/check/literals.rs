//! Literals, type names, and calls whose outcome is known before any device is: quantities,
//! versions and patterns are read once, and what cel-go refuses at this point is refused.

use cel::common::ast::LiteralValue;
use gpu_dra_model::Quantity;

use crate::error::{CompileError, Position};
use crate::functions::constant;
use crate::ir::{Kind, Literal, Node};
use crate::regex::{Pattern, Refusal, Room};
use crate::semver::Semver;
use crate::signatures::Function;
use crate::types::Type;
use crate::value::Value;

/// What the patterns of an expression may take together, see [`Pattern::compile`]: about
/// 5 MiB, and a few milliseconds.
pub(super) const PATTERN_ROOM: usize = 200_000;

pub(super) fn literal(value: &LiteralValue) -> Node {
    let (literal, ty) = match value {
        LiteralValue::Null => (Literal::Null, Type::Null),
        LiteralValue::Boolean(value) => (Literal::Bool(*value.inner()), Type::Bool),
        LiteralValue::Int(value) => (Literal::Int(*value.inner()), Type::Int),
        LiteralValue::UInt(value) => (Literal::Uint(*value.inner()), Type::Uint),
        LiteralValue::Double(value) => (Literal::Double(*value.inner()), Type::Double),
        LiteralValue::String(value) => (Literal::String(value.inner().into()), Type::String),
        LiteralValue::Bytes(value) => (Literal::Bytes(value.inner().into()), Type::Bytes),
    };
    Node::new(Kind::Literal(literal), ty)
}

/// The names that stand for types; `type(x) == string`.
pub(super) fn type_name(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] =
        ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
    NAMES.into_iter().find(|known| *known == name)
}

/// The call, with what its literals already decide.
pub(super) fn fold(
    function: Function,
    nodes: Vec<Node>,
    at: Position,
    room: &mut Room,
) -> Result<Kind, CompileError> {
    let text = |index: usize| match nodes.get(index).map(|node| &node.kind) {
        Some(Kind::Literal(Literal::String(text))) => Some(text.as_ref()),
        _ => None,
    };
    match function {
        Function::Quantity => {
            // A text that is no quantity is an error when evaluated, not now.
            if let Some(quantity) = text(0).and_then(|text| text.parse::<Quantity>().ok()) {
                return Ok(Kind::Parsed(Literal::Quantity(quantity), length(text(0))));
            }
        }
        Function::Semver if nodes.len() == 1 => {
            if let Some(version) = text(0).and_then(Semver::parse) {
                return Ok(Kind::Parsed(Literal::Semver(version), length(text(0))));
            }
        }
        Function::Matches | Function::MatchesGlobal | Function::Find | Function::FindAll => {
            if let Some(pattern) = text(1) {
                let pattern = Pattern::compile(pattern, room).map_err(|refusal| match refusal {
                    Refusal::Invalid(reason) => {
                        CompileError::Regex { at, reason: reason.to_owned() }
                    }
                    Refusal::TooLarge => CompileError::Unsupported {
                        name: "a regular expression as large as this".to_owned(),
                    },
                })?;
                return Ok(Kind::Regex(function, nodes, pattern));
            }
        }
        Function::In => {
            // cel-go decides this one without looking at the element.
            if let Some(Node { kind: Kind::List(elements), .. }) = nodes.get(1)
                && elements.is_empty()
            {
                return Ok(Kind::Call(Function::InNothing, nodes));
            }
            if let Some(Node { kind: Kind::List(elements), .. }) = nodes.get(1)
                && elements.iter().all(|element| is_plain(&element.value))
            {
                return Ok(Kind::Call(Function::InLiterals, nodes));
            }
        }
        Function::Bool
        | Function::Bytes
        | Function::Double
        | Function::Int
        | Function::String
        | Function::Uint => {
            let whole = Node::new(Kind::Call(function, nodes), Type::Dyn);
            if let Some(Err(error)) = constant(&whole) {
                let reason = format!("program instantiation failed: {error}");
                return Err(CompileError::Type { at, reason });
            }
            return Ok(whole.kind);
        }
        _ => {}
    }
    Ok(Kind::Call(function, nodes))
}

fn is_plain(node: &Node) -> bool {
    matches!(
        constant(node),
        Some(Ok(Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)))
    )
}

fn length(text: Option<&str>) -> u64 {
    text.map_or(0, |text| text.chars().count() as u64)
}
