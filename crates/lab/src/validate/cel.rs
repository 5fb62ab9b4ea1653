//! Rules for selectors: length, syntax, types and cost of their CEL expressions.

use gpu_dra_cel::{CompileError, MAX_EXPRESSION_BYTES, Position, Selector};

use super::Errors;
use crate::error::FieldError;

pub(super) fn check(errors: &mut Errors, path: &str, expression: &str) {
    let Err(error) = Selector::compile(expression) else { return };
    let why = match &error {
        CompileError::TooLong { .. } => {
            return errors.push(FieldError::too_long(path, MAX_EXPRESSION_BYTES));
        }
        CompileError::TooCostly { .. } => {
            let why = "too complex, exceeds cost limit";
            return errors.push(FieldError::forbidden(path, why));
        }
        CompileError::NotBool { .. }
        | CompileError::TooDeep { .. }
        | CompileError::Unsupported { .. } => error.to_string(),
        CompileError::Syntax { line, column, reason } => {
            let at = Position { line: *line, column: *column };
            point_at(expression, at, &format!("Syntax error: {reason}"))
        }
        CompileError::Undeclared { at, name } => point_at(
            expression,
            *at,
            &format!("undeclared reference to '{name}' (in container '')"),
        ),
        CompileError::NoOverload { at, function, arguments } => point_at(
            expression,
            *at,
            &format!("found no matching overload for '{function}' applied to '{arguments}'"),
        ),
        CompileError::UndefinedField { at, field } => {
            point_at(expression, *at, &format!("undefined field '{field}'"))
        }
        CompileError::Type { at, reason } => point_at(expression, *at, reason),
        CompileError::Regex { at, reason } => {
            point_at(expression, *at, &format!("invalid matches argument: {reason}"))
        }
    };
    errors.push(FieldError::invalid(path, &expression.into(), why));
}

/// The sentence with the place under it, as CEL's compiler in Go prints it.
fn point_at(expression: &str, at: Position, why: &str) -> String {
    let line = expression.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
    let column = at.column;
    let mut text = format!("compilation failed: ERROR: <input>:{}:{column}: {why}", at.line);
    if !line.is_empty() {
        let dots = ".".repeat(column.saturating_sub(1));
        text.push_str(&format!("\n | {line}\n | {dots}^"));
    }
    text
}
