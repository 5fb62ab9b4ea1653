//! `a.b`, `a[b]`, their optional forms and `has()`: what is found, and what is said when it
//! isn't.

use std::rc::Rc;

use super::{Evaluated, Meter};
use crate::error::{EvalError, short};
use crate::ir::Access;
use crate::value::Value;

pub(super) fn field<'a>(
    operand: &Value<'a>,
    field: &str,
    access: Access,
    meter: &mut Meter,
) -> Evaluated<'a> {
    let (target, optional) = match operand {
        Value::Optional(None) if access == Access::Test => return Ok(Value::Bool(false)),
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => (value.as_ref(), true),
        other => (other, false),
    };
    if access == Access::Test && optional {
        // Here cel-go asks for what is really there, without default domains.
        return Ok(Value::Bool(target.has_field(field, meter)?.unwrap_or(false)));
    }
    let found = target.find_field(field, meter)?;
    match access {
        Access::Test => Ok(Value::Bool(found.is_some())),
        Access::Strict if !optional => found.ok_or_else(|| no_such_key(field)),
        Access::Strict | Access::Optional => Ok(Value::Optional(found.map(Rc::new))),
    }
}

pub(super) fn index<'a>(
    operand: &Value<'a>,
    key: &Value<'a>,
    optional: bool,
    meter: &mut Meter,
) -> Evaluated<'a> {
    let (target, optional) = match operand {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => (value.as_ref(), true),
        other => (other, optional),
    };
    if !matches!(
        key,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
    ) {
        return Err(EvalError::Value(format!("invalid qualifier type: {}", key.type_name())));
    }
    let found = match target {
        Value::List(values) => {
            let place = list_index(key)?;
            let found = usize::try_from(place).ok().and_then(|place| values.get(place)).cloned();
            if found.is_none() && !optional {
                return Err(EvalError::Value(format!("index out of bounds: {place}")));
            }
            found
        }
        other => other.find(key, meter)?,
    };
    if optional {
        return Ok(Value::Optional(found.map(Rc::new)));
    }
    found.ok_or_else(|| no_such_key(&shown(key)))
}

/// Whole numbers of any type serve as an index.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn list_index(key: &Value<'_>) -> Result<i64, EvalError> {
    match key {
        Value::Int(number) => Ok(*number),
        Value::Uint(number) => i64::try_from(*number)
            .map_err(|_| EvalError::Value(format!("index out of bounds: {number}"))),
        Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e15 => Ok(*number as i64),
        other => {
            Err(EvalError::Value(format!("unsupported index type '{}' in list", other.type_name())))
        }
    }
}

fn no_such_key(key: &str) -> EvalError {
    EvalError::NoSuchKey(short(key))
}

fn shown(key: &Value<'_>) -> String {
    match key {
        Value::String(text) => short(text),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        other => other.type_name().to_owned(),
    }
}
