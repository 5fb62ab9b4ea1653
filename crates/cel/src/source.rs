//! The text of a sub-expression, found again from its first and last token: brackets are
//! closed, and names of functions and fields are completed.

use crate::ir::Span;

/// The text of a span of `text`, and where it really begins and ends, in characters.
pub(crate) fn excerpt(text: &[char], span: Span) -> (String, usize, usize) {
    let last = text.len();
    let mut start = usize::try_from(span.start).unwrap_or(last).min(last);
    // The parser gives the last character, not the one after it.
    let end = usize::try_from(span.end).map_or(last, |end| end.saturating_add(1));
    let mut end = end.clamp(start, last);
    let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let before = |start: usize| start.checked_sub(1).and_then(|at| text.get(at));
    // A call is known by its bracket alone; so is the end of a literal.
    while before(start).is_some_and(is_name) {
        start -= 1;
    }
    // Of a field only the dot is known.
    while text.get(end).is_some_and(is_name) {
        end += 1;
    }
    while let Some(depth @ 1..) = depth(text.get(start..end).unwrap_or_default()) {
        let rest = text.get(end..).unwrap_or_default();
        let Some(length) = closing(rest, depth) else { break };
        end += length;
    }
    while depth(text.get(start..end).unwrap_or_default()).is_none() && start > 0 {
        start -= 1;
    }
    let shown: String = text.get(start..end).unwrap_or_default().iter().collect();
    (shown.split_whitespace().collect::<Vec<_>>().join(" "), start, end)
}

/// Brackets that are open at the end; None where one closes that was never opened.
fn depth(text: &[char]) -> Option<usize> {
    let mut open = 0_usize;
    for (_, c) in outside_strings(text) {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.checked_sub(1)?,
            _ => {}
        }
    }
    Some(open)
}

/// How much of `text` it takes to close so many brackets.
fn closing(text: &[char], mut open: usize) -> Option<usize> {
    for (at, c) in outside_strings(text) {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.checked_sub(1)?,
            _ => {}
        }
        if open == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The characters that are no part of a string literal.
fn outside_strings(text: &[char]) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut quote: Option<char> = None;
    let mut escaped = false;
    text.iter().enumerate().filter_map(move |(at, c)| match quote {
        Some(_) if escaped => {
            escaped = false;
            None
        }
        Some(_) if *c == '\\' => {
            escaped = true;
            None
        }
        Some(open) => {
            if *c == open {
                quote = None;
            }
            None
        }
        None if matches!(c, '"' | '\'') => {
            quote = Some(*c);
            None
        }
        None => Some((at, *c)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_names_come_back() {
        let text: Vec<char> = "x && sets.contains([1], [a(')')]) == true".chars().collect();
        let span = |from: &str, to: &str| {
            let all: String = text.iter().collect();
            let at = |part: &str| u32::try_from(all.find(part).unwrap()).unwrap();
            Span { start: at(from), end: at(to) + u32::try_from(to.len()).unwrap() - 1 }
        };
        let (shown, ..) = excerpt(&text, span("([1]", "')'"));
        assert_eq!(shown, "sets.contains([1], [a(')')])");
        let (shown, start, end) = excerpt(&text, span("x", "x"));
        assert_eq!((shown.as_str(), start, end), ("x", 0, 1));
    }
}
