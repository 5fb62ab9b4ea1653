//! Merges an applied configuration into a live object, takes fields out again, and merges strategic patches.

use serde_json::{Map, Value};

use super::set::{FieldSet, item_element, parts};
use crate::schema::{Merge, Shape, fields};

/// The shape of a field of a struct or entry of a map; a plain value where the tables know none.
fn inner(shape: &Shape, key: &str) -> Option<Shape> {
    match shape {
        Shape::Struct(name) => fields(name).get(key).map(|field| field.shape.clone()),
        Shape::Map(element, Merge::Each) => Some((**element).clone()),
        _ => None,
    }
}

/// Puts what is applied over what is live.
pub(super) fn merge(shape: &Shape, live: &mut Value, applied: &Value) {
    match (shape, applied) {
        (Shape::Struct(_) | Shape::Map(_, Merge::Each), Value::Object(given)) => {
            let Some(live) = object(live) else { return };
            for (key, value) in given {
                match inner(shape, key) {
                    Some(shape) => merge(&shape, live.entry(key).or_insert(Value::Null), value),
                    None => {
                        live.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Shape::List(element, Merge::Keys(keys)), Value::Array(given)) => {
            let Some(live) = array(live) else { return };
            for item in given {
                let wanted = item_element(keys, item);
                match live.iter_mut().find(|have| item_element(keys, have) == wanted) {
                    Some(have) => merge(element, have, item),
                    None => live.push(item.clone()),
                }
            }
        }
        (Shape::List(_, Merge::Each), Value::Array(given)) => {
            let Some(live) = array(live) else { return };
            for item in given {
                if !live.contains(item) {
                    live.push(item.clone());
                }
            }
        }
        _ => *live = applied.clone(),
    }
}

/// Takes the fields of `set` out of the object; `kept` is what other managers own. A map or list that becomes empty
/// goes with its last entry; an item of a keyed list goes as a whole, or stays with its key where others own a part.
pub(super) fn remove(shape: &Shape, value: &mut Value, set: &FieldSet, kept: &FieldSet) {
    let present: Vec<(String, Shape)> =
        parts(shape, value).into_iter().map(|(element, _, shape)| (element, shape)).collect();
    for (element, shape_of_child) in present {
        let Some(doomed) = set.children.get(&element) else { continue };
        let others = kept.children.get(&element);
        let gone = match shape {
            Shape::List(_, Merge::Keys(keys)) => {
                let goes = doomed.here && others.is_none();
                let mut doomed = doomed.clone();
                keys.iter().for_each(|key| doomed.strip(&[&format!("f:{key}")]));
                if let Some(item) = find(shape, value, &element).filter(|_| !goes) {
                    remove(&shape_of_child, item, &doomed, others.unwrap_or(&FieldSet::default()));
                }
                goes
            }
            _ => {
                let Some(child) = find(shape, value, &element) else { continue };
                remove(&shape_of_child, child, doomed, others.unwrap_or(&FieldSet::default()));
                doomed.here && (doomed.children.is_empty() || is_empty(child))
            }
        };
        if gone {
            take(shape, value, &element);
        }
    }
}

fn find<'v>(shape: &Shape, value: &'v mut Value, element: &str) -> Option<&'v mut Value> {
    match (shape, value) {
        (Shape::List(_, Merge::Keys(keys)), Value::Array(items)) => {
            items.iter_mut().find(|item| item_element(keys, item) == element)
        }
        (Shape::List(..), Value::Array(items)) => {
            items.iter_mut().find(|item| format!("v:{item}") == element)
        }
        (_, Value::Object(map)) => map.get_mut(element.strip_prefix("f:")?),
        _ => None,
    }
}

fn take(shape: &Shape, value: &mut Value, element: &str) {
    match (shape, value) {
        (Shape::List(_, Merge::Keys(keys)), Value::Array(items)) => {
            items.retain(|item| item_element(keys, item) != element);
        }
        (Shape::List(..), Value::Array(items)) => {
            items.retain(|item| format!("v:{item}") != element);
        }
        (_, Value::Object(map)) => {
            map.remove(element.strip_prefix("f:").unwrap_or(element));
        }
        _ => {}
    }
}

/// Applies a strategic merge patch: null deletes, objects merge, keyed lists merge by their first key, with the
/// directives `$patch`, `$retainKeys`, `$setElementOrder/…` (order isn't kept) and `$deleteFromPrimitiveList/…`.
pub(crate) fn strategic(shape: &Shape, live: &mut Value, patch: &Value) {
    let Value::Object(given) = patch else {
        *live = patch.clone();
        return;
    };
    if given.get("$patch").and_then(Value::as_str) == Some("replace") {
        *live = Value::Object(given.iter().filter(|(key, _)| *key != "$patch").map(pair).collect());
        return;
    }
    let Some(live) = object(live) else { return };
    if let Some(kept) = given.get("$retainKeys").and_then(Value::as_array) {
        live.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    let directive =
        |key: &str| key == "$patch" || key == "$retainKeys" || key.starts_with("$setElementOrder/");
    for (key, value) in given.iter().filter(|(key, _)| !directive(key)) {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let doomed = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(items) = live.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !doomed.contains(item));
            }
        } else if value.is_null() {
            live.remove(key);
        } else {
            let shape = inner(shape, key).unwrap_or(Shape::Scalar(crate::schema::Scalar::Any));
            let target = live.entry(key).or_insert(Value::Null);
            match (&shape, value) {
                (Shape::List(element, merge), Value::Array(items)) => {
                    strategic_list(element, merge, target, items);
                }
                _ => strategic(&shape, target, value),
            }
        }
    }
}

