//! Kubernetes quantities (`80Gi`, `500m`, `1E3`) as Go's `resource.Quantity` has them:
//! which texts are accepted, how values round, compare, add up and print.
//!
//! Table-tested against `k8s.io/apimachinery/pkg/api/resource`. Two differences, both on
//! purpose: a value of more than 36 decimal digits is refused instead of kept, and a value
//! that Go prints wrongly (`1000E` as `1`) prints right. Never use floating point here.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::shown;

mod parse;
mod print;

/// Nothing finer than nano is kept: values round up (away from zero) to it.
const NANO: i32 = -9;
/// Mantissas stay below this, so that aligning and printing never overflow an `i128`.
const MANTISSA_LIMIT: i128 = 10_i128.pow(36);
/// Exponents beyond this are refused; Go keeps them, no quantity of use has one.
const EXPONENT_LIMIT: i64 = 1000;
/// Go keeps up to this many digits in a plain `int64`, more in a big decimal.
const MAX_PLAIN_DIGITS: usize = 18;

/// How a quantity was written, which decides how it prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Powers of 1000: `n u m k M G T P E`.
    DecimalSi,
    /// Powers of 1024: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `12e6`, the exponent a multiple of three.
    DecimalExponent,
}

/// A text that is no quantity, or a result too large to keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text doesn't follow the grammar.
    #[error("{0:?} is no quantity: want a number and a suffix such as 500m, 20, 80Gi or 12e6")]
    Format(String),
    /// What follows the number is no suffix; mind that kilo is a small k and kibi is Ki.
    #[error("{0:?} is no quantity: suffixes are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3")]
    Suffix(String),
    /// More digits than are supported.
    #[error(
        "quantity {0:?} has more than 36 digits or an exponent beyond 1000: write a smaller one"
    )]
    TooLarge(String),
}

/// A number with the format it was written in. Equality, order and hash are numeric:
/// `1Gi` equals `1024Mi`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    amount: Amount,
    format: Format,
}

/// Go keeps small values in an int64 and others in a big decimal, and lets it be seen:
/// `isInteger("1.5Gi")` is false because of it. So the two are kept apart here too.
#[derive(Debug, Clone, Copy)]
enum Amount {
    Plain { value: i64, scale: i32 },
    Decimal { value: i128, scale: i32 },
}

impl Amount {
    fn parts(self) -> (i128, i32) {
        match self {
            Self::Plain { value, scale } => (i128::from(value), scale),
            Self::Decimal { value, scale } => (value, scale),
        }
    }
}

impl Quantity {
    /// Zero, in decimal format.
    pub const ZERO: Self =
        Self { amount: Amount::Plain { value: 0, scale: 0 }, format: Format::DecimalSi };

    /// A whole number.
    #[must_use]
    pub fn from_integer(value: i64, format: Format) -> Self {
        Self { amount: Amount::Plain { value, scale: 0 }, format }
    }

    /// A number of bytes that prints with binary suffixes: `80Gi`, `81559Mi`.
    #[must_use]
    pub fn from_bytes_binary(bytes: u64) -> Self {
        let amount = match i64::try_from(bytes) {
            Ok(value) => Amount::Plain { value, scale: 0 },
            Err(_) => Amount::Decimal { value: i128::from(bytes), scale: 0 },
        };
        Self { amount, format: Format::BinarySi }
    }

