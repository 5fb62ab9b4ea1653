//! Quantities and versions.

use std::cmp::Ordering;

use gpu_dra_model::Quantity;
use gpu_dra_model::quantity::Format;

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter};
use crate::semver::Semver;
use crate::signatures::Function;
use crate::value::{Shared, Value};
use std::rc::Rc;

pub(super) fn call<'a>(
    function: Function,
    values: &[Value<'a>],
    meter: &mut Meter,
) -> Evaluated<'a> {
    match values {
        [Value::String(text), rest @ ..] => from_text(function, text, rest, meter),
        [Value::Quantity { value, .. }] => of_quantity(function, value),
        [Value::Quantity { value, .. }, other] => with_quantity(function, value, other),
        [Value::Semver(version)] => part(function, version),
        [Value::Semver(a), Value::Semver(b)] => compared(function, a.compare(b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn from_text<'a>(
    function: Function,
    text: &str,
    rest: &[Value<'a>],
    meter: &mut Meter,
) -> Evaluated<'a> {
    meter.traverse(text.len())?;
    let normalise = match rest {
        [] => false,
        [Value::Bool(normalise)] => *normalise,
        _ => return Err(EvalError::NoSuchOverload),
    };
    let version = || if normalise { Semver::parse_normalised(text) } else { Semver::parse(text) };
    match function {
        Function::Quantity => {
            text.parse().map(Value::quantity).map_err(|error| EvalError::Value(format!("{error}")))
        }
        Function::IsQuantity => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        Function::IsSemver => Ok(Value::Bool(version().is_some())),
        Function::Semver => {
            version().map(|v| Value::Semver(Shared::Made(Rc::new(v)))).ok_or_else(|| {
                let text: String = text.chars().take(60).collect();
                EvalError::Value(format!("{text:?} is no semantic version"))
            })
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn of_quantity<'a>(function: Function, quantity: &Quantity) -> Evaluated<'a> {
    match function {
        Function::Sign => Ok(Value::Int(quantity.sign().into())),
        Function::IsInteger => Ok(Value::Bool(quantity.is_integer())),
        Function::AsApproximateFloat => Ok(Value::Double(quantity.as_approximate_float())),
        Function::AsInteger => quantity
            .as_integer()
            .map(Value::Int)
            .ok_or_else(|| EvalError::Value("cannot convert value to integer".to_owned())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn with_quantity<'a>(function: Function, quantity: &Quantity, other: &Value<'a>) -> Evaluated<'a> {
    let other = match other {
        Value::Quantity { value, .. } => *value,
        Value::Int(number) if matches!(function, Function::QuantityAdd | Function::QuantitySub) => {
            Quantity::from_integer(*number, Format::DecimalExponent)
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    let computed = match function {
        Function::QuantityAdd => quantity.add(&other),
        Function::QuantitySub => quantity.sub(&other),
        _ => return compared(function, quantity.cmp(&other)),
    };
    computed
        .map(|value| Value::Quantity { value, computed: true })
        .map_err(|error| EvalError::Value(format!("{error}")))
}

fn compared<'a>(function: Function, order: Ordering) -> Evaluated<'a> {
    match function {
        Function::CompareTo => Ok(Value::Int(order as i64)),
        Function::IsGreaterThan => Ok(Value::Bool(order.is_gt())),
        Function::IsLessThan => Ok(Value::Bool(order.is_lt())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn part<'a>(function: Function, version: &Semver) -> Evaluated<'a> {
    let number = match function {
        Function::Major => version.major(),
        Function::Minor => version.minor(),
        Function::Patch => version.patch(),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::Int(number.cast_signed()))
}