fn strategic_list(element: &Shape, merge: &Merge, live: &mut Value, items: &[Value]) {
    let key = match merge {
        Merge::Keys(keys) => keys.first().copied(),
        Merge::Each => None,
        Merge::Atomic => {
            *live = Value::Array(items.to_vec());
            return;
        }
    };
    let directive = |item: &Value, word| item.get("$patch").and_then(Value::as_str) == Some(word);
    let Some(live) = array(live) else { return };
    if items.iter().any(|item| directive(item, "replace")) {
        live.clear();
    }
    for item in items.iter().filter(|item| !directive(item, "replace")) {
        let same = |have: &Value| match key {
            Some(key) => have.get(key) == item.get(key),
            None => have == item,
        };
        if directive(item, "delete") {
            live.retain(|have| !same(have));
        } else if let Some(have) = live.iter_mut().find(|have| same(have)) {
            strategic(element, have, item);
        } else {
            live.push(item.clone());
        }
    }
}

fn pair((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// Makes the value an object if it is none.
fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Makes the value a list if it is none.
fn array(value: &mut Value) -> Option<&mut Vec<Value>> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POD: Shape = Shape::Struct("Pod");

    fn patched(mut live: Value, patch: Value) -> Value {
        strategic(&POD, &mut live, &patch);
        live
    }

    #[test]
    fn an_item_given_up_goes_unless_others_own_a_part_of_it() {
        let live = json!({"spec": {"containers": [{"name": "a", "image": "1", "workingDir": "/", "tty": false}]}});
        let mine = json!({"spec": {"containers": [{"name": "a", "image": "1"}]}});
        let mine = FieldSet::of(&POD, &mine);
        let left = |kept: Value| {
            let mut live = live.clone();
            remove(&POD, &mut live, &mine, &FieldSet::from_fields(&kept));
            live["spec"].take()
        };
        assert_eq!(left(json!({})), json!({}));
        let kept =
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {"f:workingDir": {}}}}});
        let item = json!({"name": "a", "workingDir": "/", "tty": false});
        assert_eq!(left(kept), json!({"containers": [item]}));
    }

    #[test]
    fn strategic_patches_merge_lists_by_key() {
        let live = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}});
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "image": "3"}, {"name": "b", "$patch": "delete"}],
            "hostname": "h",
        }});
        assert_eq!(
            patched(live, patch),
            json!({"spec": {"containers": [{"name": "a", "image": "3"}], "hostname": "h"}})
        );
    }

    #[test]
    fn strategic_patches_delete_and_replace() {
        let live = json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}});
        let patch = json!({"metadata": {
            "labels": {"a": null}, "$deleteFromPrimitiveList/finalizers": ["x"], "finalizers": ["z"],
        }});
        assert_eq!(
            patched(live.clone(), patch),
            json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["y", "z"]}})
        );
        let patch = json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}});
        assert_eq!(patched(live, patch)["metadata"]["labels"], json!({"c": "3"}));
    }
}
