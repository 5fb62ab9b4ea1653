//! Regular expressions as Go's `regexp` has them, which is what the API server and the
//! scheduler run: a pattern is taken or refused as there, and finds what it finds there.
//!
//! Not the `regex` crate: it knows another dialect, compiles `\pL{1000}` to megabytes, and
//! can't be charged for the steps of a search. Here a class is one instruction, a search is
//! charged step by step, and a pattern is measured while it is compiled. Of the crate's parts
//! `regex-syntax` serves for the tables of Unicode.
//!
//! What isn't Go's here: patterns that compile to more than they are given room for, or nest
//! deeper than [`parse`] goes, are [`Refusal::TooLarge`], where Go has far higher limits.

use std::sync::Arc;

use crate::error::EvalError;
use crate::eval::Meter;

mod class;
mod parse;
mod program;
mod run;

use program::Program;

/// Why there is no pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Go refuses it too; what is wrong, in Go's words.
    Invalid(&'static str),
    /// Go may take it; here it is too large or too deep.
    TooLarge,
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    source: Arc<str>,
    program: Arc<Program>,
}

impl Pattern {
    /// Compiles a pattern, and takes from `room` what that takes: an instruction, a range of a
    /// class and a step of compiling count 1. Also what is refused has taken.
    ///
    /// # Errors
    /// The pattern is invalid, or takes more than there is.
    pub(crate) fn compile(source: &str, room: &mut Room) -> Result<Self, Refusal> {
        room.take(source.len())?;
        let tree = parse::parse(source, room)?;
        let program = Program::new(&tree, room)?;
        Ok(Self { source: source.into(), program: Arc::new(program) })
    }

    /// As it is written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is found in the text.
    ///
    /// # Errors
    /// The meter ran out.
    pub(crate) fn is_match(&self, text: &str, meter: &mut Meter) -> Result<bool, EvalError> {
        Ok(self.program.search(text, 0, true, meter)?.is_some())
    }

    /// The first place where it is found.
    ///
    /// # Errors
    /// The meter ran out.
    pub(crate) fn find<'t>(
        &self,
        text: &'t str,
        meter: &mut Meter,
    ) -> Result<Option<&'t str>, EvalError> {
        let found = self.program.search(text, 0, false, meter)?;
        Ok(found.and_then(|(start, end)| text.get(start..end)))
    }

    /// The first `limit` places where it is found, none within another.
    ///
    /// # Errors
    /// The meter ran out.
    pub(crate) fn find_all<'t>(
        &self,
        text: &'t str,
        limit: usize,
        meter: &mut Meter,
    ) -> Result<Vec<&'t str>, EvalError> {
        let mut all = Vec::new();
        let mut from = 0;
        let mut before = None;
        while all.len() < limit && from <= text.len() {
            let Some((start, end)) = self.program.search(text, from, false, meter)? else { break };
            // Nothing may be found right behind what was found.
            let is_repeated = end == from && before == Some(start);
            from = if end == from {
                let next = text.get(from..).and_then(|rest| rest.chars().next());
                from + next.map_or(1, char::len_utf8)
            } else {
                end
            };
            before = Some(end);
            if !is_repeated {
                all.extend(text.get(start..end));
            }
        }
        Ok(all)
    }
}

/// What compiling may still take.
pub(crate) struct Room {
    left: usize,
}

impl Room {
    pub(crate) fn new(left: usize) -> Self {
        Self { left }
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    fn take(&mut self, units: usize) -> Result<(), Refusal> {
        match self.left.checked_sub(units) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                return Err(Refusal::TooLarge);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns and texts as JSON, and what Go 1.26 finds with `FindAllString`, or that it
    /// refuses the pattern: each difference between the dialects, and some made at random.
    const TABLE: &str = include_str!("../tests/data/patterns.tsv");

    fn found(pattern: &str, text: &str) -> Result<Vec<String>, Refusal> {
        let pattern = Pattern::compile(pattern, &mut Room::new(200_000))?;
        let meter = &mut Meter::new();
        let all = pattern.find_all(text, usize::MAX, meter).unwrap();
        assert_eq!(
            pattern.find(text, meter).unwrap(),
            all.first().copied(),
            "{}",
            pattern.source()
        );
        assert_eq!(pattern.is_match(text, meter).unwrap(), !all.is_empty(), "{}", pattern.source());
        Ok(all.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn finds_what_go_finds() {
        let mut rows = 0;
        for line in TABLE.lines() {
            let [pattern, text, want] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}: want three columns")
            };
            let read = |column| serde_json::from_str::<String>(column).unwrap();
            let got = found(&read(pattern), &read(text));
            match want {
                "refused" => assert!(matches!(got, Err(Refusal::Invalid(_))), "{line}: {got:?}"),
                _ => {
                    let want: Vec<String> = serde_json::from_str(want).unwrap();
                    assert_eq!(got, Ok(want), "{line}");
                }
            }
            rows += 1;
        }
        assert!(rows > 500, "{rows}");
    }

    #[test]
    fn what_is_too_large_is_neither_taken_nor_invalid() {
        let deep = |depth: usize| format!("{}a{}", "(b|".repeat(depth), ")*".repeat(depth));
        for pattern in [
            format!("(?:{}){{1000}}", "ab".repeat(500)),
            format!("(?:{}){{1000}}", "()".repeat(500)),
            deep(101),
            format!("a*{}", r"\Q\E*".repeat(200)),
            "(".repeat(300) + &")".repeat(300),
        ] {
            assert_eq!(
                Pattern::compile(&pattern, &mut Room::new(200_000)).err(),
                Some(Refusal::TooLarge),
                "{pattern}"
            );
        }
        for pattern in [r"\pL{1000}".to_owned(), deep(30), "a".repeat(10_000)] {
            assert!(Pattern::compile(&pattern, &mut Room::new(200_000)).is_ok(), "{pattern}");
        }
    }

    /// A search takes no more steps than the pattern is long for each character.
    #[test]
    fn searches_are_charged_and_end() {
        let pattern = Pattern::compile("(a*)*b|(a|a)*c", &mut Room::new(1000)).unwrap();
        let text = "a".repeat(10_000);
        assert_eq!(pattern.is_match(&text, &mut Meter::new()), Ok(false));
        let pattern = Pattern::compile("(a?){900}b", &mut Room::new(10_000)).unwrap();
        assert_eq!(pattern.is_match(&text, &mut Meter::new()), Err(EvalError::TooMuchWork));
        let pattern = Pattern::compile("a*b|a", &mut Room::new(1000)).unwrap();
        let all = pattern.find_all(&text, usize::MAX, &mut Meter::new());
        assert_eq!(all, Err(EvalError::TooMuchWork), "each search goes to the end");
    }
}
