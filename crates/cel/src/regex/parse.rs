//! Go's syntax of regular expressions (`regexp/syntax` with the flags of `regexp.Compile`) to
//! a tree. Groups leave no trace: nobody asks what they captured.

use super::class::{Class, Set};
use super::{Refusal, Room};

mod classes;
mod numbers;

use classes::{class, perl_class, unicode_class};
use numbers::{counts, escaped};

/// The deepest tree: it is compiled and dropped recursively, on stacks that hold an
/// evaluation already. Go allows 1000.
const MAX_HEIGHT: usize = 100;
/// The highest count of a repetition, also of repetitions within each other.
const MAX_REPEAT: u32 = 1000;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Empty,
    One(u32),
    Class(Class),
    Look(Look),
    /// One after the other.
    Sequence(Vec<Self>),
    /// The first that leads to a match.
    Choice(Vec<Self>),
    Repeat {
        inner: Box<Self>,
        min: u32,
        /// None for no end.
        max: Option<u32>,
        /// As few as possible.
        lazy: bool,
    },
}

/// A condition on a place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    TextStart,
    TextEnd,
    LineStart,
    LineEnd,
    WordBoundary,
    NoWordBoundary,
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    /// `i`
    fold: bool,
    /// `m`
    lines: bool,
    /// `s`
    dot_all: bool,
    /// `U`
    lazy: bool,
}

/// A part with what is known of it.
struct Part {
    tree: Tree,
    /// How many nodes lie above each other.
    height: usize,
    /// The largest product of counts within each other.
    count: u32,
}

impl Part {
    fn leaf(tree: Tree) -> Self {
        Self { tree, height: 1, count: 1 }
    }

    /// Several parts as one; one part stays itself.
    fn together(mut parts: Vec<Self>, join: fn(Vec<Tree>) -> Tree) -> Self {
        match (parts.len(), parts.pop()) {
            (1, Some(only)) => only,
            (_, None) => Self::leaf(Tree::Empty),
            (_, Some(last)) => {
                parts.push(last);
                let height = parts.iter().map(|part| part.height).max().unwrap_or(0) + 1;
                let count = parts.iter().map(|part| part.count).max().unwrap_or(1);
                let trees = parts.into_iter().map(|part| part.tree).collect();
                Self { tree: join(trees), height, count }
            }
        }
    }
}

/// A group that is open, or the whole.
struct Open {
    /// The flags around it.
    outer: Flags,
    choices: Vec<Part>,
    sequence: Vec<Part>,
}

impl Open {
    fn new(outer: Flags) -> Self {
        Self { outer, choices: Vec::new(), sequence: Vec::new() }
    }

    fn end_choice(&mut self) {
        let sequence = std::mem::take(&mut self.sequence);
        self.choices.push(Part::together(sequence, Tree::Sequence));
    }

    fn close(mut self) -> Part {
        self.end_choice();
        Part::together(self.choices, Tree::Choice)
    }
}

/// Parses a pattern.
pub(super) fn parse(pattern: &str, room: &mut Room) -> Result<Tree, Refusal> {
    let mut parser =
        Parser { open: Open::new(Flags::default()), outer: Vec::new(), flags: Flags::default() };
    let mut rest = pattern;
    let mut after_repeat = false;
    while !rest.is_empty() {
        let is_repeat;
        (rest, is_repeat) = parser.step(rest, after_repeat, room)?;
        after_repeat = is_repeat;
    }
    if !parser.outer.is_empty() {
        return Err(Refusal::Invalid("missing closing )"));
    }
    let whole = parser.open.close();
    if whole.height > MAX_HEIGHT { Err(Refusal::TooLarge) } else { Ok(whole.tree) }
}

struct Parser {
    open: Open,
    /// The groups around the one that is open.
    outer: Vec<Open>,
    flags: Flags,
}

