//! Field ownership: every write records who set which fields, and server-side apply merges by it.
//! It decides nothing about values; the merged object is judged like any other.

mod merge;
mod set;

pub(crate) use merge::strategic;

use serde_json::{Value, json};

use crate::api::{Subresource, WriteOptions, now};
use crate::error::{ApiError, FieldError};
use crate::kinds::Kind;
use crate::schema::Shape;
use set::FieldSet;

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// Who writes.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    manager: &'a str,
    operation: Operation,
    subresource: Subresource,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        options: &'a WriteOptions,
        operation: Operation,
        subresource: Subresource,
    ) -> Self {
        let manager = match options.field_manager.as_str() {
            "" => "unknown",
            name => name,
        };
        Self { manager, operation, subresource }
    }
}

/// One entry of `managedFields`.
#[derive(Debug, Clone)]
struct Managed {
    entry: Value,
    set: FieldSet,
}

impl Managed {
    fn is(&self, writer: &Writer<'_>) -> bool {
        let (manager, operation, subresource) = names(writer);
        self.entry["manager"] == manager
            && self.entry["operation"] == operation
            && self.entry["subresource"].as_str().unwrap_or_default() == subresource
    }
}

fn names<'a>(writer: &Writer<'a>) -> (&'a str, &'static str, &'static str) {
    let operation = match writer.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let subresource = match writer.subresource {
        Subresource::Main => "",
        Subresource::Status => "status",
    };
    (writer.manager, operation, subresource)
}

fn read(object: &Value) -> Vec<Managed> {
    let entries = object["metadata"]["managedFields"].as_array();
    let read = |entry: &Value| Managed {
        entry: entry.clone(),
        set: FieldSet::from_fields(&entry["fieldsV1"]),
    };
    entries.into_iter().flatten().map(read).collect()
}

fn write(object: &mut Value, managed: Vec<Managed>) {
    let entries: Vec<Value> = managed
        .into_iter()
        .filter(|managed| !managed.set.is_empty())
        .map(|Managed { mut entry, set }| {
            entry["fieldsV1"] = set.to_fields();
            entry
        })
        .collect();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if !entries.is_empty() {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}

fn new_entry(kind: &Kind, writer: &Writer<'_>) -> Managed {
    let (manager, operation, subresource) = names(writer);
    let mut entry = json!({
        "manager": manager, "operation": operation, "apiVersion": kind.api_version(),
        "time": now(), "fieldsType": "FieldsV1",
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    Managed { entry, set: FieldSet::default() }
}

/// The kept form's table; events have one form only.
fn shape(kind: &Kind) -> Shape {
    Shape::Struct(if kind.schema == "EventV1" { "Event" } else { kind.schema })
}

/// What nobody owns: identity, and what the server itself counts.
fn strip_system(set: &mut FieldSet) {
    set.strip(&["f:apiVersion"]);
    set.strip(&["f:kind"]);
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    ] {
        set.strip(&["f:metadata", &format!("f:{field}")]);
    }
}

/// Records in `new` that `writer` changed what differs from `old`.
pub(crate) fn track(
    kind: &Kind,
    old: Option<&Value>,
    mut new: Value,
    writer: &Writer<'_>,
) -> Value {
    let shape = shape(kind);
    let mut changed = FieldSet::changed(&shape, old, &new);
    let mut removed = old.map_or_else(FieldSet::default, |old| {
        FieldSet::of(&shape, old).minus(&FieldSet::of(&shape, &new))
    });
    for set in [&mut changed, &mut removed] {
        strip_system(set);
        if old.is_none() && kind.status {
            set.strip(&["f:status"]);
        }
    }
    if changed.is_empty() && removed.is_empty() {
        return new;
    }
    let mut managed = old.map(read).unwrap_or_default();
    for other in &mut managed {
        other.set = other.set.minus(&removed);
        if !other.is(writer) {
            other.set = other.set.minus(&changed);
        }
    }
    own(&mut managed, kind, writer, |set| set.add(&changed));
    write(&mut new, managed);
    new
}

fn own(
    managed: &mut Vec<Managed>,
    kind: &Kind,
    writer: &Writer<'_>,
    change: impl FnOnce(&mut FieldSet),
) {
    let index = managed.iter().position(|managed| managed.is(writer)).unwrap_or_else(|| {
        managed.push(new_entry(kind, writer));
        managed.len() - 1
    });
    if let Some(mine) = managed.get_mut(index) {
        let before = mine.set.clone();
        change(&mut mine.set);
        if mine.set != before || writer.operation == Operation::Update {
            mine.entry["time"] = now().into();
        }
    }
}

/// Server-side apply of `applied` (just the fields that the manager wants) over `live`: the merged object, not
/// judged yet, with the ownership that it will have.
///
/// # Errors
/// 409 when the manager wants another value for a field that another manager owns, unless forced.
pub(crate) fn apply(
    kind: &Kind,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let shape = shape(kind);
    let mut wanted = FieldSet::of(&shape, applied);
    strip_system(&mut wanted);
    match writer.subresource {
        Subresource::Main if kind.status => wanted.strip(&["f:status"]),
        Subresource::Main => {}
        Subresource::Status => {
            for element in ["f:spec", "f:metadata"] {
                wanted.strip(&[element]);
            }
        }
    }
    let mut managed = live.map(read).unwrap_or_default();
    let before = managed.iter().find(|m| m.is(writer)).map(|m| m.set.clone()).unwrap_or_default();

    let mut merged = live.cloned().unwrap_or(Value::Null);
    merge::merge(&shape, &mut merged, applied);
    let touched = FieldSet::changed(&shape, live, &merged).common(&wanted);
    let mut conflicts = Vec::new();
    let mut others = FieldSet::default();
    for other in managed.iter_mut().filter(|managed| !managed.is(writer)) {
        let contested = other.set.common(&touched);
        if !contested.is_empty() {
            conflicts.push((other.entry.clone(), contested.paths()));
            other.set = other.set.minus(&contested);
        }
        others.add(&other.set);
    }
    if !conflicts.is_empty() && !force {
        return Err(conflict(kind, applied, &conflicts));
    }
    let given_up = before.minus(&wanted).minus(&others);
    merge::remove(&shape, &mut merged, &given_up, &others);
    own(&mut managed, kind, writer, |set| *set = wanted);
    write(&mut merged, managed);
    Ok(merged)
}

fn conflict(kind: &Kind, applied: &Value, conflicts: &[(Value, Vec<String>)]) -> ApiError {
    let mut causes = Vec::new();
    let mut parts = Vec::new();
    for (entry, paths) in conflicts {
        let who = entry["manager"].as_str().unwrap_or_default();
        let mut how = format!("\"{who}\"");
        if let Some(subresource) = entry["subresource"].as_str() {
            how = format!("{how} with subresource \"{subresource}\"");
        }
        if entry["operation"] == "Update" {
            how = format!("{how} using {}", entry["apiVersion"].as_str().unwrap_or_default());
        }
        parts.push(match paths.as_slice() {
            [path] => format!("conflict with {how}: {path}"),
            many => format!("conflicts with {how}:\n- {}", many.join("\n- ")),
        });
        for path in paths {
            causes.push(FieldError::manager_conflict(path.clone(), format!("conflict with {how}")));
        }
    }
    let count = match causes.len() {
        1 => "1 conflict".to_owned(),
        many => format!("{many} conflicts"),
    };
    let message = format!("Apply failed with {count}: {}", parts.join("\n"));
    let name = applied["metadata"]["name"].as_str().unwrap_or_default();
    ApiError { causes, ..ApiError::new(409, "Conflict", message).about(kind, name) }
}
