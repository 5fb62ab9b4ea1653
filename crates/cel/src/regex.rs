//! RE2's syntax for the `regex` crate: Perl classes and word boundaries are ASCII in RE2,
//! and in its brackets `[`, `&&`, `--` and `~~` mean themselves. What only the `regex`
//! crate knows is refused, so that no pattern is accepted here that the API server refuses.

use regex::{Regex, RegexBuilder};

/// RE2's limit on a counted repetition.
const MAX_REPEAT: u32 = 1000;
/// Bytes that a compiled pattern may take; a literal of 10 KiB fits easily.
const SIZE_LIMIT: usize = 4 << 20;

/// Compiles an RE2 pattern.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn translate(pattern: &str) -> Result<Regex, String> {
    let mut translated = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    let mut repeated = Repeated::No;
    while let Some(c) = rest.chars().next() {
        if !in_class {
            repeated = repeated.then(rest)?;
        }
        let consumed = match c {
            '\\' => escape(rest, in_class, &mut translated)?,
            '[' if !in_class => {
                in_class = true;
                open_class(rest, &mut translated)
            }
            '[' if rest.starts_with("[:") => {
                let end = rest.find(":]").map_or(1, |end| end + 2);
                translated.push_str(rest.get(..end).unwrap_or("["));
                end
            }
            '[' => literal(&mut translated, c),
            ']' if in_class => {
                in_class = false;
                translated.push(c);
                1
            }
            '&' | '~' if in_class => literal(&mut translated, c),
            '-' if in_class && rest.starts_with("--") => literal(&mut translated, c),
            '(' if !in_class => {
                check_group(rest)?;
                translated.push(c);
                1
            }
            '{' if !in_class => repeat(rest, &mut translated)?,
            _ => {
                translated.push(c);
                c.len_utf8()
            }
        };
        rest = rest.get(consumed..).unwrap_or("");
    }
    RegexBuilder::new(&translated).size_limit(SIZE_LIMIT).build().map_err(|error| {
        error.to_string().lines().last().unwrap_or("not valid").chars().take(120).collect()
    })
}

/// RE2 takes one repetition of an expression, and a `?` that makes it lazy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    No,
    Once,
    Lazily,
}

impl Repeated {
    fn then(self, rest: &str) -> Result<Self, String> {
        let is_repeat = rest.starts_with(['*', '+', '?']) || counted(rest).is_some();
        match (self, is_repeat) {
            (_, false) => Ok(Self::No),
            (Self::No, true) => Ok(Self::Once),
            (Self::Once, true) if rest.starts_with('?') => Ok(Self::Lazily),
            (_, true) => Err("invalid nested repetition operator".to_owned()),
        }
    }
}

/// The inside of `{2}`, `{2,}` or `{2,5}`.
fn counted(rest: &str) -> Option<&str> {
    let (inner, _) = rest.strip_prefix('{')?.split_once('}')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    (is_number(low) && (high.is_empty() || is_number(high))).then_some(inner)
}

fn literal(translated: &mut String, c: char) -> usize {
    translated.push('\\');
    translated.push(c);
    c.len_utf8()
}

/// `[`, `[^` and a `]` that comes first, which means itself.
fn open_class(rest: &str, translated: &mut String) -> usize {
    let negated = rest.starts_with("[^");
    translated.push_str(if negated { "[^" } else { "[" });
    let opened = if negated { 2 } else { 1 };
    if rest.get(opened..).is_some_and(|inner| inner.starts_with(']')) {
        translated.push_str("\\]");
        return opened + 1;
    }
    opened
}

