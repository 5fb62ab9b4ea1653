//! Texts that an expression compares in one case: `productName.lowerAscii().contains('h100')`
//! has to be held against what `lowerAscii()` makes of the published value, not against the
//! value itself.

use std::borrow::Cow;

use gpu_dra_cel::Comparison;

/// What an expression makes of a text before it compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// Nothing.
    AsIs,
    /// `lowerAscii()`.
    Lower,
    /// `upperAscii()`.
    Upper,
}

impl Fold {
    /// That of the comparison's left side. Where it is the field itself within one function,
    /// which is when [`Comparison::field`] names one, that function ends the text.
    #[must_use]
    pub fn of(comparison: &Comparison) -> Self {
        let subject: String = comparison.subject.chars().filter(|c| !c.is_whitespace()).collect();
        let call = subject.trim_end_matches(')');
        if call.ends_with(".lowerAscii(") {
            Self::Lower
        } else if call.ends_with(".upperAscii(") {
            Self::Upper
        } else {
            Self::AsIs
        }
    }

    /// The text as it is compared.
    #[must_use]
    pub fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::AsIs => text.into(),
            Self::Lower => text.to_ascii_lowercase().into(),
            Self::Upper => text.to_ascii_uppercase().into(),
        }
    }

    /// The case in words; None where it is as published.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::AsIs => None,
            Self::Lower => Some("lower case"),
            Self::Upper => Some("upper case"),
        }
    }
}
