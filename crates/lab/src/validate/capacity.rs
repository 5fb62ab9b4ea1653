//! Rules for a device's capacity and for how much of it one request may take.

use gpu_dra_model::Quantity;
use serde_json::Value;

use super::{Errors, list};
use crate::error::FieldError;

const MOST_VALUES: usize = 10;

pub(super) fn check(errors: &mut Errors, path: &str, capacity: &Value, many_allocations: bool) {
    let Some(policy) = capacity.get("requestPolicy") else { return };
    let path = format!("{path}.requestPolicy");
    if !many_allocations {
        errors.push(FieldError::forbidden(&path, "allowMultipleAllocations must be true"));
        return;
    }
    let Some(most) = quantity(capacity.get("value")) else { return };
    let default = quantity(policy.get("default"));
    let values = list(policy, "validValues");
    let range = policy.get("validRange");
    match (values.is_empty(), range) {
        (false, Some(_)) => errors.push(FieldError::forbidden(
            &path,
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        )),
        (false, None) => check_values(errors, &path, (default, values), most),
        (true, Some(range)) => check_range(errors, &path, (default, range), most),
        (true, None) => {}
    }
}

/// The decoder left quantities only, so what doesn't parse isn't there.
fn quantity(value: Option<&Value>) -> Option<Quantity> {
    value?.as_str()?.parse().ok()
}

fn show(quantity: Quantity) -> Value {
    Value::from(quantity.to_string())
}

fn check_values(
    errors: &mut Errors,
    path: &str,
    (default, values): (Option<Quantity>, &[Value]),
    most: Quantity,
) {
    let path_of_values = format!("{path}.validValues");
    let Some(default) = default else {
        let why = "required when validValues is defined";
        errors.push(FieldError::required(&format!("{path}.default"), why));
        return;
    };
    if values.len() > MOST_VALUES {
        errors.push(FieldError::too_many(&path_of_values, values.len(), MOST_VALUES));
    }
    let mut found = false;
    let mut previous: Option<Quantity> = None;
    // Beyond the limit nothing is looked at, so a default that stands there isn't found: as the real server.
    for (index, value) in values.iter().enumerate() {
        let Some(value) = quantity(Some(value)) else { continue };
        let path = format!("{path_of_values}[{index}]");
        if value > most {
            let why = format!("option is larger than capacity value: {most}");
            errors.push(FieldError::invalid(&path, &show(value), why));
        }
        found |= value == default;
        match previous {
            Some(before) if before == value => {
                errors.push(FieldError::duplicate(&path, &show(value)));
            }
            Some(before) if before > value => errors.push(FieldError::invalid(
                &path,
                &show(value),
                "values must be sorted in ascending order",
            )),
            _ => {}
        }
        previous = Some(value);
    }
    if !found || values.len() > MOST_VALUES {
        errors.push(FieldError::invalid(
            &path_of_values,
            &show(default),
            "default value is not valid according to the requestPolicy",
        ));
    }
}

fn check_range(
    errors: &mut Errors,
    path: &str,
    (default, range): (Option<Quantity>, &Value),
    most: Quantity,
) {
    let field = |name: &str| format!("{path}.validRange.{name}");
    let at = |name: &str| quantity(range.get(name));
    let why = "required when validRange is defined";
    let Some(default) = default else {
        errors.push(FieldError::required(&format!("{path}.default"), why));
        return;
    };
    let Some(min) = at("min") else {
        errors.push(FieldError::required(&field("min"), why));
        return;
    };
    if min > most {
        let why = format!("min is larger than capacity value: {most}");
        errors.push(FieldError::invalid(&field("min"), &show(min), why));
    }
    if default < min {
        let why = format!("default is less than min: {min}");
        errors.push(FieldError::invalid(&field("min"), &show(default), why));
    }
    let max = at("max");
    if let Some(max) = max {
        if min > max {
            let why = format!("min is larger than max: {max}");
            errors.push(FieldError::invalid(&field("min"), &show(min), why));
        }
        if max > most {
            let why = format!("max is larger than capacity value: {most}");
            errors.push(FieldError::invalid(&field("max"), &show(max), why));
        }
        if default > max {
            let why = format!("default is more than max: {max}");
            errors.push(FieldError::invalid(&field("max"), &show(default), why));
        }
    }
    if let Some(step) = at("step") {
        check_step(errors, &field("step"), (min, step), max.into_iter().chain([default]), most);
    }
}

fn check_step(
    errors: &mut Errors,
    path: &str,
    (min, step): (Quantity, Quantity),
    values: impl Iterator<Item = Quantity>,
    most: Quantity,
) {
    let (Some(base), Some(width)) = (whole(min), whole(step)) else { return };
    if width <= 0 {
        errors.push(FieldError::invalid(path, &show(step), "must be greater than zero"));
        return;
    }
    if whole(most).is_some_and(|most| base.saturating_add(width) > most) {
        let one = min.add(&step).map_or_else(|_| (base + width).to_string(), |sum| sum.to_string());
        let why = format!("one step {one} is larger than capacity value: {most}");
        errors.push(FieldError::invalid(path, &show(step), why));
    }
    for value in values {
        if whole(value).is_some_and(|value| (value - base) % width != 0) {
            let why = format!("value is not a multiple of a given step ({step}) from ({min})");
            errors.push(FieldError::invalid(path, &show(value), why));
        }
    }
}

fn whole(quantity: Quantity) -> Option<i128> {
    quantity.as_integer().map(i128::from)
}
