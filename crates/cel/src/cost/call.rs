//! What calls cost, function by function.

use super::{Estimate, LIST, UNKNOWN, factor, quarter, sum};
use crate::signatures::Function;
use crate::types::Type;

/// A call with what is known of its arguments.
pub(super) struct Call<'a> {
    pub(super) function: Function,
    pub(super) parts: &'a [Estimate],
    pub(super) types: &'a [Type],
    /// The arguments that are literal numbers.
    pub(super) numbers: &'a [Option<u64>],
}

impl Call<'_> {
    fn size(&self, index: usize) -> u64 {
        self.parts.get(index).map_or(UNKNOWN, |part| part.size)
    }

    /// Whether the overload for this type can be the one: no argument is known to be another.
    fn may_be(&self, wanted: &Type) -> bool {
        self.types.iter().all(|ty| ty == wanted || ty.is_dyn())
    }

    fn number(&self, index: usize, default: u64) -> u64 {
        self.numbers.get(index).copied().flatten().unwrap_or(default)
    }

    /// The cost of the call itself, without its arguments', and what it returns.
    pub(super) fn estimate(&self, default: Estimate) -> Estimate {
        use Function as F;
        let size = |index: usize| self.size(index);
        let cost = |cost: u64| Estimate { cost, ..default };
        let list = |times: u64, length: u64| Estimate {
            size: length,
            ..cost(sum([times.saturating_mul(length), LIST, 1]))
        };
        let texts = self.may_be(&Type::String) || self.may_be(&Type::Bytes);
        let first = self.types.first();
        // Where nothing is known, the overloads for numbers may be meant: they cost 1.
        let unsure = u64::from(self.types.iter().all(Type::is_dyn));
        match self.function {
            F::Equals
                if matches!(
                    self.types,
                    [Type::Quantity, Type::Quantity] | [Type::Semver, Type::Semver]
                ) =>
            {
                cost(1)
            }
            F::Equals | F::NotEquals => cost(factor(size(0).min(size(1)), 1)),
            F::Less | F::LessEquals | F::Greater | F::GreaterEquals if texts => {
                cost(factor(size(0).min(size(1)), 1).max(unsure))
            }
            F::In | F::InNothing | F::InLiterals => match self.types.get(1) {
                Some(Type::List(_)) => cost(size(1)),
                Some(Type::Map(..)) => cost(1),
                _ => cost(size(1).max(1)),
            },
            F::StartsWith | F::EndsWith => cost(factor(size(1), 1)),
            F::Contains => cost(factor(size(0), 1).saturating_mul(factor(size(1), 1))),
            F::Matches | F::Find | F::FindAll => {
                let text = factor(size(0).saturating_add(1), 1);
                let whole = cost(text.saturating_mul(quarter(size(1))));
                Estimate { size: if self.function == F::Matches { 1 } else { size(0) }, ..whole }
            }
            F::Add if matches!(first, Some(Type::List(_))) => {
                let element = self.parts.iter().map(|part| part.element).max().unwrap_or(UNKNOWN);
                Estimate { size: size(0).saturating_add(size(1)), element, ..cost(1) }
            }
            F::Add if texts => {
                let together = size(0).saturating_add(size(1));
                Estimate { size: together, ..cost(factor(together, 1)) }
            }
            F::LowerAscii | F::UpperAscii | F::Substring | F::Trim => {
                Estimate { size: size(0), ..cost(factor(size(0), 1)) }
            }
            F::Quote => {
                let longest = size(0).saturating_mul(2).saturating_add(2);
                Estimate { size: longest, ..cost(factor(size(0), 1)) }
            }
            F::Replace => Estimate { size: self.replaced(), ..cost(factor(size(0), 2)) },
            F::Split => Estimate { size: self.number(2, size(0)), ..cost(factor(size(0), 2)) },
            // The texts of a list have no known length; what is not known to be a list is
            // reckoned by its separators.
            F::Join => {
                let separators = size(0)
                    .saturating_sub(1)
                    .saturating_mul(if self.parts.len() > 1 { size(1) } else { 0 });
                let whole = if matches!(first, Some(Type::List(_))) { UNKNOWN } else { separators };
                Estimate { size: whole, ..cost(factor(whole, 1)) }
            }
            F::Quantity | F::IsQuantity | F::Semver | F::IsSemver => cost(factor(size(0), 1)),
            F::IndexOf | F::LastIndexOf if matches!(first, Some(Type::String)) => {
                cost(factor(size(0), 1))
            }
            F::IsSorted | F::Sum | F::Max | F::Min | F::IndexOf | F::LastIndexOf => {
                match first {
                    Some(Type::List(of)) => {
                        let texts = matches!(**of, Type::String | Type::Bytes);
                        cost(size(0).saturating_mul(if texts { UNKNOWN } else { 1 }))
                    }
                    // Not known to be a list: reckoned as a text.
                    _ => cost(factor(size(0), 1)),
                }
            }
            // Each element against each: the estimate counts the pairs as the result's size.
            F::Distinct => list(2, size(0).saturating_mul(size(0))),
            F::Sort => {
                let pairs = size(0).saturating_mul(size(0));
                let of_texts = match first {
                    Some(Type::List(of)) => {
                        matches!(**of, Type::String | Type::Bytes) || of.is_dyn()
                    }
                    _ => true,
                };
                let tenths = if of_texts { 21 } else { 20 };
                Estimate { size: pairs, ..cost(sum([factor(pairs, tenths), LIST, 1])) }
            }
            F::SetsContains | F::SetsIntersects => {
                cost(size(0).saturating_mul(size(1)).saturating_add(1))
            }
            F::SetsEquivalent => cost(sum([size(0).saturating_mul(size(1)).saturating_mul(2), 1])),
            F::Slice => list(1, self.number(2, size(0)).saturating_sub(self.number(1, 0))),
            F::Reverse => list(1, size(0)),
            F::Flatten => Estimate { size: size(0), ..list(self.number(1, 1), size(0)) },
            F::Range => list(1, self.number(0, UNKNOWN)),
            F::String if self.may_be(&Type::Bytes) => {
                Estimate { size: size(0), ..cost(factor(size(0), 1).max(unsure)) }
            }
            F::Bytes if self.may_be(&Type::String) => {
                Estimate { size: size(0).saturating_mul(4), ..cost(factor(size(0), 1).max(unsure)) }
            }
            F::Dyn => match self.parts {
                [argument] => Estimate { cost: 1, ..*argument },
                _ => cost(1),
            },
            _ => cost(1),
        }
    }

    /// The longest text that `replace` can give.
    fn replaced(&self) -> u64 {
        let least = self.parts.get(1).map_or(0, |part| part.least);
        let (text, new) = (self.size(0), self.size(2));
        if least == 0 {
            return text.saturating_add(1).saturating_mul(new).saturating_add(text);
        }
        if new <= least { text } else { text.div_ceil(least).saturating_mul(new) }
    }
}
