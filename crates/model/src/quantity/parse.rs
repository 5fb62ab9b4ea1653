//! Text to quantity: Go's grammar, digit by digit, and what Go then keeps in an int64 or in
//! a big decimal. Never rounds down.

use std::str::FromStr;

use super::{
    Amount, EXPONENT_LIMIT, Format, MANTISSA_LIMIT, MAX_PLAIN_DIGITS, NANO, Quantity,
    QuantityError, divide_up, scale_up, strip_factors,
};
use crate::shown;

impl FromStr for Quantity {
    type Err = QuantityError;

    /// Go's grammar, `1.` and a bare `Gi` (zero) included.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let given = || shown(text, 60);
        if text.is_empty() {
            return Err(QuantityError::Format(given()));
        }
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        check_suffix_shape(suffix).ok_or_else(|| QuantityError::Format(given()))?;
        let (base, exponent, format) =
            interpret_suffix(suffix).ok_or_else(|| QuantityError::Suffix(given()))?;
        let exponent = i32::try_from(exponent)
            .ok()
            .filter(|e| i64::from(e.abs()) <= EXPONENT_LIMIT)
            .ok_or_else(|| QuantityError::TooLarge(given()))?;
        let number = Number { negative, whole, fraction };
        let quantity = match number.plain(base, exponent) {
            Some(amount) => Some(Self { amount, format }),
            None if whole.is_empty() && fraction.is_empty() => {
                return Err(QuantityError::Format(given()));
            }
            None => number.decimal(base, exponent, format),
        };
        // Printed, the zeros at the end of the number go into the exponent.
        let printable = |quantity: &Self| {
            let (value, scale) = quantity.amount.parts();
            i64::from(scale + strip_factors(value, 10).1) <= EXPONENT_LIMIT
        };
        quantity.filter(printable).ok_or_else(|| QuantityError::TooLarge(given()))
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Letters of suffixes, then perhaps a sign, then digits to the end.
fn check_suffix_shape(suffix: &str) -> Option<()> {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit()).then_some(())
}

fn interpret_suffix(suffix: &str) -> Option<(u8, i64, Format)> {
    let (base, exponent, format) = match suffix {
        "n" => (10, -9, Format::DecimalSi),
        "u" => (10, -6, Format::DecimalSi),
        "m" => (10, -3, Format::DecimalSi),
        "" => (10, 0, Format::DecimalSi),
        "k" => (10, 3, Format::DecimalSi),
        "M" => (10, 6, Format::DecimalSi),
        "G" => (10, 9, Format::DecimalSi),
        "T" => (10, 12, Format::DecimalSi),
        "P" => (10, 15, Format::DecimalSi),
        "E" => (10, 18, Format::DecimalSi),
        "Ki" => (2, 10, Format::BinarySi),
        "Mi" => (2, 20, Format::BinarySi),
        "Gi" => (2, 30, Format::BinarySi),
        "Ti" => (2, 40, Format::BinarySi),
        "Pi" => (2, 50, Format::BinarySi),
        "Ei" => (2, 60, Format::BinarySi),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            (10, digits.parse().ok()?, Format::DecimalExponent)
        }
    };
    Some((base, exponent, format))
}

/// The digits of a text before they have a meaning.
struct Number<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl Number<'_> {
    fn all(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    fn digits(&self) -> Option<i128> {
        mantissa(self.all())
    }

    /// The digits without the zeros at their end, which a suffix may bring about, and how many
    /// these are.
    fn without_zeros(&self) -> Option<(i128, i32)> {
        let zeros = self.all().rev().take_while(|digit| *digit == b'0').count();
        let significant = self.all().count() - zeros;
        Some((mantissa(self.all().take(significant))?, i32::try_from(zeros).ok()?))
    }

    fn fraction_scale(&self) -> Option<i32> {
        i32::try_from(self.fraction.len()).ok()
    }

    /// What Go puts into an int64: few digits, no finer than nano, whole if binary.
    fn plain(&self, base: u8, exponent: i32) -> Option<Amount> {
        let significant = self.whole.trim_start_matches('0').len().max(1) + self.fraction.len();
        let (factor, scale, room) = match base {
            10 => (1, exponent - self.fraction_scale()?, MAX_PLAIN_DIGITS),
            _ if self.fraction.is_empty() => {
                // 2^10 is about three digits; Go reckons with 15 digits here.
                let used = usize::try_from(exponent * 3 / 10).ok()? + 1;
                (1_i64 << exponent, 0, 15_usize.saturating_sub(used))
            }
            _ => return None,
        };
        if significant > room || scale < NANO {
            return None;
        }
        let value = i64::try_from(self.digits()?).ok()?.checked_mul(factor)?;
        Some(Amount::Plain { value: if self.negative { -value } else { value }, scale })
    }

    /// What Go puts into a big decimal: rounded up to nano, binary capped at 2^63-1.
    fn decimal(&self, base: u8, exponent: i32, format: Format) -> Option<Quantity> {
        let cap = i128::from(i64::MAX) * 1_000_000_000;
        let mut format = format;
        let scale = -self.fraction_scale()?;
        let value = if base == 10 {
            let (digits, zeros) = self.without_zeros()?;
            let scale = scale + exponent + zeros;
            match to_nano(digits, scale) {
                Some(value) => value,
                // Too large to bring to nano: kept at the scale it has.
                None => return Some(self.signed(digits, scale, format)),
            }
        } else {
            // Past the cap the fraction, which may be too long to keep, doesn't matter.
            let times = |number: i128| number.checked_mul(1_i128 << exponent);
            let whole = Number { fraction: "", ..*self }.digits().and_then(times);
            if whole.is_none_or(|whole| whole >= i128::from(i64::MAX)) {
                cap
            } else {
                to_nano(self.digits().and_then(times)?, scale)?
            }
        };
        if format == Format::BinarySi && (1..1_000_000_000).contains(&value) {
            format = Format::DecimalSi;
        }
        Some(self.signed(value, NANO, format))
    }

    fn signed(&self, value: i128, scale: i32, format: Format) -> Quantity {
        let value = if self.negative { -value } else { value };
        Quantity { amount: Amount::Decimal { value, scale }, format }
    }
}

/// The number that the digits are, if it isn't too large to keep.
fn mantissa(mut digits: impl Iterator<Item = u8>) -> Option<i128> {
    digits.try_fold(0_i128, |value, digit| {
        let value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        (value < MANTISSA_LIMIT).then_some(value)
    })
}

fn to_nano(value: i128, scale: i32) -> Option<i128> {
    if scale < NANO { Some(divide_up(value, NANO - scale)) } else { scale_up(value, scale - NANO) }
}
