//! What is wrong with a GpuClass, one sentence each.

/// A field that has to be changed before the class can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Problem {
    /// The field, from `spec`.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

impl Problem {
    pub(crate) fn new(path: &str, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

/// The problems in one line, as a condition's message or a refusal has them: the first few.
#[must_use]
pub fn joined(problems: &[Problem]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = problems.iter().take(MOST).map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(MOST);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", shown.join("; "))
}
