//! Which slices and devices a node can reach: by name, by node selector, or all.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// Where a slice or device says that it is. Exactly one of the fields is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Location<'a> {
    pub(crate) node_name: Option<&'a str>,
    pub(crate) all_nodes: bool,
    pub(crate) selector: Option<&'a NodeSelector>,
}

impl Location<'_> {
    pub(crate) fn is_given(&self) -> bool {
        self.node_name.is_some_and(|name| !name.is_empty())
            || self.all_nodes
            || self.selector.is_some()
    }

    /// Whether the node is meant.
    ///
    /// # Errors
    /// What is wrong with the node selector.
    pub(crate) fn reaches(&self, node: &Node) -> Result<bool, String> {
        if let Some(name) = self.node_name.filter(|name| !name.is_empty()) {
            return Ok(node.metadata.name.as_deref() == Some(name));
        }
        match self.selector {
            _ if self.all_nodes => Ok(true),
            Some(selector) => selects(selector, node),
            None => Ok(false),
        }
    }
}

/// Whether a node selector takes the node. Terms are alternatives; one without requirements
/// selects nothing.
///
/// # Errors
/// What in the selector can't be read.
pub fn selects(selector: &NodeSelector, node: &Node) -> Result<bool, String> {
    let mut matches = false;
    for term in &selector.node_selector_terms {
        matches |= term_selects(term, node)?;
    }
    Ok(matches)
}

fn term_selects(term: &NodeSelectorTerm, node: &Node) -> Result<bool, String> {
    let no_labels = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&no_labels);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let mut matches = !(expressions.is_empty() && fields.is_empty());
    for requirement in expressions {
        let value = labels.get(&requirement.key).map(String::as_str);
        matches &= requirement_holds(requirement, value)?;
    }
    for requirement in fields {
        if requirement.key != "metadata.name" {
            return Err(format!("{} is no field to select nodes by", requirement.key));
        }
        matches &= requirement_holds(requirement, node.metadata.name.as_deref())?;
    }
    Ok(matches)
}

fn requirement_holds(
    requirement: &NodeSelectorRequirement,
    value: Option<&str>,
) -> Result<bool, String> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = || value.is_some_and(|value| values.iter().any(|wanted| wanted == value));
    let number = |text: &str| text.parse::<i64>().ok();
    match requirement.operator.as_str() {
        "In" => Ok(among()),
        "NotIn" => Ok(!among()),
        "Exists" => Ok(value.is_some()),
        "DoesNotExist" => Ok(value.is_none()),
        operator @ ("Gt" | "Lt") => {
            let [bound] = values else {
                return Err(format!("{operator} on {} needs one value", requirement.key));
            };
            let bound = number(bound)
                .ok_or_else(|| format!("{operator} on {} needs a whole number", requirement.key))?;
            let value = value.and_then(number);
            Ok(value.is_some_and(
                |value| {
                    if operator == "Gt" { value > bound } else { value < bound }
                },
            ))
        }
        other => Err(format!("{other} is no operator of a node selector")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("node-a".into());
        node.metadata.labels =
            Some(labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
        node
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
        NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(|v| (*v).into()).collect()),
        }
    }

    fn reaches(
        expressions: Vec<NodeSelectorRequirement>,
        fields: Vec<NodeSelectorRequirement>,
    ) -> Result<bool, String> {
        let term =
            NodeSelectorTerm { match_expressions: Some(expressions), match_fields: Some(fields) };
        let selector = NodeSelector { node_selector_terms: vec![term] };
        let location = Location { node_name: None, all_nodes: false, selector: Some(&selector) };
        location.reaches(&node(&[("zone", "a"), ("gpus", "8")]))
    }

    #[test]
    fn operators_follow_kubernetes() {
        for (key, operator, values, want) in [
            ("zone", "In", &["a", "b"][..], true),
            ("zone", "In", &["b"], false),
            ("zone", "NotIn", &["b"], true),
            ("rack", "NotIn", &["b"], true),
            ("rack", "In", &["b"], false),
            ("zone", "Exists", &[], true),
            ("rack", "DoesNotExist", &[], true),
            ("gpus", "Gt", &["4"], true),
            ("gpus", "Lt", &["4"], false),
            ("zone", "Gt", &["4"], false),
        ] {
            let outcome = reaches(vec![requirement(key, operator, values)], vec![]);
            assert_eq!(outcome, Ok(want), "{key} {operator} {values:?}");
        }
        assert_eq!(reaches(vec![], vec![]), Ok(false), "a term without requirements");
        assert_eq!(
            reaches(vec![], vec![requirement("metadata.name", "In", &["node-a"])]),
            Ok(true)
        );
        assert!(reaches(vec![], vec![requirement("spec.x", "In", &["node-a"])]).is_err());
        assert!(reaches(vec![requirement("gpus", "Gt", &["many"])], vec![]).is_err());
        assert!(reaches(vec![requirement("gpus", "Near", &[])], vec![]).is_err());
    }
}
