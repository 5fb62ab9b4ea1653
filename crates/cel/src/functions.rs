//! The functions and operators. The checker has chosen a function by static types; here the
//! values decide, and values that no overload takes are "no such overload".

use std::cmp::Ordering;

use regex::Regex;

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter, literal_value};
use crate::ir::{Kind, Node};
use crate::regex::translate;
use crate::signatures::Function;
use crate::value::{Value, compare, equal};

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
            meter.spend(left.size().unwrap_or(1).min(right.size().unwrap_or(1)) / 10)?;
            match function {
                F::Equals => equal(left, right).map(Value::Bool),
                // What can't be compared is not equal: cel-go drops the error here.
                _ => Ok(Value::Bool(!equal(left, right).unwrap_or(false))),
            }
        }
        (F::Less, [left, right]) => ordered(left, right, Ordering::is_lt),
        (F::LessEquals, [left, right]) => ordered(left, right, Ordering::is_le),
        (F::Greater, [left, right]) => ordered(left, right, Ordering::is_gt),
        (F::GreaterEquals, [left, right]) => ordered(left, right, Ordering::is_ge),
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
            let size = value.size().ok_or(EvalError::NoSuchOverload)?;
            Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
        }
        (F::Dyn, [value]) => Ok(value.clone()),
        (F::Type, [value]) => Ok(Value::Type(value.type_name())),
        (F::Bool | F::Bytes | F::Double | F::Int | F::String | F::Uint, [value]) => {
            convert::convert(function, value, meter)
        }
        (F::Matches | F::MatchesGlobal | F::Find | F::FindAll, [_, pattern, ..]) => {
            let pattern = pattern.as_str().ok_or(EvalError::NoSuchOverload)?;
            // Compiling is dear; a literal pattern was compiled once.
            meter.spend(200 + 20 * pattern.len())?;
            let compiled = translate(pattern).map_err(EvalError::Value)?;
            regex(function, values, &compiled, meter)
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
        ) => optional(function, values),
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
            Some(call(*function, &[value], &mut Meter::new(u64::MAX)))
        }
        _ => None,
    }
}

/// `matches`, `find` and `findAll` with the pattern compiled.
pub(crate) fn regex<'a>(
    function: Function,
    values: &[Value<'a>],
    regex: &Regex,
    meter: &mut Meter,
) -> Evaluated<'a> {
    let text = values.first().and_then(Value::as_str).ok_or(EvalError::NoSuchOverload)?;
    meter.spend((text.len() + 1).div_ceil(10).saturating_mul(regex.as_str().len().div_ceil(4)))?;
    match (function, values.get(2)) {
        (Function::Matches | Function::MatchesGlobal, None) => {
            Ok(Value::Bool(regex.is_match(text)))
        }
        (Function::Find, None) => {
            Ok(Value::text(regex.find(text).map_or("", |found| found.as_str())))
        }
        (Function::FindAll, limit) => {
            let limit = match limit {
                None => usize::MAX,
                Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
                Some(_) => return Err(EvalError::NoSuchOverload),
            };
            let found: Vec<Value<'a>> = regex
                .find_iter(text)
                .take(limit)
                .map(|found| Value::text(found.as_str()))
                .collect();
            meter.spend(found.len())?;
            Ok(Value::list(found))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn ordered<'a>(left: &Value<'_>, right: &Value<'_>, wanted: fn(Ordering) -> bool) -> Evaluated<'a> {
    match compare(left, right) {
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

fn optional<'a>(function: Function, values: &[Value<'a>]) -> Evaluated<'a> {
    match (function, values) {
        (Function::OptionalNone, []) => Ok(Value::Optional(None)),
        (Function::OptionalOf, [value]) => Ok(Value::some(value.clone())),
        (Function::OptionalOfNonZero, [value]) => {
            Ok(if is_zero(value) { Value::Optional(None) } else { Value::some(value.clone()) })
        }
        (Function::HasValue, [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        (Function::OptionalValue, [Value::Optional(Some(value))]) => Ok((**value).clone()),
        (Function::OptionalValue, [Value::Optional(None)]) => {
            Err(EvalError::Value("optional.none() dereference".to_owned()))
        }
        (Function::OptionalUnwrap, [Value::List(values)]) => {
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

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null
        | Value::Bool(false)
        | Value::Int(0)
        | Value::Uint(0)
        | Value::Optional(None) => true,
        Value::Double(number) => *number == 0.0,
        other => other.size() == Some(0),
    }
}
