//! Label and field selectors of list, watch and deletecollection requests.

use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::Kind;

/// What a list or watch is narrowed to. The default takes everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Selector {
    /// Reads the texts of `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// 400 for a malformed text or a field by which the kind can't be selected.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(kind, fields)? })
    }

    /// Objects whose field at `path` has the value.
    #[must_use]
    pub fn field(path: &str, value: &str) -> Self {
        Self::default().and(path, value)
    }

    /// Of those, the ones whose field at `path` has the value.
    #[must_use]
    pub fn and(mut self, path: &str, value: &str) -> Self {
        self.fields.push(Field { path: path.to_owned(), value: value.to_owned(), equal: true });
        self
    }

    /// Whether the object is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let label =
            |key: &str| object.get("metadata")?.get("labels")?.get(key).and_then(Value::as_str);
        let labels_match = self.labels.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => {
                label(key).is_some_and(|have| values.iter().any(|want| want == have))
            }
            Requirement::NotIn(key, values) => {
                label(key).is_none_or(|have| values.iter().all(|want| want != have))
            }
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
        });
        labels_match
            && self.fields.iter().all(|field| {
                let have = field.path.split('.').try_fold(object, |at, part| at.get(part));
                let have = match have {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Bool(flag)) => flag.to_string(),
                    _ => String::new(),
                };
                (have == field.value) == field.equal
            })
    }
}

/// Which fields besides name and namespace a kind can be selected by.
fn selectable(kind: &Kind) -> &'static [&'static str] {
    match kind.plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "resourceslices" => &["spec.nodeName", "spec.driver"],
        "secrets" => &["type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        _ => &[],
    }
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<Field>, ApiError> {
    let mut fields = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let split = term
            .split_once("!=")
            .map(|(path, value)| (path, value, false))
            .or_else(|| term.split_once("==").map(|(path, value)| (path, value, true)))
            .or_else(|| term.split_once('=').map(|(path, value)| (path, value, true)));
        let Some((path, value, equal)) = split else {
            return Err(ApiError::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        if !matches!(path, "metadata.name" | "metadata.namespace")
            && !selectable(kind).contains(&path)
        {
            return Err(ApiError::bad_request(format!("field label not supported: {path}")));
        }
        // Events are kept in the core form, whatever version asks.
        let path = path.replace("regarding.", "involvedObject.");
        fields.push(Field { path, value: value.to_owned(), equal });
    }
    Ok(fields)
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiError> {
    split_terms(text).into_iter().map(|term| parse_label(term.trim(), text)).collect()
}

/// Splits at commas outside parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0_usize, 0, Vec::new());
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.retain(|term| !term.trim().is_empty());
    terms
}

fn parse_label(term: &str, all: &str) -> Result<Requirement, ApiError> {
    let owned = |text: &str| text.trim().to_owned();
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement::Missing(owned(key)));
    }
    for (word, negative) in [(" notin ", true), (" in ", false)] {
        if let Some((key, list)) = term.split_once(word) {
            let values = list
                .trim()
                .strip_prefix('(')
                .and_then(|list| list.strip_suffix(')'))
                .map(|list| list.split(',').map(owned).collect());
            let Some(values) = values else {
                return Err(ApiError::bad_request(format!("unable to parse requirement: {all}")));
            };
            let make = if negative { Requirement::NotIn } else { Requirement::In };
            return Ok(make(owned(key), values));
        }
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(owned(key), vec![owned(value)]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(owned(key), vec![owned(value)]));
    }
    if term.contains(char::is_whitespace) {
        return Err(ApiError::bad_request(format!("unable to parse requirement: {all}")));
    }
    Ok(Requirement::Exists(owned(term)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{EVENT, RESOURCE_SLICE};
    use serde_json::json;

    fn labels(text: &str) -> bool {
        let object = json!({"metadata": {"labels": {"app": "x", "tier": "gpu"}}});
        Selector::parse(&RESOURCE_SLICE, text, "").unwrap().matches(&object)
    }

    #[test]
    fn label_selectors() {
        for yes in
            ["", "app", "app=x", "app==x,tier!=cpu", "app in (x,y)", "!zone", "zone notin (a),tier"]
        {
            assert!(labels(yes), "{yes}");
        }
        for no in ["zone", "app!=x", "app in (y)", "!app", "tier notin (gpu,cpu)"] {
            assert!(!labels(no), "{no}");
        }
        assert_eq!(Selector::parse(&RESOURCE_SLICE, "a b", "").unwrap_err().code, 400);
    }

    #[test]
    fn field_selectors() {
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n"}});
        let field = |text| Selector::parse(&RESOURCE_SLICE, "", text).map(|s| s.matches(&slice));
        assert_eq!(field("spec.driver=d,spec.nodeName=n"), Ok(true));
        assert_eq!(field("spec.driver!=d"), Ok(false));
        assert_eq!(field("metadata.name=other"), Ok(false));
        assert_eq!(
            field("spec.pool.name=p").unwrap_err().message,
            "field label not supported: spec.pool.name"
        );
        let event = json!({"involvedObject": {"name": "p"}});
        assert!(Selector::parse(&EVENT, "", "regarding.name=p").unwrap().matches(&event));
    }
}
