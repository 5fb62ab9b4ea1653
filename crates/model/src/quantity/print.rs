//! Quantity to text, in Go's canonical form. Never prints a number that parses to another.

use std::fmt;

use super::{Format, Quantity, scale_up, strip_factors};

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

fn suffix(table: &[&'static str], index: u32) -> &'static str {
    usize::try_from(index).ok().and_then(|index| table.get(index)).copied().unwrap_or("")
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, scale) = self.amount.parts();
        if value == 0 {
            return f.write_str("0");
        }
        let binary = whole_number(value, scale).filter(|whole| whole.abs() >= 1024);
        if let (Format::BinarySi, Some(whole)) = (self.format, binary) {
            let (number, times) = strip_factors(whole, 1024);
            let times = times.unsigned_abs();
            let number = number * 1024_i128.pow(times.saturating_sub(6));
            return write!(f, "{number}{}", suffix(&BINARY, times.min(6)));
        }
        let (number, zeros) = strip_factors(value, 10);
        let exponent = scale + zeros;
        let spare = exponent.rem_euclid(3);
        let (exponent, spare) = (exponent - spare, spare.unsigned_abs());
        let zeros = |count: u32| "0".repeat(usize::try_from(count).unwrap_or(0));
        if self.format == Format::DecimalExponent {
            let number = format!("{number}{}", zeros(spare));
            return if exponent == 0 {
                f.write_str(&number)
            } else {
                write!(f, "{number}e{exponent}")
            };
        }
        // No suffix is larger than E (Go then prints none): the rest goes into zeros.
        let index = (exponent / 3 + 3).unsigned_abs();
        let beyond = index.saturating_sub(9);
        write!(f, "{number}{}{}", zeros(spare + 3 * beyond), suffix(&DECIMAL, index.min(9)))
    }
}

/// The value as a whole number, if it is one.
fn whole_number(value: i128, scale: i32) -> Option<i128> {
    if scale >= 0 {
        return scale_up(value, scale);
    }
    let divisor = 10_i128.checked_pow(u32::try_from(-scale).ok()?)?;
    (value % divisor == 0).then_some(value / divisor)
}
