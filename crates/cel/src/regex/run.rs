//! Searching: all ways through the program at once, the preferred ones first, so that the
//! time grows with the text and never explodes. Each step is charged.

use super::class::contains;
use super::parse::Look;
use super::program::{Place, Program, Step};
use crate::error::EvalError;
use crate::eval::Meter;

/// A way through the program.
#[derive(Clone, Copy)]
struct Way {
    place: Place,
    /// Where in the text it began.
    start: usize,
}

/// The ways that are alive at one place of the text.
struct Ways<'p> {
    program: &'p Program,
    list: Vec<Way>,
    /// Per instruction the round in which it was last reached.
    reached: Vec<u32>,
    round: u32,
    waiting: Vec<Place>,
    steps: usize,
}

/// What lies around a place in the text.
#[derive(Clone, Copy)]
struct Around {
    before: Option<char>,
    after: Option<char>,
}

impl Program {
    /// The first match at or behind a byte of the text, from where to where; only whether
    /// there is one if `any` will do.
    pub(super) fn search(
        &self,
        text: &str,
        from: usize,
        any: bool,
        meter: &mut Meter,
    ) -> Result<Option<(usize, usize)>, EvalError> {
        meter.work(1 + self.steps.len() / 64)?;
        let mut ways = Ways {
            program: self,
            list: Vec::new(),
            reached: vec![0; self.steps.len()],
            round: 1,
            waiting: Vec::new(),
            steps: 0,
        };
        let (head, rest) = text.split_at_checked(from).unwrap_or((text, ""));
        let mut chars = rest.chars();
        let mut around = Around { before: head.chars().next_back(), after: chars.next() };
        let mut at = from;
        let mut found = None;
        loop {
            if found.is_none() && (at == 0 || !self.anchored) {
                ways.add(self.start, at, around);
            }
            if ways.list.is_empty() && (found.is_some() || self.anchored) {
                return Ok(found);
            }
            let here = std::mem::take(&mut ways.list);
            let taken = around.after;
            let next = Around { before: taken, after: chars.next() };
            ways.round += 1;
            for way in &here {
                let Some(step) = self.step(way.place) else { continue };
                let goes_on = match (step, taken.map(u32::from)) {
                    (Step::Match, _) => {
                        found = Some((way.start, at));
                        // All that follow are less preferred.
                        break;
                    }
                    (Step::One(wanted, place), Some(c)) if *wanted == c => *place,
                    (Step::Class(class, place), Some(c)) if contains(class, c) => *place,
                    _ => continue,
                };
                ways.add(goes_on, way.start, next);
            }
            meter.work(std::mem::take(&mut ways.steps) + here.len() + 1)?;
            let Some(taken) = taken else { return Ok(found) };
            if any && found.is_some() {
                return Ok(found);
            }
            at += taken.len_utf8();
            around = next;
        }
    }

    fn step(&self, place: Place) -> Option<&Step> {
        usize::try_from(place).ok().and_then(|place| self.steps.get(place))
    }
}

impl Ways<'_> {
    /// Follows all that takes no character.
    fn add(&mut self, place: Place, start: usize, around: Around) {
        self.waiting.push(place);
        while let Some(place) = self.waiting.pop() {
            self.steps += 1;
            let reached = usize::try_from(place).ok().and_then(|place| self.reached.get_mut(place));
            let Some(reached) = reached.filter(|round| **round != self.round) else { continue };
            *reached = self.round;
            match self.program.step(place) {
                Some(Step::Split(first, second)) => self.waiting.extend([*second, *first]),
                Some(Step::Look(look, next)) if around.holds(*look) => self.waiting.push(*next),
                Some(Step::Look(..)) | None => {}
                Some(_) => self.list.push(Way { place, start }),
            }
        }
    }
}

impl Around {
    fn holds(self, look: Look) -> bool {
        let is_word = |c: Option<char>| c.is_some_and(|c| c == '_' || c.is_ascii_alphanumeric());
        let is_boundary = is_word(self.before) != is_word(self.after);
        match look {
            Look::TextStart => self.before.is_none(),
            Look::TextEnd => self.after.is_none(),
            Look::LineStart => matches!(self.before, None | Some('\n')),
            Look::LineEnd => matches!(self.after, None | Some('\n')),
            Look::WordBoundary => is_boundary,
            Look::NoWordBoundary => !is_boundary,
        }
    }
}
