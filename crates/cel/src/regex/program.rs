//! A tree to instructions. Built from the end: each part is told what follows it.

use super::class::Class;
use super::parse::{Look, Tree};
use super::{Refusal, Room};

/// A place in the program.
pub(super) type Place = u32;

/// An instruction.
#[derive(Debug)]
pub(super) enum Step {
    /// Takes this character.
    One(u32, Place),
    /// Takes a character of the class.
    Class(Class, Place),
    /// Goes on where the condition holds.
    Look(Look, Place),
    /// Goes on at both, the first before the second.
    Split(Place, Place),
    /// Found.
    Match,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) start: Place,
    /// It can only be found where the text begins.
    pub(super) anchored: bool,
}

impl Program {
    pub(super) fn new(tree: &Tree, room: &mut Room) -> Result<Self, Refusal> {
        let mut builder = Builder { steps: vec![Step::Match], room };
        let start = builder.part(tree, 0)?;
        let steps = builder.steps;
        let first = usize::try_from(start).ok().and_then(|start| steps.get(start));
        let anchored = matches!(first, Some(Step::Look(Look::TextStart, _)));
        Ok(Self { steps, start, anchored })
    }
}

struct Builder<'r> {
    steps: Vec<Step>,
    room: &'r mut Room,
}

impl Builder<'_> {
    fn push(&mut self, step: Step) -> Result<Place, Refusal> {
        self.room.take(1)?;
        let place = Place::try_from(self.steps.len()).map_err(|_| Refusal::TooLarge)?;
        self.steps.push(step);
        Ok(place)
    }

    /// The part with `next` behind it; where it begins.
    fn part(&mut self, tree: &Tree, next: Place) -> Result<Place, Refusal> {
        self.room.take(1)?;
        match tree {
            Tree::Empty => Ok(next),
            Tree::One(c) => self.push(Step::One(*c, next)),
            Tree::Class(class) => self.push(Step::Class(Class::clone(class), next)),
            Tree::Look(look) => self.push(Step::Look(*look, next)),
            Tree::Sequence(parts) => {
                parts.iter().rev().try_fold(next, |next, part| self.part(part, next))
            }
            Tree::Choice(parts) => {
                let mut starts = parts
                    .iter()
                    .map(|part| self.part(part, next))
                    .collect::<Result<Vec<_>, _>>()?;
                let last = starts.pop().unwrap_or(next);
                starts
                    .into_iter()
                    .rev()
                    .try_fold(last, |rest, start| self.push(Step::Split(start, rest)))
            }
            Tree::Repeat { inner, min, max, lazy } => self.repeat(inner, *min, *max, *lazy, next),
        }
    }

    fn repeat(
        &mut self,
        inner: &Tree,
        min: u32,
        max: Option<u32>,
        lazy: bool,
        next: Place,
    ) -> Result<Place, Refusal> {
        let (mut start, copies) = match max {
            None if min > 0 => (self.again(inner, lazy, next)?, min - 1),
            // What may be empty is taken at least once, or not at all: Go's order of things.
            None if is_nullable(inner) => {
                let once = self.again(inner, lazy, next)?;
                (self.split(once, next, lazy)?, 0)
            }
            None => {
                let loop_start = self.push(Step::Match)?;
                let body = self.part(inner, loop_start)?;
                self.set(loop_start, split(body, next, lazy));
                (loop_start, 0)
            }
            Some(max) => {
                let mut rest = next;
                for _ in min..max {
                    let body = self.part(inner, rest)?;
                    rest = self.split(body, next, lazy)?;
                }
                (rest, min)
            }
        };
        for _ in 0..copies {
            start = self.part(inner, start)?;
        }
        Ok(start)
    }

    /// Once or more.
    fn again(&mut self, inner: &Tree, lazy: bool, next: Place) -> Result<Place, Refusal> {
        let end = self.push(Step::Match)?;
        let body = self.part(inner, end)?;
        self.set(end, split(body, next, lazy));
        Ok(body)
    }

    fn split(&mut self, body: Place, next: Place, lazy: bool) -> Result<Place, Refusal> {
        self.push(split(body, next, lazy))
    }

    fn set(&mut self, place: Place, step: Step) {
        if let Some(known) = usize::try_from(place).ok().and_then(|place| self.steps.get_mut(place))
        {
            *known = step;
        }
    }
}

fn split(body: Place, next: Place, lazy: bool) -> Step {
    if lazy { Step::Split(next, body) } else { Step::Split(body, next) }
}

/// Whether nothing at all can be a match.
fn is_nullable(tree: &Tree) -> bool {
    match tree {
        Tree::Empty | Tree::Look(_) => true,
        Tree::One(_) | Tree::Class(_) => false,
        Tree::Sequence(parts) => parts.iter().all(is_nullable),
        Tree::Choice(parts) => parts.iter().any(is_nullable),
        Tree::Repeat { inner, min, .. } => *min == 0 || is_nullable(inner),
    }
}
