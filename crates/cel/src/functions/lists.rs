//! List and set functions, of Kubernetes' own library and of cel-go's extensions.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter};
use crate::signatures::Function;
use crate::value::{Value, compare, is_ordered, same};

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
        (F::Flatten, []) => flatten(list, 1, meter),
        (F::Flatten, [Value::Int(depth)]) => flatten(list, *depth, meter),
        (F::Slice, [Value::Int(start), Value::Int(end)]) => slice(list, *start, *end),
        (F::Sort, []) => sort(list, meter),
        (F::IsSorted, []) => is_sorted(list, meter),
        (F::Min, []) => extreme(list, "min", Ordering::Greater, meter),
        (F::Max, []) => extreme(list, "max", Ordering::Less, meter),
        (F::Sum, []) => sum(list, meter),
        (F::IndexOf, [item]) => place(list.iter().enumerate(), item, meter),
        (F::LastIndexOf, [item]) => place(list.iter().enumerate().rev(), item, meter),
        (F::SetsContains, [Value::List(other)]) => {
            contains_all(list, other, meter).map(Value::Bool)
        }
        (F::SetsEquivalent, [Value::List(other)]) => {
            Ok(Value::Bool(contains_all(list, other, meter)? && contains_all(other, list, meter)?))
        }
        (F::SetsIntersects, [Value::List(other)]) => {
            meter.spend(list.len().saturating_mul(other.len()))?;
            any(list, |value| is_in(other, value, meter)).map(Value::Bool)
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
        return is_in(values, element, meter);
    }
    container.has_key(element, meter)?.ok_or(EvalError::NoSuchOverload)
}

fn any<'v, 'a: 'v>(
    values: &'v [Value<'a>],
    mut test: impl FnMut(&'v Value<'a>) -> Result<bool, EvalError>,
) -> Result<bool, EvalError> {
    for value in values {
        if test(value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An element that can't be compared isn't the one that is looked for.
fn is_in(list: &[Value<'_>], element: &Value<'_>, meter: &mut Meter) -> Result<bool, EvalError> {
    any(list, |value| same(element, value, meter))
}

fn contains_all(
    list: &[Value<'_>],
    other: &[Value<'_>],
    meter: &mut Meter,
) -> Result<bool, EvalError> {
    meter.spend(list.len().saturating_mul(other.len()))?;
    any(other, |value| Ok(!is_in(list, value, meter)?)).map(|missing| !missing)
}

fn optional<'a>(value: Option<&Value<'a>>) -> Value<'a> {
    value.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

/// The index of the first that is the item, or -1.
fn place<'v, 'a: 'v>(
    values: impl Iterator<Item = (usize, &'v Value<'a>)>,
    item: &Value<'a>,
    meter: &mut Meter,
) -> Evaluated<'a> {
    for (index, value) in values {
        if same(value, item, meter)? {
            return Ok(Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

fn distinct<'a>(list: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for value in list {
        meter.spend(unique.len())?;
        if !is_in(&unique, value, meter)? {
            unique.push(value.clone());
        }
    }
    Ok(Value::list(unique))
}

fn flatten<'a>(list: &[Value<'a>], depth: i64, meter: &mut Meter) -> Evaluated<'a> {
    if depth < 0 {
        return Err(EvalError::Value("level must be non-negative".to_owned()));
    }
    let mut flat = Vec::with_capacity(list.len());
    flatten_into(&mut flat, list, depth, meter)?;
    Ok(Value::list(flat))
}

/// Recurses with the nesting of the value, which no expression can make deeper than itself.
/// The same list may be in it any number of times, so each element is charged.
fn flatten_into<'a>(
    flat: &mut Vec<Value<'a>>,
    list: &[Value<'a>],
    depth: i64,
    meter: &mut Meter,
) -> Result<(), EvalError> {
    meter.copy(list.len())?;
    for value in list {
        match value {
            Value::List(inner) if depth > 0 => flatten_into(flat, inner, depth - 1, meter)?,
            other => flat.push(other.clone()),
        }
    }
    Ok(())
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
    if !is_ordered(first) {
        return Err(EvalError::NoSuchOverload);
    }
    if list.iter().any(|value| value.type_name() != first.type_name()) {
        return Err(EvalError::Value("list elements must have the same type".to_owned()));
    }
    meter.spend(list.len().saturating_mul(list.len().ilog2() as usize))?;
    let mut sorted = list.to_vec();
    let mut outcome = Ok(());
    sorted.sort_by(|a, b| match compare(a, b, meter) {
        Ok(order) => order.unwrap_or(Ordering::Equal),
        Err(error) => {
            outcome = Err(error);
            Ordering::Equal
        }
    });
    outcome.map(|()| Value::list(sorted))
}

/// Every element must have an order; two of different kinds then simply have none between
/// them, as in cel-go.
fn comparable(list: &[Value<'_>]) -> Result<(), EvalError> {
    let all = list.iter().all(is_ordered);
    if all { Ok(()) } else { Err(EvalError::NoSuchOverload) }
}

fn is_sorted<'a>(list: &[Value<'_>], meter: &mut Meter) -> Evaluated<'a> {
    comparable(list)?;
    for (before, after) in list.iter().zip(list.iter().skip(1)) {
        if compare(before, after, meter)? == Some(Ordering::Greater) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// The first element that no other is more extreme than.
fn extreme<'a>(
    list: &[Value<'a>],
    name: &str,
    worse: Ordering,
    meter: &mut Meter,
) -> Evaluated<'a> {
    let Some((first, rest)) = list.split_first() else {
        return Err(EvalError::Value(format!("{name} called on empty list")));
    };
    comparable(list)?;
    let mut best = first;
    for value in rest {
        if compare(best, value, meter)? == Some(worse) {
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