    /// The format it was written in.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i8 {
        match self.amount.parts().0.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// Whether the value is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.sign() == 0
    }

    /// Go's `AsInt64`, which CEL's `asInteger` calls: the value, if it was written as a whole
    /// number that fits. `1000m` and `1.5Gi` are not, though their value is whole: where a
    /// size is wanted, use [`Self::ceil`].
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self.amount {
            Amount::Plain { value, scale } if scale >= 0 => {
                scale_up(i128::from(value), scale).and_then(|whole| i64::try_from(whole).ok())
            }
            Amount::Plain { .. } | Amount::Decimal { .. } => None,
        }
    }

    /// Whether [`Self::as_integer`] has a value (CEL's `isInteger`).
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.as_integer().is_some()
    }

    /// The value rounded up to a whole number (away from zero), None where that needs more
    /// than 64 bits.
    #[must_use]
    pub fn ceil(&self) -> Option<i64> {
        let (value, scale) = self.amount.parts();
        let whole = if scale < 0 { divide_up(value, -scale) } else { scale_up(value, scale)? };
        i64::try_from(whole).ok()
    }

    /// The value in thousandths, rounded up (away from zero), None where that needs more
    /// than 128 bits.
    #[must_use]
    pub fn ceil_milli(&self) -> Option<i128> {
        let (value, scale) = self.amount.parts();
        if scale < -3 { Some(divide_up(value, -3 - scale)) } else { scale_up(value, scale + 3) }
    }

    /// The nearest float (CEL's `asApproximateFloat`).
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn as_approximate_float(&self) -> f64 {
        let (value, scale) = self.amount.parts();
        match scale {
            0 => value as f64,
            1.. => value as f64 * power_of_ten_float(scale),
            _ => value as f64 * (1.0 / power_of_ten_float(-scale)),
        }
    }

    /// The sum, in the format of the first unless it is zero.
    ///
    /// # Errors
    /// [`QuantityError::TooLarge`] where the sum needs more than 36 digits.
    pub fn add(&self, other: &Self) -> Result<Self, QuantityError> {
        let format = if self.is_zero() { other.format } else { self.format };
        let amount = add_amounts(self.amount, other.amount)
            .ok_or_else(|| QuantityError::TooLarge(shown(&format!("{self}+{other}"), 60)))?;
        Ok(Self { amount, format })
    }

    /// The difference, in the format of the first unless it is zero.
    ///
    /// # Errors
    /// [`QuantityError::TooLarge`] where the difference needs more than 36 digits.
    pub fn sub(&self, other: &Self) -> Result<Self, QuantityError> {
        let negated = match other.amount {
            Amount::Plain { value, scale } => match value.checked_neg() {
                Some(value) => Amount::Plain { value, scale },
                None => Amount::Decimal { value: -i128::from(value), scale },
            },
            Amount::Decimal { value, scale } => Amount::Decimal { value: -value, scale },
        };
        self.add(&Self { amount: negated, format: other.format })
    }
}

/// As Go adds: in an int64 while both are and the result fits, else in a decimal.
fn add_amounts(left: Amount, right: Amount) -> Option<Amount> {
    if let (
        Amount::Plain { value: a, scale: a_scale },
        Amount::Plain { value: b, scale: b_scale },
    ) = (left, right)
    {
        if b == 0 {
            return Some(left);
        }
        if a == 0 {
            return Some(right);
        }
        let scale = a_scale.min(b_scale);
        let whole = |value: i64, from: i32| {
            scale_up(i128::from(value), from - scale).and_then(|v| i64::try_from(v).ok())
        };
        let sum = whole(a, a_scale).zip(whole(b, b_scale)).and_then(|(a, b)| a.checked_add(b));
        if let Some(value) = sum {
            return Some(Amount::Plain { value, scale });
        }
    }
    let ((a, a_scale), (b, b_scale)) = (left.parts(), right.parts());
    let scale = a_scale.min(b_scale);
    let value = scale_up(a, a_scale - scale)?.checked_add(scale_up(b, b_scale - scale)?)?;
    (value.abs() < MANTISSA_LIMIT).then_some(Amount::Decimal { value, scale })
}

/// `value * 10^power`, None where it leaves the supported range.
fn scale_up(value: i128, power: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    let factor = 10_i128.checked_pow(u32::try_from(power).ok()?)?;
    value.checked_mul(factor).filter(|product| product.abs() < MANTISSA_LIMIT)
}

/// `value / 10^power`, rounded away from zero.
fn divide_up(value: i128, power: i32) -> i128 {
    let Some(divisor) = u32::try_from(power).ok().and_then(|p| 10_i128.checked_pow(p)) else {
        return value.signum();
    };
    let rest = value % divisor;
    value / divisor + rest.signum()
}