impl Parser {
    /// Takes one item; what is left, and whether the item was a repetition.
    fn step<'t>(
        &mut self,
        text: &'t str,
        after_repeat: bool,
        room: &mut Room,
    ) -> Result<(&'t str, bool), Refusal> {
        let mut chars = text.chars();
        let Some(c) = chars.next() else { return Ok(("", false)) };
        let rest = chars.as_str();
        let look = |text_wide, of_lines| if self.flags.lines { of_lines } else { text_wide };
        match c {
            '(' if rest.starts_with('?') => return Ok((self.group(rest)?, false)),
            '(' => self.open_group(self.flags)?,
            ')' => self.close_group()?,
            '|' => self.open.end_choice(),
            '^' => self.push(Tree::Look(look(Look::TextStart, Look::LineStart))),
            '$' => self.push(Tree::Look(look(Look::TextEnd, Look::LineEnd))),
            '.' => {
                let mut any = Set::default();
                if !self.flags.dot_all {
                    any.add(u32::from('\n'), u32::from('\n'));
                }
                any.negate();
                self.push(Tree::Class(any.into_class()));
            }
            '[' => {
                let (class, rest) = class(rest, self.flags.fold, room)?;
                self.push(Tree::Class(class));
                return Ok((rest, false));
            }
            '*' => return Ok((self.repeat(rest, 0, None, after_repeat)?, true)),
            '+' => return Ok((self.repeat(rest, 1, None, after_repeat)?, true)),
            '?' => return Ok((self.repeat(rest, 0, Some(1), after_repeat)?, true)),
            '{' => {
                if let Some((min, max, rest)) = counts(rest) {
                    return Ok((self.counted(rest, min, max, after_repeat)?, true));
                }
                self.literal('{', room)?;
            }
            '\\' => return Ok((self.escape(text, rest, room)?, false)),
            c => self.literal(c, room)?,
        }
        Ok((rest, false))
    }

    fn push(&mut self, tree: Tree) {
        self.open.sequence.push(Part::leaf(tree));
    }

    fn literal(&mut self, c: char, room: &mut Room) -> Result<(), Refusal> {
        self.code_point(u32::from(c), room)
    }

    fn code_point(&mut self, c: u32, room: &mut Room) -> Result<(), Refusal> {
        if self.flags.fold {
            let mut set = Set::default();
            set.add(c, c);
            set.fold(room)?;
            if set.len() > 1 {
                self.push(Tree::Class(set.into_class()));
                return Ok(());
            }
        }
        self.push(Tree::One(c));
        Ok(())
    }

    fn open_group(&mut self, outer: Flags) -> Result<(), Refusal> {
        if self.outer.len() >= MAX_HEIGHT {
            return Err(Refusal::TooLarge);
        }
        self.outer.push(std::mem::replace(&mut self.open, Open::new(outer)));
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), Refusal> {
        let outer = self.outer.pop().ok_or(Refusal::Invalid("unexpected )"))?;
        let group = std::mem::replace(&mut self.open, outer);
        self.flags = group.outer;
        self.open.sequence.push(group.close());
        Ok(())
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`, after the bracket.
    fn group<'t>(&mut self, text: &'t str) -> Result<&'t str, Refusal> {
        const UNKNOWN: Refusal = Refusal::Invalid("invalid or unsupported Perl syntax");
        if let Some(named) = text.strip_prefix("?P<").or_else(|| text.strip_prefix("?<")) {
            const NAME: Refusal = Refusal::Invalid("invalid named capture");
            let (name, rest) = named.split_once('>').ok_or(NAME)?;
            let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(NAME);
            }
            self.open_group(self.flags)?;
            return Ok(rest);
        }
        let mut flags = self.flags;
        let (mut to, mut seen) = (true, false);
        let mut chars = text.chars();
        chars.next();
        while let Some(c) = chars.next() {
            match c {
                'i' => flags.fold = to,
                'm' => flags.lines = to,
                's' => flags.dot_all = to,
                'U' => flags.lazy = to,
                '-' if to => {
                    (to, seen) = (false, false);
                    continue;
                }
                ':' | ')' if to || seen => {
                    if c == ':' {
                        self.open_group(self.flags)?;
                    }
                    self.flags = flags;
                    return Ok(chars.as_str());
                }
                _ => return Err(UNKNOWN),
            }
            seen = true;
        }
        Err(UNKNOWN)
    }

    fn counted<'t>(
        &mut self,
        rest: &'t str,
        min: u32,
        max: Option<u32>,
        after_repeat: bool,
    ) -> Result<&'t str, Refusal> {
        const COUNT: Refusal = Refusal::Invalid("invalid repeat count");
        if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || max < min) {
            return Err(COUNT);
        }
        let rest = self.repeat(rest, min, max, after_repeat)?;
        if let Some(last) = self.open.sequence.last_mut() {
            last.count = last.count.saturating_mul(max.unwrap_or(min));
            let is_checked = min >= 2 || max.is_some_and(|max| max >= 2);
            if is_checked && last.count > MAX_REPEAT {
                return Err(COUNT);
            }
            // What is repeated no times counts for nothing.
            last.count = last.count.max(1);
        }
        Ok(rest)
    }

    /// Repeats the last part.
    fn repeat<'t>(
        &mut self,
        rest: &'t str,
        min: u32,
        max: Option<u32>,
        after_repeat: bool,
    ) -> Result<&'t str, Refusal> {
        let (lazy, rest) = match rest.strip_prefix('?') {
            Some(rest) => (!self.flags.lazy, rest),
            None => (self.flags.lazy, rest),
        };
        if after_repeat {
            return Err(Refusal::Invalid("invalid nested repetition operator"));
        }
        let Some(part) = self.open.sequence.pop() else {
            return Err(Refusal::Invalid("missing argument to repetition operator"));
        };
        if part.height >= MAX_HEIGHT {
            return Err(Refusal::TooLarge);
        }
        let inner = Box::new(part.tree);
        let tree = Tree::Repeat { inner, min, max, lazy };
        self.open.sequence.push(Part { tree, height: part.height + 1, count: part.count });
        Ok(rest)
    }

    /// What begins with a backslash: `text` with it, `rest` without.
    fn escape<'t>(
        &mut self,
        text: &'t str,
        rest: &'t str,
        room: &mut Room,
    ) -> Result<&'t str, Refusal> {
        let look = match rest.chars().next() {
            Some('A') => Some(Look::TextStart),
            Some('z') => Some(Look::TextEnd),
            Some('b') => Some(Look::WordBoundary),
            Some('B') => Some(Look::NoWordBoundary),
            Some('Q') => {
                let quoted = rest.get(1..).unwrap_or("");
                let (quoted, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
                quoted.chars().try_for_each(|c| self.literal(c, room))?;
                return Ok(rest);
            }
            _ => None,
        };
        if let Some(look) = look {
            self.push(Tree::Look(look));
            return Ok(rest.get(1..).unwrap_or(""));
        }
        let mut set = Set::default();
        let found = match unicode_class(text, self.flags.fold, &mut set, room)? {
            Some(rest) => Some(rest),
            None => perl_class(text, self.flags.fold, &mut set, room)?,
        };
        if let Some(rest) = found {
            self.push(Tree::Class(set.into_class()));
            return Ok(rest);
        }
        let (c, rest) = escaped(rest)?;
        self.code_point(c, room)?;
        Ok(rest)
    }
}
