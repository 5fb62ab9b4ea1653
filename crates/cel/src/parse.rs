//! Text to syntax tree, by the `cel` crate (a port of cel-go's own grammar and macros).
//!
//! Its parser recurses with the nesting and with the length of chains like `a.b.c`, and so
//! does dropping the tree: call this, and drop what it returns, on a deep stack.

use cel::common::ast::SourceInfo;
use cel::parser::{Expression, ParseErrors, Parser};

use crate::error::{CompileError, Position};

/// cel-go's limit on nested expressions.
const MAX_NESTING: u16 = 250;

/// Parses with the standard macros expanded and the optional syntax on.
pub(crate) fn parse(text: &str) -> Result<(Expression, SourceInfo), CompileError> {
    Parser::new()
        .enable_optional_syntax(true)
        .max_recursion_depth(MAX_NESTING)
        .parse_with_source_info(text)
        .map_err(|errors| syntax_error(&errors))
}

fn syntax_error(errors: &ParseErrors) -> CompileError {
    let at = |number: isize| usize::try_from(number).unwrap_or(0);
    match errors.errors.first() {
        Some(first) => CompileError::Syntax {
            line: at(first.pos.0),
            column: at(first.pos.1),
            reason: first.msg.trim_start_matches("Syntax error: ").chars().take(120).collect(),
        },
        None => CompileError::Syntax { line: 1, column: 1, reason: "not CEL".to_owned() },
    }
}

/// Where a node begins. Offsets count characters.
pub(crate) fn position(info: &SourceInfo, id: u64) -> Position {
    let offset = info.offset_for(id).map_or(0, |(start, _)| start as usize);
    let before = info.source.chars().take(offset);
    let (mut line, mut column) = (1, 1);
    for c in before {
        if c == '\n' {
            (line, column) = (line + 1, 1);
        } else {
            column += 1;
        }
    }
    Position { line, column }
}
