//! Counts of repetitions, and characters that are written with a backslash.

use super::Refusal;

/// The inside of `{2}`, `{2,}` or `{2,5}`, and what follows; None where it means itself.
pub(super) fn counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (min, rest) = count(text)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (max, rest) = count(rest)?;
            (Some(max), rest)
        }
    };
    Some((min, max, rest.strip_prefix('}')?))
}

/// A number without leading zeros; one without measure is above every limit.
fn count(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

/// The character that stands after a backslash, by itself or as a number, and what follows.
pub(super) fn escaped(text: &str) -> Result<(u32, &str), Refusal> {
    const INVALID: Refusal = Refusal::Invalid("invalid escape sequence");
    let mut chars = text.chars();
    let c = chars.next().ok_or(Refusal::Invalid("trailing backslash at end of expression"))?;
    let rest = chars.as_str();
    let digits = |text: &str, most: usize, radix: u32| {
        text.chars().take(most).take_while(|c| c.is_digit(radix)).count()
    };
    let number = |text: &str, radix| u32::from_str_radix(text, radix).map_err(|_| INVALID);
    Ok(match c {
        // One digit would be a back reference, which there isn't.
        '1'..='7' if digits(rest, 1, 8) == 0 => return Err(INVALID),
        '0'..='7' => {
            let end = 1 + digits(rest, 2, 8);
            (number(text.get(..end).unwrap_or(""), 8)?, text.get(end..).unwrap_or(""))
        }
        'x' => match rest.strip_prefix('{') {
            Some(braced) => {
                let (inner, rest) = braced.split_once('}').ok_or(INVALID)?;
                let is_plain = inner.chars().all(|c| c.is_ascii_hexdigit());
                let c = number(inner, 16)?;
                if !is_plain || c > u32::from(char::MAX) {
                    return Err(INVALID);
                }
                (c, rest)
            }
            None if digits(rest, 2, 16) == 2 => {
                (number(rest.get(..2).unwrap_or(""), 16)?, rest.get(2..).unwrap_or(""))
            }
            None => return Err(INVALID),
        },
        'a' => (0x07, rest),
        'f' => (0x0C, rest),
        'n' => (0x0A, rest),
        'r' => (0x0D, rest),
        't' => (0x09, rest),
        'v' => (0x0B, rest),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => (u32::from(c), rest),
        _ => return Err(INVALID),
    })
}
