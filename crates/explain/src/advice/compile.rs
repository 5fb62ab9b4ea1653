//! What to write instead of an expression that the API server refuses.

use gpu_dra_cel::{CompileError, Position};
use gpu_dra_model::config::nearest;

use crate::catalog::Catalog;

/// What to write instead, where that can be told.
pub(crate) fn fix(text: &str, error: &CompileError, catalog: &Catalog<'_>) -> Option<String> {
    match error {
        CompileError::Undeclared { name, .. } => undeclared(text, name),
        CompileError::NoOverload { at, arguments, .. } => {
            if let Some(key) = map_key(text, "attributes", arguments, "map(string, any)") {
                return Some(domain_missing(&key, catalog));
            }
            if let Some(key) =
                map_key(text, "capacity", arguments, "map(string, kubernetes.Quantity)")
            {
                return Some(domain_missing(&key, catalog));
            }
            if arguments.contains("kubernetes.Quantity") {
                return compared(text, *at, "quantity");
            }
            arguments.contains("kubernetes.Semver").then(|| compared(text, *at, "semver"))?
        }
        CompileError::Syntax { .. } => units(text),
        CompileError::UndefinedField { field, .. } => {
            let known = ["driver", "attributes", "capacity", "allowMultipleAllocations"];
            let near = nearest(field, &known)?;
            Some(format!("did you mean {near}?"))
        }
        CompileError::NotBool { .. } => Some("compare it with something".to_owned()),
        _ => None,
    }
}

fn undeclared(text: &str, name: &str) -> Option<String> {
    if name == "version" {
        let argument = text.split_once("version(").and_then(|(_, rest)| rest.split_once(')'));
        let argument = argument.map_or("'8.0.0'", |(argument, _)| argument.trim());
        let mut fix = format!("there is no version(): write semver({argument})");
        if text.contains("isGreaterThan(version") {
            fix.push_str(&format!(
                "; isGreaterThan leaves out {argument} itself, .compareTo(semver({argument})) >= 0 takes it in"
            ));
        }
        return Some(fix);
    }
    if ["attributes", "capacity", "driver"].contains(&name) {
        return Some(format!("write device.{name}"));
    }
    let known = ["quantity", "semver", "isQuantity", "isSemver", "device", "size"];
    nearest(name, &known).map(|near| format!("did you mean {near}?"))
}

/// The key in `device.attributes["key"]` where the whole domain was used as a value.
fn map_key(text: &str, map: &str, arguments: &str, of_type: &str) -> Option<String> {
    if !arguments.contains(of_type) && !arguments.contains("(any, kubernetes.Quantity)") {
        return None;
    }
    let (_, rest) = text.split_once(&format!("device.{map}["))?;
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let (key, after) = rest.get(1..)?.split_once(quote)?;
    // A domain with a name after it is right.
    let after = after.strip_prefix(']')?;
    let is_field = after.starts_with('.') || after.starts_with('[');
    (!is_field || !key.contains('.')).then(|| key.to_owned())
}

/// The way to write a key that isn't a domain.
fn domain_missing(key: &str, catalog: &Catalog<'_>) -> String {
    if let Some((domain, name)) = key.split_once('/') {
        return format!("the key is the domain alone: device.attributes['{domain}'].{name}");
    }
    if let Some(domain) = catalog.domain_of_capacity(key) {
        return format!(
            "{key} is a capacity: device.capacity['{domain}'].{key}.compareTo(quantity('40Gi')) >= 0"
        );
    }
    if let Some(domain) = catalog.domains_of(key).first() {
        return format!("the domain is missing: device.attributes['{domain}'].{key}");
    }
    if catalog.has_domain(key) {
        return format!("{key} is a domain: name one of its attributes");
    }
    match catalog.nearest_name("gpu.nvidia.com", key) {
        Some(near) => format!("did you mean device.attributes['gpu.nvidia.com'].{near}?"),
        None => "the domain comes first: device.attributes['gpu.nvidia.com'].name".to_owned(),
    }
}

/// A comparison by an operator that quantities and versions don't have.
fn compared(text: &str, at: Position, function: &str) -> Option<String> {
    let line = text.lines().nth(at.line.checked_sub(1)?)?;
    let characters: Vec<char> = line.chars().collect();
    // The position is the operator's, or the first operand's.
    let rest: String = characters.get(at.column.checked_sub(1)?..)?.iter().collect();
    let operators = ["==", "!=", "<=", ">=", "<", ">"];
    let at_operator = operators.iter().find(|operator| rest.starts_with(**operator));
    let (left, operator, right) = match at_operator {
        Some(operator) => {
            let left: String = characters.get(..at.column - 1)?.iter().collect();
            (left, *operator, rest.get(operator.len()..)?.to_owned())
        }
        None => return None,
    };
    let last = |text: &str| text.rsplit(['&', '|']).next().unwrap_or_default().trim().to_owned();
    let first = |text: &str| text.split(['&', '|']).next().unwrap_or_default().trim().to_owned();
    let (left, right) = (last(&left), first(&right));
    let left = left.trim_start_matches('(').to_owned();
    let right = right.trim_end_matches(')').to_owned();
    if right.starts_with(&format!("{function}(")) || right.starts_with("device") {
        return Some(format!("{left}.compareTo({right}) {operator} 0"));
    }
    let literal = right.trim_matches(['\'', '"']);
    let literal = match (function, literal.parse::<i64>()) {
        // Nobody means bytes.
        ("quantity", Ok(number)) if number < 10_000 => format!("{number}Gi"),
        _ => literal.to_owned(),
    };
    Some(format!("{left}.compareTo({function}(\"{literal}\")) {operator} 0"))
}

/// `80g` without quotes.
fn units(text: &str) -> Option<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '.');
    let unit = |word: &&str| {
        let digits = word.trim_end_matches(|c: char| c.is_alphabetic());
        !digits.is_empty()
            && digits.len() < word.len()
            && digits.chars().all(|c| c.is_ascii_digit())
            && ["g", "gb", "gi", "gib", "m", "mb", "mi", "mib", "t", "ti"]
                .contains(&word.get(digits.len()..).unwrap_or_default().to_lowercase().as_str())
    };
    let word = words.into_iter().find(unit)?;
    let digits = word.trim_end_matches(|c: char| c.is_alphabetic());
    let letter = word.get(digits.len()..)?.chars().next()?.to_ascii_uppercase();
    Some(format!(
        "quantities are texts: device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('{digits}{letter}i')) >= 0"
    ))
}
