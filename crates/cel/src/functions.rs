//! The functions and operators. The checker has chosen a function by static types; here the
//! values decide, and values that no overload takes are "no such overload".

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter, literal_value};
use crate::ir::{Kind, Node};
use crate::regex::Pattern;
use crate::signatures::Function;
use crate::value::{Value, compare, equal, same};

mod convert;
mod kubernetes;
mod lists;
mod numbers;
mod text;

/// Runs a function on its arguments, the target first.
pub(crate) fn call<'a>(
    function: Function,
    values: &[Value<'a>],
    meter: &mut Meter,
) -> Evaluated<'a> {
    use Function as F;
    meter.spend(1)?;
    match (function, values) {
        (F::Equals | F::NotEquals, [left, right]) => {
            let sizes = (left.size(meter)?.unwrap_or(1), right.size(meter)?.unwrap_or(1));
            meter.spend(sizes.0.min(sizes.1) / 10)?;
            match function {
                F::Equals => {
                    equal(left, right, meter)?.map(Value::Bool).ok_or(EvalError::NoSuchOverload)
                }
                // What can't be compared is not equal: cel-go drops the error here.
                _ => Ok(Value::Bool(!same(left, right, meter)?)),
            }
        }
        (F::Less, [left, right]) => ordered(left, right, Ordering::is_lt, meter),
        (F::LessEquals, [left, right]) => ordered(left, right, Ordering::is_le, meter),
        (F::Greater, [left, right]) => ordered(left, right, Ordering::is_gt, meter),
        (F::GreaterEquals, [left, right]) => ordered(left, right, Ordering::is_ge, meter),
        (F::Not, [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        (F::In, [element, container]) => {
            lists::contains(container, element, meter).map(Value::Bool)
        }
        // cel-go keeps such a list as a set, and can't look these up in one.
        (F::InLiterals, [Value::Semver(_) | Value::Bytes(_), _]) => {
            Err(EvalError::Value("hash of unhashable type".to_owned()))
        }
        (F::InLiterals, [element, container]) => {
            lists::contains(container, element, meter).map(Value::Bool)
        }
        (F::Size, [value]) => {
            let size = value.size(meter)?.ok_or(EvalError::NoSuchOverload)?;
            Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
        }
        (F::Dyn, [value]) => Ok(value.clone()),
        (F::Type, [value]) => Ok(Value::Type(value.type_name())),
        (F::Bool | F::Bytes | F::Double | F::Int | F::String | F::Uint, [value]) => {
            convert::convert(function, value, meter)
        }
        (F::Matches | F::MatchesGlobal | F::Find | F::FindAll, [_, pattern, ..]) => {
            let pattern = meter.pattern(pattern.as_str().ok_or(EvalError::NoSuchOverload)?)?;
            search(function, values, &pattern, meter)
        }
        (F::Add | F::Subtract | F::Multiply | F::Divide | F::Modulo | F::Negate, _) => {
            numbers::arithmetic(function, values, meter)
        }
        (F::IndexOf | F::LastIndexOf, [Value::String(_), ..]) => {
            text::call(function, values, meter)
        }
        (
            F::CharAt
            | F::Contains
            | F::EndsWith
            | F::Join
            | F::LowerAscii
            | F::Quote
            | F::Replace
            | F::Split
            | F::StartsWith
            | F::Substring
            | F::Trim
            | F::UpperAscii,
            _,
        ) => text::call(function, values, meter),
        (
            F::CompareTo
            | F::IsGreaterThan
            | F::IsLessThan
            | F::AsApproximateFloat
            | F::AsInteger
            | F::IsInteger
            | F::IsQuantity
            | F::Quantity
            | F::QuantityAdd
            | F::QuantitySub
            | F::Sign
            | F::IsSemver
            | F::Major
            | F::Minor
            | F::Patch
            | F::Semver,
            _,
        ) => kubernetes::call(function, values, meter),
        (
            F::HasValue
            | F::OptionalNone
            | F::OptionalOf
            | F::OptionalOfNonZero
            | F::OptionalUnwrap
            | F::OptionalValue,
            _,
        ) => optional(function, values, meter),
        _ => lists::call(function, values, meter),
    }
}

/// The value of a node that no device has a part in: literals, and conversions of them.
/// cel-go computes these when it compiles, and refuses the expression if one fails.
pub(crate) fn constant(node: &Node) -> Option<Evaluated<'_>> {
    use Function as F;
    match &node.kind {
        Kind::Literal(literal) => Some(Ok(literal_value(literal))),
        Kind::Call(
            function @ (F::Bool
            | F::Bytes
            | F::Double
            | F::Dyn
            | F::Int
            | F::String
            | F::Type
            | F::Uint),
            nodes,
        ) => {
            let [node] = nodes.as_slice() else { return None };
            let value = match constant(node)? {
                Ok(value) => value,
                Err(error) => return Some(Err(error)),
            };
            Some(call(*function, &[value], &mut Meter::new()))
        }
        _ => None,
    }
}

