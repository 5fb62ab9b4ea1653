//! Classes: `[…]` with all that may stand in it, `\d` and its like, `\p{…}`.

use super::{Refusal, Room, escaped};
use crate::regex::class::{Class, Set, named};

const RANGE: Refusal = Refusal::Invalid("invalid character class range");
const OPEN: Refusal = Refusal::Invalid("missing closing ]");

type Ranges = &'static [(char, char)];

const DIGIT: Ranges = &[('0', '9')];
const SPACE: Ranges = &[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')];
const WORD: Ranges = &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')];

/// The inside of `[…]`, after its bracket, and what follows.
pub(super) fn class<'t>(
    text: &'t str,
    fold: bool,
    room: &mut Room,
) -> Result<(Class, &'t str), Refusal> {
    let (negated, mut rest) = match text.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut set = Set::default();
    let mut first = true;
    while first || !rest.starts_with(']') {
        // A bracket that comes first means itself.
        first = false;
        if let Some(after) = posix_class(rest, fold, &mut set, room)? {
            rest = after;
        } else if let Some(after) = unicode_class(rest, fold, &mut set, room)? {
            rest = after;
        } else if let Some(after) = perl_class(rest, fold, &mut set, room)? {
            rest = after;
        } else {
            let (low, after) = member(rest)?;
            rest = after;
            let mut high = low;
            // `[a-]` is an `a` and a `-`.
            if let Some(after) =
                rest.strip_prefix('-').filter(|after| !after.is_empty() && !after.starts_with(']'))
            {
                (high, rest) = member(after)?;
            }
            if high < low {
                return Err(RANGE);
            }
            let mut range = Set::default();
            range.add(low, high);
            add(range, fold, false, &mut set, room)?;
        }
    }
    // It is sorted, so each counts again.
    room.take(set.len().saturating_mul(2))?;
    if negated {
        set.negate();
    }
    Ok((set.into_class(), rest.get(1..).unwrap_or("")))
}

/// A character of a class.
fn member(text: &str) -> Result<(u32, &str), Refusal> {
    let mut chars = text.chars();
    match chars.next().ok_or(OPEN)? {
        '\\' => escaped(chars.as_str()),
        c => Ok((u32::from(c), chars.as_str())),
    }
}

/// Adds a set to another: first what differs in case, then turned round.
fn add(
    mut part: Set,
    fold: bool,
    negated: bool,
    to: &mut Set,
    room: &mut Room,
) -> Result<(), Refusal> {
    if fold {
        part.fold(room)?;
    }
    if negated {
        part.negate();
    }
    room.take(part.len())?;
    to.extend(&part.into_class());
    Ok(())
}

fn ranges(of: Ranges) -> Set {
    let mut set = Set::default();
    of.iter().for_each(|(low, high)| set.add(u32::from(*low), u32::from(*high)));
    set
}

/// `\d`, `\s`, `\w` and their opposites; None where the text doesn't begin with one.
pub(super) fn perl_class<'t>(
    text: &'t str,
    fold: bool,
    to: &mut Set,
    room: &mut Room,
) -> Result<Option<&'t str>, Refusal> {
    let Some(name) = text.strip_prefix('\\').and_then(|rest| rest.chars().next()) else {
        return Ok(None);
    };
    let members = match name.to_ascii_lowercase() {
        'd' => DIGIT,
        's' => SPACE,
        'w' => WORD,
        _ => return Ok(None),
    };
    add(ranges(members), fold, name.is_ascii_uppercase(), to, room)?;
    Ok(text.get(2..))
}

/// `[:alpha:]` and its like, within a class.
fn posix_class<'t>(
    text: &'t str,
    fold: bool,
    to: &mut Set,
    room: &mut Room,
) -> Result<Option<&'t str>, Refusal> {
    let Some((name, rest)) = text.strip_prefix("[:").and_then(|inner| inner.split_once(":]"))
    else {
        return Ok(None);
    };
    let (negated, name) = match name.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, name),
    };
    let members: Ranges = match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\u{7f}')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\u{1f}'), ('\u{7f}', '\u{7f}')],
        "digit" => DIGIT,
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => WORD,
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return Err(RANGE),
    };
    add(ranges(members), fold, negated, to, room)?;
    Ok(Some(rest))
}

/// `\pL`, `\p{Greek}`, `\P{…}` and `\p{^…}`; None where the text doesn't begin with one.
pub(super) fn unicode_class<'t>(
    text: &'t str,
    fold: bool,
    to: &mut Set,
    room: &mut Room,
) -> Result<Option<&'t str>, Refusal> {
    let (capital, rest) = match (text.strip_prefix("\\p"), text.strip_prefix("\\P")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Ok(None),
    };
    let (name, rest) = match rest.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or(RANGE)?,
        None => {
            let end = rest.chars().next().map_or(0, char::len_utf8);
            rest.split_at_checked(end).ok_or(RANGE)?
        }
    };
    let (turned, name) = match name.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, name),
    };
    let (members, of_others) = named(name, fold).ok_or(RANGE)?;
    let mut set = Set::default();
    room.take(members.len())?;
    set.extend(&members);
    add(set, false, capital ^ turned ^ of_others, to, room)?;
    Ok(Some(rest))
}
