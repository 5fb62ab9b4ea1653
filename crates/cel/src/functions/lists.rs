//! List and set functions, of Kubernetes' own library and of cel-go's extensions.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter};
use crate::signatures::Function;
use crate::value::{Value, compare, equal};

pub(super) fn call<'a>(
    function: Function,
    values: &[Value<'a>],
    meter: &mut Meter,
) -> Evaluated<'a> {
    use Function as F;
    if let (F::Range, [Value::Int(length)]) = (function, values) {
        meter.spend(usize::try_from(*length).unwrap_or(0))?;
        return Ok(Value::list((0..*length).map(Value::Int).collect()));
    }
    let [Value::List(list), rest @ ..] = values else { return Err(EvalError::NoSuchOverload) };
    meter.spend(list.len())?;
    match (function, rest) {
        (F::First, []) => Ok(optional(list.first())),
        (F::Last, []) => Ok(optional(list.last())),
        (F::Reverse, []) => Ok(Value::list(list.iter().rev().cloned().collect())),
        (F::Distinct, []) => distinct(list, meter),
        (F::Flatten, []) => flatten(list, 1).map(Value::list),
        (F::Flatten, [Value::Int(depth)]) => flatten(list, *depth).map(Value::list),
        (F::Slice, [Value::Int(start), Value::Int(end)]) => slice(list, *start, *end),
        (F::Sort, []) => sort(list, meter),
        (F::IsSorted, []) => is_sorted(list),
        (F::Min, []) => extreme(list, "min", Ordering::Greater),
        (F::Max, []) => extreme(list, "max", Ordering::Less),
        (F::Sum, []) => sum(list, meter),
        (F::IndexOf, [item]) => Ok(place(list.iter().position(|value| same(value, item)))),
        (F::LastIndexOf, [item]) => Ok(place(list.iter().rposition(|value| same(value, item)))),
        (F::SetsContains, [Value::List(other)]) => {
            contains_all(list, other, meter).map(Value::Bool)
        }
        (F::SetsEquivalent, [Value::List(other)]) => {
            Ok(Value::Bool(contains_all(list, other, meter)? && contains_all(other, list, meter)?))
        }
        (F::SetsIntersects, [Value::List(other)]) => {
            meter.spend(list.len().saturating_mul(other.len()))?;
            Ok(Value::Bool(list.iter().any(|value| is_in(other, value))))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// The operator `in`.
pub(super) fn contains<'a>(
    container: &Value<'a>,
    element: &Value<'a>,
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    if let Value::List(values) = container {
        meter.spend(values.len())?;
        return Ok(is_in(values, element));
    }
    container.has_key(element).ok_or(EvalError::NoSuchOverload)
}

/// An element that can't be compared isn't the one that is looked for.
fn same(left: &Value<'_>, right: &Value<'_>) -> bool {
    equal(left, right).unwrap_or(false)
}

fn is_in(list: &[Value<'_>], element: &Value<'_>) -> bool {
    list.iter().any(|value| same(element, value))
}

fn contains_all(
    list: &[Value<'_>],
    other: &[Value<'_>],
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    meter.spend(list.len().saturating_mul(other.len()))?;
    Ok(other.iter().all(|value| is_in(list, value)))
}

fn optional<'a>(value: Option<&Value<'a>>) -> Value<'a> {
    value.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

fn place<'a>(index: Option<usize>) -> Value<'a> {
    Value::Int(index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1))
}

fn distinct<'a>(list: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for value in list {
        meter.spend(unique.len())?;
        if !unique.iter().any(|known| same(value, known)) {
            unique.push(value.clone());
        }
    }
    Ok(Value::list(unique))
}

/// Recurses with the nesting of the value, which no expression can make deeper than itself.
fn flatten<'a>(list: &[Value<'a>], depth: i64) -> Result<Vec<Value<'a>>, EvalError> {
    if depth < 0 {
        return Err(EvalError::Value("level must be non-negative".to_owned()));
    }
    let mut flat = Vec::with_capacity(list.len());
    for value in list {
        match value {
            Value::List(inner) if depth > 0 => flat.extend(flatten(inner, depth - 1)?),
            other => flat.push(other.clone()),
        }
    }
    Ok(flat)
}

fn slice<'a>(list: &[Value<'a>], start: i64, end: i64) -> Evaluated<'a> {
    let part = match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) => list.get(start..end),
        _ => None,
    };
    part.map(|part| Value::list(part.to_vec())).ok_or_else(|| {
        EvalError::Value(format!("cannot slice({start}, {end}), list is length {}", list.len()))
    })
}

fn sort<'a>(list: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let Some(first) = list.first() else { return Ok(Value::list(Vec::new())) };
    if compare(first, first).is_none() {
        return Err(EvalError::NoSuchOverload);
    }
    if list.iter().any(|value| value.type_name() != first.type_name()) {
        return Err(EvalError::Value("list elements must have the same type".to_owned()));
    }
    meter.spend(list.len().saturating_mul(list.len().ilog2() as usize))?;
    let mut sorted = list.to_vec();
    sorted.sort_by(|a, b| compare(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::list(sorted))
}

/// Every element must have an order; two of different kinds then simply have none between
/// them, as in cel-go.
fn comparable(list: &[Value<'_>]) -> Result<(), EvalError> {
    let all = list.iter().all(|value| compare(value, value).is_some());
    if all { Ok(()) } else { Err(EvalError::NoSuchOverload) }
}

fn is_sorted<'a>(list: &[Value<'_>]) -> Evaluated<'a> {
    comparable(list)?;
    let mut pairs = list.iter().zip(list.iter().skip(1));
    Ok(Value::Bool(!pairs.any(|(before, after)| compare(before, after) == Some(Ordering::Greater))))
}

/// The first element that no other is more extreme than.
fn extreme<'a>(list: &[Value<'a>], name: &str, worse: Ordering) -> Evaluated<'a> {
    let Some((first, rest)) = list.split_first() else {
        return Err(EvalError::Value(format!("{name} called on empty list")));
    };
    comparable(list)?;
    let mut best = first;
    for value in rest {
        if compare(best, value) == Some(worse) {
            best = value;
        }
    }
    Ok(best.clone())
}

fn sum<'a>(list: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let Some((first, rest)) = list.split_first() else { return Ok(Value::Int(0)) };
    if !matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_)) {
        return Err(EvalError::NoSuchOverload);
    }
    rest.iter().try_fold(first.clone(), |sum, value| {
        super::numbers::arithmetic(Function::Add, &[sum, value.clone()], meter)
    })
}
