//! Conversions between types: `int("7")`, `string(1.5)`.

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter};
use crate::signatures::Function;
use crate::value::{Shared, Value};

pub(super) fn convert<'a>(
    function: Function,
    value: &Value<'a>,
    meter: &mut Meter,
) -> Evaluated<'a> {
    meter.traverse(match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    })?;
    match (function, value) {
        (Function::Bool, Value::Bool(_))
        | (Function::Bytes, Value::Bytes(_))
        | (Function::Double, Value::Double(_))
        | (Function::Int, Value::Int(_))
        | (Function::String, Value::String(_))
        | (Function::Uint, Value::Uint(_)) => Ok(value.clone()),
        (Function::Bool, Value::String(text)) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(unreadable(text, "bool")),
        },
        (Function::Bytes, Value::String(text)) => {
            Ok(Value::Bytes(Shared::Made(text.as_bytes().into())))
        }
        (Function::Double, _) => to_double(value).map(Value::Double),
        (Function::Int, _) => to_int(value).map(Value::Int),
        (Function::Uint, _) => to_uint(value).map(Value::Uint),
        (Function::String, Value::Bool(value)) => Ok(Value::text(value.to_string())),
        (Function::String, Value::Int(number)) => Ok(Value::text(number.to_string())),
        (Function::String, Value::Uint(number)) => Ok(Value::text(number.to_string())),
        (Function::String, Value::Double(number)) => Ok(Value::text(shown(*number))),
        (Function::String, Value::Bytes(bytes)) => {
            std::str::from_utf8(bytes).map(Value::text).map_err(|_| {
                EvalError::Value("invalid UTF-8 in bytes, cannot convert to string".to_owned())
            })
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn unreadable(text: &str, wanted: &str) -> EvalError {
    let text: String = text.chars().take(40).collect();
    EvalError::Value(format!("{text:?} cannot be converted to {wanted}"))
}

fn overflow() -> EvalError {
    EvalError::Value("integer overflow".to_owned())
}

#[allow(clippy::cast_precision_loss)]
fn to_double(value: &Value<'_>) -> Result<f64, EvalError> {
    match value {
        Value::Int(number) => Ok(*number as f64),
        Value::Uint(number) => Ok(*number as f64),
        Value::String(text) => {
            let number: f64 = text.parse().map_err(|_| unreadable(text, "double"))?;
            let out_of_range = number.is_infinite() && !text.to_ascii_lowercase().contains("inf");
            if out_of_range { Err(unreadable(text, "double")) } else { Ok(number) }
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Doubles are cut off; those at the ends of the range are refused, as in cel-go.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn to_int(value: &Value<'_>) -> Result<i64, EvalError> {
    match value {
        Value::Double(number) if *number > i64::MIN as f64 && *number < i64::MAX as f64 => {
            Ok(*number as i64)
        }
        Value::Double(_) => Err(overflow()),
        Value::Uint(number) => i64::try_from(*number).map_err(|_| overflow()),
        Value::String(text) => text.parse().map_err(|_| unreadable(text, "int")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
fn to_uint(value: &Value<'_>) -> Result<u64, EvalError> {
    match value {
        Value::Double(number) if *number >= 0.0 && *number < u64::MAX as f64 => Ok(*number as u64),
        Value::Double(_) => Err(EvalError::Value("unsigned integer overflow".to_owned())),
        Value::Int(number) => u64::try_from(*number)
            .map_err(|_| EvalError::Value("unsigned integer overflow".to_owned())),
        Value::String(text) if !text.starts_with('+') => {
            text.parse().map_err(|_| unreadable(text, "uint"))
        }
        Value::String(text) => Err(unreadable(text, "uint")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Go's `%g` with the shortest digits: an exponent below 1e-04 and from 1e+06 on.
fn shown(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