/// `matches`, `find` and `findAll` with the pattern compiled.
pub(crate) fn search<'a>(
    function: Function,
    values: &[Value<'a>],
    pattern: &Pattern,
    meter: &mut Meter,
) -> Evaluated<'a> {
    let text = values.first().and_then(Value::as_str).ok_or(EvalError::NoSuchOverload)?;
    meter
        .spend((text.len() + 1).div_ceil(10).saturating_mul(pattern.source().len().div_ceil(4)))?;
    match (function, values.get(2)) {
        (Function::Matches | Function::MatchesGlobal, None) => {
            pattern.is_match(text, meter).map(Value::Bool)
        }
        (Function::Find, None) => Ok(Value::text(pattern.find(text, meter)?.unwrap_or(""))),
        (Function::FindAll, limit) => {
            let limit = match limit {
                None => usize::MAX,
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                Some(_) => return Err(EvalError::NoSuchOverload),
            };
            let found = pattern.find_all(text, limit, meter)?;
            meter.spend(found.len())?;
            Ok(Value::list(found.into_iter().map(Value::text).collect()))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn ordered<'a>(
    left: &Value<'_>,
    right: &Value<'_>,
    wanted: fn(Ordering) -> bool,
    meter: &mut Meter,
) -> Evaluated<'a> {
    match compare(left, right, meter)? {
        Some(order) => Ok(Value::Bool(wanted(order))),
        None if is_nan(left) || is_nan(right) => {
            Err(EvalError::Value("NaN values cannot be ordered".to_owned()))
        }
        None => Err(EvalError::NoSuchOverload),
    }
}

fn is_nan(value: &Value<'_>) -> bool {
    matches!(value, Value::Double(number) if number.is_nan())
}

fn optional<'a>(function: Function, values: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    match (function, values) {
        (Function::OptionalNone, []) => Ok(Value::Optional(None)),
        (Function::OptionalOf, [value]) => Ok(Value::some(value.clone())),
        (Function::OptionalOfNonZero, [value]) => Ok(if is_zero(value, meter)? {
            Value::Optional(None)
        } else {
            Value::some(value.clone())
        }),
        (Function::HasValue, [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        (Function::OptionalValue, [Value::Optional(Some(value))]) => Ok((**value).clone()),
        (Function::OptionalValue, [Value::Optional(None)]) => {
            Err(EvalError::Value("optional.none() dereference".to_owned()))
        }
        (Function::OptionalUnwrap, [Value::List(values)]) => {
            meter.copy(values.len())?;
            let mut present = Vec::new();
            for value in values.iter() {
                match value {
                    Value::Optional(inner) => present.extend(inner.as_deref().cloned()),
                    other => {
                        let reason = format!("value of type {} is not optional", other.type_name());
                        return Err(EvalError::Value(reason));
                    }
                }
            }
            Ok(Value::list(present))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_zero(value: &Value<'_>, meter: &mut Meter) -> Result<bool, EvalError> {
    Ok(match value {
        Value::Null
        | Value::Bool(false)
        | Value::Int(0)
        | Value::Uint(0)
        | Value::Optional(None) => true,
        Value::Double(number) => *number == 0.0,
        other => other.size(meter)? == Some(0),
    })
}
