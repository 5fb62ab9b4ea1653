//! Arithmetic, and what shares its operators. Overflow is an error, as in Go's CEL.

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter};
use crate::signatures::Function;
use crate::value::{Shared, Value};

pub(super) fn arithmetic<'a>(
    function: Function,
    values: &[Value<'a>],
    meter: &mut Meter,
) -> Evaluated<'a> {
    match values {
        [Value::Int(a), Value::Int(b)] => ints(function, *a, *b).map(Value::Int),
        [Value::Uint(a), Value::Uint(b)] => uints(function, *a, *b).map(Value::Uint),
        [Value::Double(a), Value::Double(b)] => doubles(function, *a, *b).map(Value::Double),
        [Value::Int(a)] => a.checked_neg().map(Value::Int).ok_or_else(overflow),
        [Value::Double(a)] => Ok(Value::Double(-a)),
        [Value::String(a), Value::String(b)] if function == Function::Add => {
            meter.traverse(a.len() + b.len())?;
            Ok(Value::text([&**a, &**b].concat()))
        }
        [Value::Bytes(a), Value::Bytes(b)] if function == Function::Add => {
            meter.traverse(a.len() + b.len())?;
            Ok(Value::Bytes(Shared::Made([&**a, &**b].concat().into())))
        }
        [Value::List(a), Value::List(b)] if function == Function::Add => {
            // cel-go shares the halves and charges nothing for them; here they are copied.
            meter.copy(a.len() + b.len())?;
            Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn overflow() -> EvalError {
    EvalError::Value("integer overflow".to_owned())
}

fn ints(function: Function, a: i64, b: i64) -> Result<i64, EvalError> {
    match function {
        Function::Divide | Function::Modulo if b == 0 => Err(by_zero(function)),
        Function::Add => a.checked_add(b).ok_or_else(overflow),
        Function::Subtract => a.checked_sub(b).ok_or_else(overflow),
        Function::Multiply => a.checked_mul(b).ok_or_else(overflow),
        Function::Divide => a.checked_div(b).ok_or_else(overflow),
        Function::Modulo => a.checked_rem(b).ok_or_else(overflow),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn uints(function: Function, a: u64, b: u64) -> Result<u64, EvalError> {
    let overflow = || EvalError::Value("unsigned integer overflow".to_owned());
    match function {
        Function::Divide | Function::Modulo if b == 0 => Err(by_zero(function)),
        Function::Add => a.checked_add(b).ok_or_else(overflow),
        Function::Subtract => a.checked_sub(b).ok_or_else(overflow),
        Function::Multiply => a.checked_mul(b).ok_or_else(overflow),
        Function::Divide => Ok(a / b),
        Function::Modulo => Ok(a % b),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn doubles(function: Function, a: f64, b: f64) -> Result<f64, EvalError> {
    match function {
        Function::Add => Ok(a + b),
        Function::Subtract => Ok(a - b),
        Function::Multiply => Ok(a * b),
        Function::Divide => Ok(a / b),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn by_zero(function: Function) -> EvalError {
    let what = if function == Function::Divide { "division" } else { "modulus" };
    EvalError::Value(format!("{what} by zero"))
}
