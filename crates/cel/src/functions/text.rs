//! String functions of cel-go's strings extension, version 2. Indices count characters.

use crate::error::EvalError;
use crate::eval::{Evaluated, Meter};
use crate::signatures::Function;
use crate::value::Value;

pub(super) fn call<'a>(
    function: Function,
    values: &[Value<'a>],
    meter: &mut Meter,
) -> Evaluated<'a> {
    use Function as F;
    let [first, rest @ ..] = values else { return Err(EvalError::NoSuchOverload) };
    if function == F::Join {
        return join(first, rest, meter);
    }
    let text = first.as_str().ok_or(EvalError::NoSuchOverload)?;
    meter.traverse(text.len())?;
    match (function, rest) {
        (F::LowerAscii, []) => Ok(Value::text(text.to_ascii_lowercase())),
        (F::UpperAscii, []) => Ok(Value::text(text.to_ascii_uppercase())),
        (F::Trim, []) => Ok(Value::text(text.trim())),
        (F::Quote, []) => Ok(Value::text(quoted(text))),
        (F::StartsWith, [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        (F::EndsWith, [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        (F::Contains, [Value::String(part)]) => {
            meter.spend(text.len().div_ceil(10).saturating_mul(part.len().div_ceil(10)))?;
            Ok(Value::Bool(text.contains(&**part)))
        }
        (F::CharAt, [Value::Int(at)]) => char_at(text, *at),
        (F::Substring, [Value::Int(start)]) => substring(text, *start, None),
        (F::Substring, [Value::Int(start), Value::Int(end)]) => substring(text, *start, Some(*end)),
        (F::Replace, [Value::String(old), Value::String(new)]) => {
            replace(text, old, new, -1, meter)
        }
        (F::Replace, [Value::String(old), Value::String(new), Value::Int(limit)]) => {
            replace(text, old, new, *limit, meter)
        }
        (F::Split, [Value::String(separator)]) => split(text, separator, -1, meter),
        (F::Split, [Value::String(separator), Value::Int(limit)]) => {
            split(text, separator, *limit, meter)
        }
        (F::IndexOf | F::LastIndexOf, [Value::String(part), offset @ ..]) => {
            let offset = match offset {
                [] => None,
                [Value::Int(offset)] => Some(*offset),
                _ => return Err(EvalError::NoSuchOverload),
            };
            meter.spend(text.len().div_ceil(10).saturating_mul(part.len().div_ceil(10)))?;
            let found = if function == F::IndexOf {
                index_of(text, part, offset.unwrap_or(0))
            } else {
                last_index_of(text, part, offset)
            };
            found.map(Value::Int)
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::Value(format!("index out of range: {index}"))
}

/// The byte offset of a character, the end included.
fn offset(text: &str, index: i64) -> Result<usize, EvalError> {
    let wanted = usize::try_from(index).map_err(|_| out_of_range(index))?;
    text.char_indices()
        .map(|(offset, _)| offset)
        .chain([text.len()])
        .nth(wanted)
        .ok_or_else(|| out_of_range(index))
}

fn char_at<'a>(text: &str, index: i64) -> Evaluated<'a> {
    let rest = text.get(offset(text, index)?..).unwrap_or("");
    Ok(Value::text(rest.chars().take(1).collect::<String>()))
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> Evaluated<'a> {
    if let Some(end) = end.filter(|end| start > *end) {
        let reason = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::Value(reason));
    }
    let from = offset(text, start)?;
    let to = end.map_or(Ok(text.len()), |end| offset(text, end))?;
    Ok(Value::text(text.get(from..to).unwrap_or("")))
}

/// Replaces up to `limit` times, without end where it is negative. Charged for the result
/// before it is made: replacing by longer texts could else fill the memory.
fn replace<'a>(text: &str, old: &str, new: &str, limit: i64, meter: &mut Meter) -> Evaluated<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times = text.matches(old).count().min(limit);
    meter.traverse(text.len().saturating_add(times.saturating_mul(new.len())))?;
    Ok(Value::text(text.replacen(old, new, limit)))
}

fn split<'a>(text: &str, separator: &str, limit: i64, meter: &mut Meter) -> Evaluated<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Value<'a>> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let ends = text.char_indices().map(|(start, c)| (start, start + c.len_utf8()));
        ends.take(limit)
            .enumerate()
            .map(|(index, (start, end))| {
                let end = if index + 1 == limit { text.len() } else { end };
                Value::text(text.get(start..end).unwrap_or(""))
            })
            .collect()
    } else {
        text.splitn(limit, separator).map(Value::text).collect()
    };
    meter.spend(parts.len())?;
    Ok(Value::list(parts))
}

fn join<'a>(list: &Value<'a>, rest: &[Value<'a>], meter: &mut Meter) -> Evaluated<'a> {
    let separator = match rest {
        [] => "",
        [Value::String(separator)] => separator,
        _ => return Err(EvalError::NoSuchOverload),
    };
    let Value::List(values) = list else { return Err(EvalError::NoSuchOverload) };
    let mut parts = Vec::with_capacity(values.len());
    for value in values.iter() {
        let part = value.as_str().ok_or_else(|| {
            EvalError::Value(format!("join: invalid input: {}", value.type_name()))
        })?;
        meter.traverse(part.len() + separator.len())?;
        parts.push(part);
    }
    Ok(Value::text(parts.join(separator)))
}

fn index_of(text: &str, part: &str, from: i64) -> Result<i64, EvalError> {
    if part.is_empty() {
        return Ok(from);
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Ok(start) = offset(text, from) else { return Ok(-1) };
    let found = text.get(start..).and_then(|rest| rest.find(part));
    Ok(found.map_or(-1, |at| count(text, start + at)))
}

fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Result<i64, EvalError> {
    let length = count(text, text.len());
    if part.is_empty() {
        return Ok(from.unwrap_or(length));
    }
    let from = match from {
        None if text.len() < part.len() => return Ok(-1),
        None => length - 1,
        Some(from) => from,
    };
    if from < 0 {
        return Err(out_of_range(from));
    }
    if from >= length {
        return Ok(-1);
    }
    // A match may begin at `from` at the latest.
    let end = (offset(text, from)? + part.len()).min(text.len());
    let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let found =
        text.match_indices(part).map(|(at, _)| at).take_while(|at| *at + part.len() <= end).last();
    let overlapping = text.get(..end).and_then(|head| head.rfind(part));
    Ok(overlapping.max(found).map_or(-1, |at| count(text, at)))
}

/// How many characters lie before a byte offset.
fn count(text: &str, offset: usize) -> i64 {
    let characters = text.char_indices().take_while(|(at, _)| *at < offset).count();
    i64::try_from(characters).unwrap_or(i64::MAX)
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
