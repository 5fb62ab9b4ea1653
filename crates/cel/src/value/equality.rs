//! Equality and order of values, as cel-go has them. Each value that is looked at is charged:
//! lists and maps that are made of each other can be without measure.

use std::cmp::Ordering;
use std::rc::Rc;

use super::Value;
use crate::error::EvalError;
use crate::eval::Meter;

/// `==`: values of different kinds are unequal. None where a quantity or version on the left
/// meets something else, which is an error in the API server.
///
/// # Errors
/// The meter ran out.
pub(crate) fn equal(
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<Option<bool>, EvalError> {
    meter.work(1)?;
    Ok(Some(match (left, right) {
        (Value::Null, other) | (other, Value::Null) => matches!(other, Value::Null),
        (Value::Quantity { value: a, .. }, Value::Quantity { value: b, computed: false }) => a == b,
        (Value::Semver(a), Value::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Value::Quantity { .. } | Value::Semver(_), _) => return Ok(None),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => same_bytes(a.as_bytes(), b.as_bytes(), meter)?,
        (Value::Bytes(a), Value::Bytes(b)) => same_bytes(a, b, meter)?,
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => return equal(a, b, meter),
        (Value::List(a), Value::List(b)) if Rc::ptr_eq(a, b) && a.reflexive => true,
        (Value::List(a), Value::List(b)) => a.len() == b.len() && all_equal(a, b, meter)?,
        (Value::Map(a), Value::Map(b)) if Rc::ptr_eq(a, b) && a.reflexive => true,
        _ => match (left.keys(), right.keys()) {
            (Some(keys), Some(others)) => {
                keys.len() == others.len() && all_found(&keys, left, right, meter)?
            }
            _ => compare_numbers(left, right) == Some(Ordering::Equal),
        },
    }))
}

/// Whether the two are equal: what can't be compared isn't.
///
/// # Errors
/// The meter ran out.
pub(crate) fn same(
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    Ok(equal(left, right, meter)?.unwrap_or(false))
}

/// Inside lists and maps cel-go takes what can't be compared for equal.
fn not_unequal(left: &Value<'_>, right: &Value<'_>, meter: &mut Meter) -> Result<bool, EvalError> {
    Ok(equal(left, right, meter)?.unwrap_or(true))
}

fn all_equal(
    left: &[Value<'_>],
    right: &[Value<'_>],
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    for (a, b) in left.iter().zip(right) {
        if !not_unequal(a, b, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn all_found(
    keys: &[Value<'_>],
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    meter.copy(keys.len())?;
    for key in keys {
        let (Some(a), Some(true)) = (left.find(key, meter)?, right.has_key(key, meter)?) else {
            return Ok(false);
        };
        match right.find(key, meter)? {
            Some(b) if not_unequal(&a, &b, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn same_bytes(left: &[u8], right: &[u8], meter: &mut Meter) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    meter.scan(left.len())?;
    Ok(left == right)
}

/// `<` and its like; None where the two have no order.
///
/// # Errors
/// The meter ran out.
pub(crate) fn compare(
    left: &Value<'_>,
    right: &Value<'_>,
    meter: &mut Meter,
) -> Result<Option<Ordering>, EvalError> {
    let mut bytes = |a: &[u8], b: &[u8]| {
        meter.scan(a.len().min(b.len()))?;
        Ok(a.cmp(b))
    };
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Ok(Some(a.cmp(b))),
        (Value::String(a), Value::String(b)) => bytes(a.as_bytes(), b.as_bytes()).map(Some),
        (Value::Bytes(a), Value::Bytes(b)) => bytes(a, b).map(Some),
        _ => Ok(compare_numbers(left, right)),
    }
}

/// Whether it has an order among its like.
pub(crate) fn is_ordered(value: &Value<'_>) -> bool {
    match value {
        Value::Bool(_) | Value::String(_) | Value::Bytes(_) => true,
        other => compare_numbers(other, other).is_some(),
    }
}

/// Numbers of any types; where one is a double, both are compared as doubles.
#[allow(clippy::cast_precision_loss)]
fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    let as_double = |value: &Value<'_>| match value {
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        _ => None,
    };
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        _ => as_double(left)?.partial_cmp(&as_double(right)?),
    }
}
