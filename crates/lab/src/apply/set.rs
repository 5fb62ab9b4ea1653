//! Sets of field paths, as `managedFields` keeps them: who owns which field of an object.
//! Path elements are kept in their written form (`f:spec`, `k:{"uid":"…"}`, `v:"finalizer"`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::{Merge, Shape, fields};

/// A set of paths, as a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// The path to this node is in the set.
    pub(super) here: bool,
    pub(super) children: BTreeMap<String, Self>,
}

impl FieldSet {
    fn leaf() -> Self {
        Self { here: true, children: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.here && self.children.is_empty()
    }

    /// All fields that `value` has.
    pub(super) fn of(shape: &Shape, value: &Value) -> Self {
        Self::changed(shape, None, value)
    }

    /// The fields of `new` that `old` has not, or with another value.
    pub(super) fn changed(shape: &Shape, old: Option<&Value>, new: &Value) -> Self {
        if old == Some(new) {
            return Self::default();
        }
        let parts = parts(shape, new);
        if parts.is_empty() {
            return Self::leaf();
        }
        let old_parts: BTreeMap<String, (&Value, Shape)> = old
            .map(|old| self::parts(shape, old).into_iter().map(|(e, v, s)| (e, (v, s))).collect())
            .unwrap_or_default();
        let mut set =
            Self { here: old.is_none() && has_identity(shape), children: BTreeMap::new() };
        for (element, value, shape) in parts {
            let before = old_parts.get(&element).map(|(value, _)| *value);
            let child = Self::changed(&shape, before, value);
            if !child.is_empty() {
                let item = element.starts_with("k:");
                let child = Self { here: child.here || (item && before.is_none()), ..child };
                set.children.insert(element, child);
            }
        }
        set
    }

    /// Paths of `self` that are not in `other`.
    pub(super) fn minus(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let left = match other.children.get(element) {
                Some(taken) => child.minus(taken),
                None => child.clone(),
            };
            (!left.is_empty()).then(|| (element.clone(), left))
        });
        Self { here: self.here && !other.here, children: children.collect() }
    }

    /// Paths in both.
    pub(super) fn common(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let both = child.common(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self { here: self.here && other.here, children: children.collect() }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.here |= other.here;
        for (element, child) in &other.children {
            self.children.entry(element.clone()).or_default().add(child);
        }
    }

    /// Without a path of elements and all below it.
    pub(super) fn strip(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let Some(child) = self.children.get_mut(*first) else { return };
        if !rest.is_empty() {
            child.strip(rest);
        }
        if rest.is_empty() || child.is_empty() {
            self.children.remove(*first);
        }
    }

    /// Each path as `.spec.devices`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(String::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: String, paths: &mut Vec<String>) {
        if self.here && !prefix.is_empty() {
            paths.push(prefix.clone());
        }
        for (element, child) in &self.children {
            let step = match element.split_once(':') {
                Some(("f", name)) => format!(".{name}"),
                Some(("k", key)) => format!("[{}]", key_text(key)),
                Some((_, value)) => format!("[={value}]"),
                None => element.clone(),
            };
            child.collect(format!("{prefix}{step}"), paths);
        }
    }

    /// The `fieldsV1` form.
    pub(super) fn to_fields(&self) -> Value {
        let mut map = Map::new();
        if self.here && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            map.insert(element.clone(), child.to_fields());
        }
        Value::Object(map)
    }

    /// Reads the `fieldsV1` form.
    pub(super) fn from_fields(fields: &Value) -> Self {
        let Some(map) = fields.as_object() else { return Self::default() };
        let children = map.iter().filter(|(element, _)| *element != ".");
        let children: BTreeMap<String, Self> =
            children.map(|(element, child)| (element.clone(), Self::from_child(child))).collect();
        Self { here: map.contains_key("."), children }
    }

    fn from_child(fields: &Value) -> Self {
        let set = Self::from_fields(fields);
        if set.children.is_empty() { Self::leaf() } else { set }
    }
}

/// `name="main"` for `{"name":"main"}`.
fn key_text(key: &str) -> String {
    let fields: BTreeMap<String, Value> = serde_json::from_str(key).unwrap_or_default();
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    fields.join(",")
}

/// Maps and merged lists are members themselves; a struct is only its fields.
fn has_identity(shape: &Shape) -> bool {
    matches!(shape, Shape::Map(..) | Shape::List(..))
}

/// The separately owned parts of a value; none for scalars and what is replaced as one.
pub(super) fn parts<'v>(shape: &Shape, value: &'v Value) -> Vec<(String, &'v Value, Shape)> {
    match (shape, value) {
        (Shape::Struct(name), Value::Object(map)) => {
            let known = fields(name);
            map.iter()
                .filter_map(|(key, value)| {
                    Some((format!("f:{key}"), value, known.get(key.as_str())?.shape.clone()))
                })
                .collect()
        }
        (Shape::Map(element, Merge::Each), Value::Object(map)) => map
            .iter()
            .map(|(key, value)| (format!("f:{key}"), value, (**element).clone()))
            .collect(),
        (Shape::List(element, Merge::Keys(keys)), Value::Array(items)) => {
            items.iter().map(|item| (item_element(keys, item), item, (**element).clone())).collect()
        }
        (Shape::List(element, Merge::Each), Value::Array(items)) => {
            items.iter().map(|item| (format!("v:{item}"), item, (**element).clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// `k:{"uid":"…"}` for an item of a keyed list.
pub(super) fn item_element(keys: &[&str], item: &Value) -> String {
    let key: BTreeMap<&str, &Value> =
        keys.iter().filter_map(|&key| Some((key, item.get(key)?))).collect();
    format!("k:{}", serde_json::to_string(&key).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Shape = Shape::Struct("Pod");

    #[test]
    fn the_written_form_is_the_servers() {
        let pod = json!({
            "metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        });
        let set = FieldSet::of(&POD, &pod);
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"x/y\"": {}}},
            "f:spec": {
                "f:containers": {".": {}, "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}}},
                "f:restartPolicy": {},
            },
        });
        assert_eq!(set.to_fields(), fields);
        assert_eq!(FieldSet::from_fields(&fields), set);
        assert!(set.paths().contains(&".spec.containers[name=\"c\"].image".to_owned()));
    }

    #[test]
    fn only_changed_fields_are_in_the_change() {
        let old = json!({"spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]}});
        let new = json!({"spec": {"nodeName": "b", "containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(FieldSet::changed(&POD, Some(&old), &new).paths(), [".spec.nodeName"]);
        assert!(FieldSet::changed(&POD, Some(&new), &new).is_empty());
    }

    #[test]
    fn set_arithmetic() {
        let all = FieldSet::of(&POD, &json!({"spec": {"nodeName": "a", "hostname": "h"}}));
        let one = FieldSet::of(&POD, &json!({"spec": {"nodeName": "a"}}));
        assert_eq!(all.minus(&one).paths(), [".spec.hostname"]);
        assert_eq!(all.common(&one), one);
        let mut both = all.minus(&one);
        both.add(&one);
        assert_eq!(both, all);
        both.strip(&["f:spec", "f:nodeName"]);
        assert_eq!(both.paths(), [".spec.hostname"]);
    }
}
