//! The formats of names, keys and values, with the server's sentences about them (Kubernetes' apimachinery
//! `validation` package and the rules of resource.k8s.io on top).

use serde_json::Value;

use super::Errors;
use crate::error::FieldError;

/// Most bytes of a driver name, and of the domain of an attribute.
const DRIVER_NAME: usize = 63;
/// Most bytes of a pool's name.
const POOL_NAME: usize = 253;
/// Most bytes of an attribute's or capacity's name without its domain.
const IDENTIFIER: usize = 32;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn label_ok(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: char| inner(c) && c != '-';
    text.chars().all(inner) && text.starts_with(edge) && text.ends_with(edge)
}

fn subdomain_ok(text: &str) -> bool {
    text.split('.').all(label_ok)
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn name_part_ok(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| edge(c) || matches!(c, '-' | '_' | '.');
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(inner)
}

fn push(errors: &mut Errors, field: &str, value: &str, why: impl std::fmt::Display) {
    errors.push(FieldError::invalid(field, &Value::from(value), why));
}

/// Names of devices, requests, counters, counter sets.
pub(super) fn label(errors: &mut Errors, field: &str, value: &str) {
    if value.len() > 63 {
        push(errors, field, value, "must be no more than 63 characters");
    }
    if !label_ok(value) {
        push(
            errors,
            field,
            value,
            if subdomain_ok(value) { "must not contain dots" } else { LABEL },
        );
    }
}

/// Names of objects.
pub(super) fn subdomain(errors: &mut Errors, field: &str, value: &str) {
    if value.len() > 253 {
        push(errors, field, value, "must be no more than 253 characters");
    }
    if !subdomain_ok(value) {
        push(errors, field, value, SUBDOMAIN);
    }
}

pub(super) fn required_subdomain(errors: &mut Errors, field: &str, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        subdomain(errors, field, value);
    }
}

/// Judged in lower case; upper case earns a warning only.
pub(super) fn driver(errors: &mut Errors, field: &str, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if value.len() > DRIVER_NAME {
        errors.push(FieldError::too_long(field, DRIVER_NAME));
    }
    if !subdomain_ok(&value.to_lowercase()) {
        push(errors, field, value, SUBDOMAIN);
    }
}

/// Subdomains with slashes between them.
pub(super) fn pool(errors: &mut Errors, field: &str, value: &str) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if value.len() > POOL_NAME {
        errors.push(FieldError::too_long(field, POOL_NAME));
    }
    for part in value.split('/') {
        subdomain(errors, field, part);
    }
}

/// Keys of attributes and capacities: an identifier, or domain and identifier.
pub(super) fn qualified(errors: &mut Errors, field: &str, value: &str) {
    let parts: Vec<&str> = value.split('/').collect();
    match parts.as_slice() {
        [id] => identifier(errors, field, id),
        [domain, id] => {
            if domain.is_empty() {
                push(errors, field, "", "the domain must not be empty");
            } else {
                driver(errors, field, domain);
            }
            if id.is_empty() {
                push(errors, field, "", "the name must not be empty");
            } else {
                identifier(errors, field, id);
            }
        }
        // The real server forgets names of more slashes, and so lets them pass.
        _ => {}
    }
}

/// As `qualified`, but with its domain.
pub(super) fn fully_qualified(errors: &mut Errors, field: &str, value: &str) {
    qualified(errors, field, value);
    if !value.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        push(errors, field, value, why);
    }
}

fn identifier(errors: &mut Errors, field: &str, value: &str) {
    if value.len() > IDENTIFIER {
        errors.push(FieldError::too_long(field, IDENTIFIER));
    }
    let start = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !value.starts_with(start) || !value.chars().all(|c| start(c) || c.is_ascii_digit()) {
        push(errors, field, value, C_IDENTIFIER);
    }
}

/// Keys of labels, taints, tolerations, binding conditions.
pub(super) fn label_key(errors: &mut Errors, field: &str, value: &str) {
    let shown = value;
    let (prefix, name) = match value.split_once('/') {
        None => (None, value),
        Some((prefix, name)) => (Some(prefix), name),
    };
    if name.contains('/') {
        push(
            errors,
            field,
            shown,
            format!("a valid label key must consist of {}", &NAME_PART[10..]),
        );
        return;
    }
    match prefix {
        Some("") => push(errors, field, shown, "prefix part must be non-empty"),
        Some(prefix) if !subdomain_ok(prefix) => {
            push(errors, field, shown, format!("prefix part {SUBDOMAIN}"));
        }
        _ => {}
    }
    if name.is_empty() {
        push(errors, field, shown, "name part must be non-empty");
    } else if name.len() > 63 {
        push(errors, field, shown, "name part must be no more than 63 characters");
    }
    if !name_part_ok(name) {
        push(errors, field, shown, NAME_PART);
    }
}

pub(super) fn label_value(errors: &mut Errors, field: &str, value: &str) {
    if value.len() > 63 {
        push(errors, field, value, "must be no more than 63 characters");
    }
    if !value.is_empty() && !name_part_ok(value) {
        push(errors, field, value, LABEL_VALUE);
    }
}

/// `domain/name` outside Kubernetes' own domain, and not a name that a quota would have.
pub(super) fn extended_resource_ok(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else { return false };
    let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let mut errors = Errors::new();
    label_key(&mut errors, "", &format!("requests.{name}"));
    !own && !rest.is_empty() && !name.starts_with("requests.") && errors.is_empty()
}

/// Semantic Versioning 2.0.0: three numbers without leading zeros, then pre-release and build.
pub(super) fn semver_ok(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, b)| (rest, Some(b)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, p)| (core, Some(p)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| {
            pre.split('.').all(|part| word(part) && (!digits(part) || number(part)))
        })
        && build.is_none_or(|build| build.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantic_versions() {
        for yes in ["0.0.0", "570.124.6", "1.2.3-rc.1+build.5", "1.0.0-0a", "1.0.0+001"] {
            assert!(semver_ok(yes), "{yes}");
        }
        for no in [
            "",
            "1",
            "12.8",
            "1.2.3.4",
            "v1.2.3",
            "570.124.06",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "1.-2.3",
        ] {
            assert!(!semver_ok(no), "{no}");
        }
    }

    #[test]
    fn extended_resources() {
        assert!(extended_resource_ok("nvidia.com/gpu"));
        for no in [
            "gpu",
            "kubernetes.io/gpu",
            "x.kubernetes.io/gpu",
            "requests.nvidia.com/gpu",
            "nvidia.com/",
            "a b/c",
        ] {
            assert!(!extended_resource_ok(no), "{no}");
        }
    }
}
