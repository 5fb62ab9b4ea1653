//! Why an expression is refused, and why an evaluation failed.

/// An expression that the API server would refuse, or that can't be judged here. The text
/// names what is wrong in the API server's words where it has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Longer than the API allows.
    #[error("the expression has {bytes} bytes: at most 10240 are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not CEL.
    #[error("{line}:{column}: syntax error: {reason}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What the parser said.
        reason: String,
    },
    /// Nested too deeply to be evaluated safely. The API server's own limit is 250.
    #[error("the expression is nested more than {limit} deep: write it flatter")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// A name that the environment hasn't.
    #[error("{at}: undeclared reference to '{name}'")]
    Undeclared {
        /// Where.
        at: Position,
        /// The name.
        name: String,
    },
    /// A function or operator that takes no such arguments.
    #[error("{at}: found no matching overload for '{function}' applied to '{arguments}'")]
    NoOverload {
        /// Where.
        at: Position,
        /// The function, operators as `_==_`.
        function: String,
        /// The types it was applied to.
        arguments: String,
    },
    /// A field that the type hasn't.
    #[error("{at}: undefined field '{field}'")]
    UndefinedField {
        /// Where.
        at: Position,
        /// The field.
        field: String,
    },
    /// Any other disagreement of types.
    #[error("{at}: {reason}")]
    Type {
        /// Where.
        at: Position,
        /// What disagrees.
        reason: String,
    },
    /// The result could never be a bool.
    #[error("must evaluate to bool or the unknown type, not {found}")]
    NotBool {
        /// The type it evaluates to.
        found: String,
    },
    /// A regular expression that doesn't compile.
    #[error("{at}: invalid regular expression: {reason}")]
    Regex {
        /// Where.
        at: Position,
        /// What is wrong with it.
        reason: String,
    },
    /// Known to the API server, but not to this crate: no verdict is given.
    #[error("{name} is not supported here, so the expression can't be judged")]
    Unsupported {
        /// The function, macro or literal.
        name: String,
    },
    /// Could cost more than the API server allows.
    #[error(
        "the expression could cost {cost}, more than the {limit} allowed: look at fewer things"
    )]
    TooCostly {
        /// The worst-case cost, in the API server's units.
        cost: u64,
        /// The limit.
        limit: u64,
    },
}

impl CompileError {
    pub(crate) fn unsupported_function(name: &str) -> Self {
        Self::Unsupported { name: format!("the function {name}") }
    }
}

/// A name as an error shows it.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(120).collect()
}

/// A place in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An evaluation that ended without a verdict. The scheduler then gives up on the pod on
/// all nodes, so this is never the same as "doesn't match".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// An attribute, capacity or map key that isn't there.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// Values of types that the function or operator doesn't take.
    #[error("no such overload")]
    NoSuchOverload,
    /// A value that the function refuses, an overflow, an index out of bounds.
    #[error("{0}")]
    Value(String),
    /// The device carries a value that no expression can read.
    #[error("attribute {name}: {reason}")]
    Attribute {
        /// The attribute as published.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The result is no bool.
    #[error("CEL result of type {0} could not be converted to bool")]
    NotBool(&'static str),
    /// Cost more than the API server allows.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooCostly,
    /// Takes more work than is done here, though little cost in the API server's units: what
    /// the API server and the scheduler would find, perhaps after a long time, isn't known.
    #[error("evaluating takes too long to be done here, so there is no verdict")]
    TooMuchWork,
}

impl EvalError {
    /// Whether it ends the evaluation, and no `||` or `&&` can absorb it.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::TooCostly | Self::TooMuchWork)
    }
}
