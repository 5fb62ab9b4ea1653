//! Where something is in an object: `spec.devices.requests[0].name`.

use std::fmt;

use serde_json::Value;

/// One step down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a field.
    Key(String),
    /// Into a list, from 0.
    Index(usize),
}

/// Steps from the top of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// A field of what is here.
    pub(crate) fn key(&self, name: &str) -> Self {
        let mut path = self.clone();
        path.0.push(Step::Key(name.to_owned()));
        path
    }

    /// Fields, each of the one before: `spec.devices`.
    pub(crate) fn keys(&self, dotted: &str) -> Self {
        dotted.split('.').fold(self.clone(), |path, name| path.key(name))
    }

    /// An element of what is here.
    pub(crate) fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Step::Index(index));
        path
    }

    /// Fields and elements, as they are displayed: `spec.model.names[0]`.
    pub(crate) fn fields(&self, text: &str) -> Self {
        text.split('.').fold(self.clone(), |path, part| {
            let mut pieces = part.split('[');
            let path = path.key(pieces.next().unwrap_or_default());
            let indices = pieces.filter_map(|piece| piece.trim_end_matches(']').parse().ok());
            indices.fold(path, |path, index| path.index(index))
        })
    }

    /// As many of the steps as the document has.
    pub(crate) fn as_far_as_in(&self, document: &Value) -> Self {
        let mut here = document;
        let there = self.0.iter().take_while(|step| {
            let next = match step {
                Step::Key(name) => here.get(name),
                Step::Index(index) => here.get(index),
            };
            here = next.unwrap_or(&Value::Null);
            next.is_some()
        });
        Self(there.cloned().collect())
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(name) if place == 0 => f.write_str(name)?,
                Step::Key(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_and_cut() {
        let path = Path::default().key("items").index(1).fields("spec.model.names[0][2].x");
        assert_eq!(path.to_string(), "items[1].spec.model.names[0][2].x");
        let document = serde_json::json!({"items": [{}, {"spec": {"model": {"names": ["a"]}}}]});
        assert_eq!(path.as_far_as_in(&document).to_string(), "items[1].spec.model.names[0]");
        assert_eq!(path.as_far_as_in(&Value::Null), Path::default());
    }
}