fn power_of_ten_float(power: i32) -> f64 {
    format!("1e{power}").parse().unwrap_or(f64::INFINITY)
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((a, a_scale), (b, b_scale)) = (self.amount.parts(), other.amount.parts());
        if a.signum() != b.signum() || a == 0 {
            return a.signum().cmp(&b.signum());
        }
        // What overflows when brought to the smaller scale is the larger in magnitude:
        // the other one is below the limit as it is.
        let scale = a_scale.min(b_scale);
        match (scale_up(a, a_scale - scale), scale_up(b, b_scale - scale)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (None, _) => a.cmp(&0),
            (_, None) => 0.cmp(&b),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (value, scale) = self.amount.parts();
        let (value, zeros) = strip_factors(value, 10);
        (value, if value == 0 { 0 } else { scale + zeros }).hash(state);
    }
}

/// Divides by `base` while it goes without rest; how often it went.
fn strip_factors(mut value: i128, base: i128) -> (i128, i32) {
    let mut times = 0;
    while value != 0 && value % base == 0 {
        value /= base;
        times += 1;
    }
    (value, times)
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

/// Go's decoder takes a string or a bare number.
struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"80Gi\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_integer(number, Format::DecimalSi))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Text, canonical form, Go's AsInt64, float: printed by apimachinery 0.36.3.
    #[test]
    fn parses_and_prints_as_go() {
        for (text, canonical, integer, float) in [
            ("0", "0", Some(0), 0.0),
            ("Gi", "0", Some(0), 0.0),
            (".", "0", Some(0), 0.0),
            ("-", "0", Some(0), 0.0),
            ("1.", "1", Some(1), 1.0),
            ("1.Gi", "1Gi", Some(1 << 30), 1_073_741_824.0),
            ("+007", "7", Some(7), 7.0),
            ("12E", "12E", None, 1.2e19),
            ("1E", "1E", Some(1_000_000_000_000_000_000), 1e18),
            ("1E3", "1e3", Some(1000), 1000.0),
            ("12e6", "12e6", Some(12_000_000), 1.2e7),
            ("12345e2", "1234500", Some(1_234_500), 1_234_500.0),
            ("1e100", "10e99", None, 1e100),
            ("1e-30", "1e-9", None, 1e-9),
            ("9223372036854775807", "9223372036854775807", None, 9.223_372_036_854_776e18),
            ("9223372036854775808", "9223372036854775808", None, 9.223_372_036_854_776e18),
            ("9223372036854775807Ki", "9223372036854775807", None, 9.223_372_036_854_776e18),
            ("9Ei", "9223372036854775807", None, 9.223_372_036_854_776e18),
            ("-9Ei", "-9223372036854775807", None, -9.223_372_036_854_776e18),
            (
                "99999999999999999999999999999999Ei",
                "9223372036854775807",
                None,
                9.223_372_036_854_776e18,
            ),
            ("1.5Gi", "1536Mi", None, 1_610_612_736.0),
            ("0.1Gi", "107374182400m", None, 107_374_182.4),
            ("0.0001Ki", "102400u", None, 0.1024),
            ("1000m", "1", None, 1.0),
            ("0.00000000001", "1n", None, 1e-9),
            ("80Gi", "80Gi", Some(80 << 30), 85_899_345_920.0),
            ("81559Mi", "81559Mi", Some(81559 << 20), 85_520_809_984.0),
            ("1200000", "1200k", Some(1_200_000), 1.2e6),
            ("1023", "1023", Some(1023), 1023.0),
            ("512Ki", "512Ki", Some(524_288), 524_288.0),
        ] {
            let value = q(text);
            assert_eq!(value.to_string(), canonical, "{text}");
            assert_eq!(value.as_integer(), integer, "{text}");
            assert!((value.as_approximate_float() - float).abs() <= float.abs() * 1e-15, "{text}");
            assert_eq!(q(canonical), value, "{text} read back");
        }
        for text in ["12012334517867890133234567001670019.2", "1e35", "12e35", "1e1000"] {
            assert_eq!(q(&q(text).to_string()), q(text), "{text} read back");
        }
        assert_eq!(q("1000E").to_string(), "1000E", "Go prints 1 here");
        assert_eq!(q("100000000000000000000000").to_string(), "100000E", "Go prints 100 here");
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            " 1",
            "1 ",
            "aoeu",
            "1.1.M",
            "1+1.0M",
            "0.1mi",
            "0.1am",
            ".5i",
            "1i",
            "-3.01i",
            "-3.01e-",
            "1K",
            "1ki",
            "1n1",
            "E-10",
            "80g",
            "80GB",
            "1e",
            "--1",
            "１Gi",
            "1e99999999999999999999",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        for text in [&"\u{b}".repeat(60), &"\u{10ffff}".repeat(500), "1\u{b}i\"\\"] {
            let error = text.parse::<Quantity>().unwrap_err();
            assert!(error.to_string().len() < 200, "{error}");
        }
        let error = q("1e1000").add(&q("1n")).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
        for text in ["1e1001", "1e-1001", "10e1000", "1000000000000000000000e1000", &"9".repeat(40)]
        {
            let error = text.parse::<Quantity>().unwrap_err();
            assert!(matches!(error, QuantityError::TooLarge(_)), "{text}: {error}");
            assert!(error.to_string().len() < 200);
        }
    }

    #[test]
    fn compares_adds_and_rounds() {
        assert_eq!(q("1Gi"), q("1024Mi"));
        assert_eq!(q("200M").cmp(&q("0.2G")), Ordering::Equal);
        assert!(q("50M") < q("50Mi") && q("81559Mi") < q("80Gi") && q("-1") < q("1n"));
        assert!(q("1e900") > q("1e100") && q("-1e900") < q("-1e100") && q("1e900") > q("-1"));
        assert_eq!(q("50k").add(&q("20")).unwrap().to_string(), "50020");
        assert_eq!(q("50k").sub(&q("100k")).unwrap().to_string(), "-50k");
        assert_eq!(q("1Gi").add(&q("1Mi")).unwrap().to_string(), "1025Mi");
        assert_eq!(q("0").add(&q("1Gi")).unwrap().to_string(), "1Gi");
        assert_eq!(q("1Ei").add(&q("8Ei")).unwrap().to_string(), "10376293541461622783");
        assert!(q("1e900").add(&q("1")).is_err());
        for (text, whole, milli) in
            [("1.5", 2, 1500), ("-1.5", -2, -1500), ("1u", 1, 1), ("2Ki", 2048, 2_048_000)]
        {
            assert_eq!(q(text).ceil(), Some(whole), "{text}");
            assert_eq!(q(text).ceil_milli(), Some(milli), "{text}");
        }
        assert_eq!(q("1e30").ceil(), None);
    }

    #[test]
    fn bytes_print_with_binary_suffixes() {
        for (bytes, text) in [
            (80 << 30, "80Gi"),
            (81559 << 20, "81559Mi"),
            (1000, "1k"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(Quantity::from_bytes_binary(bytes).to_string(), text);
        }
    }

    #[test]
    fn json_takes_strings_and_numbers() {
        let value: Vec<Quantity> =
            serde_json::from_str("[\" 5Gi \", 7, 1.5, -2, 18446744073709551615]").unwrap();
        assert_eq!(
            serde_json::to_string(&value).unwrap(),
            "[\"5Gi\",\"7\",\"1500m\",\"-2\",\"18446744073709551615\"]"
        );
        assert!(serde_json::from_str::<Quantity>("true").is_err());
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(text in "[+-]?[0-9]{0,19}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2}|)") {
            if let Ok(value) = text.parse::<Quantity>() {
                let printed = value.to_string();
                prop_assert_eq!(q(&printed), value, "{} -> {}", text, printed);
                prop_assert_eq!(q(&printed).to_string(), printed, "canonical form is stable");
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            if let Ok(value) = text.parse::<Quantity>() {
                let _ = (value.to_string(), value.ceil(), value.ceil_milli(), value.as_approximate_float());
            }
        }

        #[test]
        fn sums_agree_with_integers(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000) {
            let number = |n: i64| Quantity::from_integer(n, Format::DecimalSi);
            prop_assert_eq!(number(a).add(&number(b)).unwrap(), number(a + b));
            prop_assert_eq!(number(a).sub(&number(b)).unwrap(), number(a - b));
            prop_assert_eq!(number(a).cmp(&number(b)), a.cmp(&b));
        }
    }
}