fn escape(rest: &str, in_class: bool, translated: &mut String) -> Result<usize, String> {
    let Some(escaped) = rest.chars().nth(1) else {
        return Err("trailing backslash at the end".to_owned());
    };
    let class = match escaped {
        'd' => Some(("0-9", false)),
        'D' => Some(("0-9", true)),
        's' => Some(("\\t\\n\\f\\r ", false)),
        'S' => Some(("\\t\\n\\f\\r ", true)),
        'w' => Some(("0-9A-Za-z_", false)),
        'W' => Some(("0-9A-Za-z_", true)),
        _ => None,
    };
    if let Some((members, negated)) = class {
        let negation = if negated { "^" } else { "" };
        translated.push_str(&format!("[{negation}{members}]"));
        return Ok(2);
    }
    match escaped {
        'Q' if !in_class => {
            let quoted = rest.get(2..).unwrap_or("");
            let (inner, length) = match quoted.find("\\E") {
                Some(end) => (quoted.get(..end).unwrap_or(""), end + 4),
                None => (quoted, quoted.len() + 2),
            };
            translated.push_str(&regex::escape(inner));
            Ok(length)
        }
        'b' if !in_class && !rest.starts_with("\\b{") => {
            translated.push_str("(?-u:\\b)");
            Ok(2)
        }
        'x' | 'p' | 'P' if rest.get(2..).is_some_and(|rest| rest.starts_with('{')) => {
            let end = rest.find('}').ok_or("a brace that is not closed")? + 1;
            translated.push_str(rest.get(..end).unwrap_or(rest));
            Ok(end)
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'A' | 'z' | 'x' | 'p' | 'P' => {
            translated.push('\\');
            translated.push(escaped);
            Ok(2)
        }
        c if c.is_ascii_punctuation() => {
            if matches!(c, '<' | '>') {
                translated.push(c);
            } else {
                literal(translated, c);
            }
            Ok(2)
        }
        c => Err(format!("escape sequence \\{c} is not valid, or not supported here")),
    }
}

/// Only RE2's groups: capturing, `?:`, `?P<name>`, `?<name>` and the flags i, m, s, U.
fn check_group(rest: &str) -> Result<(), String> {
    let Some(inner) = rest.strip_prefix("(?") else { return Ok(()) };
    let named = inner.starts_with("P<") || inner.starts_with('<');
    let lookaround = inner.starts_with("<=") || inner.starts_with("<!");
    let flags = inner.trim_start_matches(['i', 'm', 's', 'U', '-']);
    if (named && !lookaround) || flags.starts_with([':', ')']) {
        return Ok(());
    }
    Err("only the groups (?:…), (?P<name>…) and the flags i, m, s and U are supported".to_owned())
}

/// Passes a counted repetition on; a brace that counts nothing means itself in RE2.
fn repeat(rest: &str, translated: &mut String) -> Result<usize, String> {
    let Some(inner) = counted(rest) else { return Ok(literal(translated, '{')) };
    let fits =
        |number: &str| number.is_empty() || number.parse().is_ok_and(|n: u32| n <= MAX_REPEAT);
    if !inner.split(',').all(fits) {
        return Err(format!("a repeat count above {MAX_REPEAT}"));
    }
    translated.push_str(&format!("{{{inner}}}"));
    Ok(inner.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::translate;

    #[test]
    fn means_what_re2_means() {
        for (pattern, text, want) in [
            ("^.*a100.*$", "nvidia a100-sxm4", true),
            (r"^\d+$", "123", true),
            (r"^\d+$", "١٢٣", false),
            (r"^\w$", "é", false),
            (r"[\d_]+", "a_1", true),
            (r"[^\d]", "1", false),
            (r"\bH100\b", "NVIDIA H100 80GB", true),
            (r"[[a]", "[", true),
            (r"[a&&b]", "&", true),
            (r"[]a]", "]", true),
            (r"[[:alpha:]]+", "abc", true),
            (r"\Qa.b\E.", "a.bc", true),
            (r"a{2}", "aa", true),
            (r"^a{2}1*?$", "aa1", true),
            (r"a1?}", "a}", true),
            (r"a{,2}", "a{,2}", true),
            (r"^[\p{Lu}\d]+$", "A1", true),
            (r"\x{41}", "A", true),
            (r"(?i)h100", "H100", true),
        ] {
            assert_eq!(translate(pattern).unwrap().is_match(text), want, "{pattern} on {text}");
        }
    }

    #[test]
    fn refuses_what_re2_refuses() {
        for pattern in [
            "(",
            "a**",
            "[",
            r"\",
            "(?=a)",
            "(?<=a)",
            "(?x)a",
            r"\b{start}",
            r"\u{61}",
            "a{1001}",
            "*",
            "a{2}{3}",
            "a+*",
            "a??+",
            r"\1",
            r"\Z",
        ] {
            assert!(translate(pattern).is_err(), "{pattern}");
        }
    }
}
