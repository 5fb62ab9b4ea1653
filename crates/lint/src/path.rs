//! Where something is in an object: `spec.devices.requests[0].name`.

use std::fmt;

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
