//! Why an expression is false, or fails, on a device: the terms of its outermost `&&` that
//! are to blame, and of each the comparisons inside, with the value that was seen beside the
//! one that was asked for. The verdict itself stays the evaluator's.

use std::fmt;

use gpu_dra_model::Quantity;

use crate::device::DeviceView;
use crate::error::EvalError;
use crate::eval::{Evaluator, Meter, Slot};
use crate::ir::{Kind, Literal, Node};
use crate::reads::{Field, field};
use crate::signatures::Function;
use crate::source::excerpt;
use crate::value::Value;

/// A term that keeps a device from matching: `b` in `a && b && c`.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// As it is written.
    pub text: String,
    /// Where it begins and ends in the expression, in characters.
    pub span: (usize, usize),
    /// Why it has no value; None where it is false.
    pub error: Option<EvalError>,
    /// The comparisons in it that decided; several for the sides of an `||`, the first eight.
    pub comparisons: Vec<Comparison>,
}

/// Something seen on the device beside what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// As it is written.
    pub text: String,
    /// The field that was looked at, where it is nothing but that.
    pub field: Option<Field>,
    /// The left side as it is written.
    pub subject: String,
    /// What was found, or why nothing was.
    pub seen: Result<Shown, EvalError>,
    /// How the two were compared.
    pub operator: Operator,
    /// What was asked for; None for a plain bool.
    pub wanted: Option<Shown>,
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Operator {
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    In,
    StartsWith,
    EndsWith,
    Contains,
    Matches,
    /// The value itself is the condition.
    Is,
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equals => "==",
            Self::NotEquals => "!=",
            Self::Less => "<",
            Self::LessEquals => "<=",
            Self::Greater => ">",
            Self::GreaterEquals => ">=",
            Self::In => "in",
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Contains => "contains",
            Self::Matches => "matches",
            Self::Is => "is",
        })
    }
}

/// A value to be shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// A quantity.
    Quantity(Quantity),
    /// A string.
    Text(String),
    /// A version.
    Version(String),
    /// A whole number.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// Anything else, as text.
    Other(String),
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => write!(f, "{quantity}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Version(text) | Self::Other(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(flag) => write!(f, "{flag}"),
        }
    }
}

/// Terms, and comparisons of one term, that are told: expressions join hundreds by `||`.
const MOST: usize = 8;

/// The terms to blame, the first few; empty where the device matches.
pub(crate) fn explain(root: &Node, slots: usize, device: &DeviceView, text: &str) -> Vec<Term> {
    let text: Vec<char> = text.chars().collect();
    let evaluator = Evaluator::new(device, slots);
    let mut explainer = Explainer { evaluator, spare: Meter::new(), text: &text, terms: vec![] };
    explainer.terms(root);
    explainer.terms
}

struct Explainer<'a, 't> {
    /// Its account is that of the terms, as when the whole is evaluated.
    evaluator: Evaluator<'a>,
    /// The account of the comparisons.
    spare: Meter,
    text: &'t [char],
    terms: Vec<Term>,
}

impl<'a> Explainer<'a, '_> {
    fn terms(&mut self, node: &'a Node) {
        if self.terms.len() >= MOST {
            return;
        }
        match &node.kind {
            Kind::And(terms) => terms.iter().for_each(|term| self.terms(term)),
            Kind::Bind(bind) => {
                self.evaluator.set(bind.slot, Slot::Pending(&bind.value));
                self.terms(&bind.body);
            }
            _ => {
                let error = match self.evaluator.eval(node) {
                    Ok(Value::Bool(true)) => return,
                    Ok(Value::Bool(false)) => None,
                    Ok(other) => Some(EvalError::NotBool(other.type_name())),
                    Err(error) => Some(error),
                };
                let (text, start, end) = excerpt(self.text, node.span);
                let mut comparisons = Vec::new();
                // What took all there is can't be looked at once more.
                if !error.as_ref().is_some_and(EvalError::is_final) {
                    self.change_accounts();
                    self.comparisons(node, &mut comparisons);
                    self.change_accounts();
                }
                self.terms.push(Term { text, span: (start, end), error, comparisons });
            }
        }
    }

    fn change_accounts(&mut self) {
        let spare = std::mem::replace(&mut self.spare, Meter::new());
        self.spare = self.evaluator.charge_to(spare);
    }

    /// The comparisons below that are not true.
    fn comparisons(&mut self, node: &'a Node, into: &mut Vec<Comparison>) {
        match &node.kind {
            Kind::And(terms) | Kind::Or(terms) => {
                for term in terms {
                    if into.len() >= MOST {
                        return;
                    }
                    if !matches!(self.evaluator.eval(term), Ok(Value::Bool(true))) {
                        self.comparisons(term, into);
                    }
                }
            }
            _ => into.push(self.comparison(node)),
        }
    }

    fn comparison(&mut self, node: &'a Node) -> Comparison {
        let (operator, left, right) = sides(node);
        let (operator, left, right) = match right {
            // What was asked for is the side that isn't read from the device.
            Some(right) if is_constant(left) && !is_constant(right) => match turned(operator) {
                Some(operator) => (operator, right, Some(left)),
                None => (operator, left, Some(right)),
            },
            _ => (operator, left, right),
        };
        let seen = self.evaluator.eval(left).map(|value| shown(&value));
        let wanted = right.and_then(|node| self.evaluator.eval(node).ok());
        Comparison {
            text: excerpt(self.text, node.span).0,
            field: field(left).or_else(|| inner(left).and_then(field)).map(|(field, _)| field),
            subject: excerpt(self.text, left.span).0,
            seen,
            operator,
            wanted: wanted.map(|value| shown(&value)),
        }
    }
}

/// What `.orValue(…)` and the like are applied to.
fn inner(node: &Node) -> Option<&Node> {
    match &node.kind {
        Kind::OptionalOrValue(parts) => parts.first(),
        Kind::Call(Function::LowerAscii | Function::UpperAscii, nodes) => nodes.first(),
        _ => None,
    }
}

/// A comparison's operator and sides; anything else is its own left side.
fn sides(node: &Node) -> (Operator, &Node, Option<&Node>) {
    let whole = (Operator::Is, node, None);
    let (function, nodes) = match &node.kind {
        Kind::Call(function, nodes) | Kind::Regex(function, nodes, _) => (*function, nodes),
        _ => return whole,
    };
    let (Some(left), Some(right)) = (nodes.first(), nodes.get(1)) else { return whole };
    let operator = match function {
        Function::Equals => Operator::Equals,
        Function::NotEquals => Operator::NotEquals,
        Function::Less | Function::IsLessThan => Operator::Less,
        Function::LessEquals => Operator::LessEquals,
        Function::Greater | Function::IsGreaterThan => Operator::Greater,
        Function::GreaterEquals => Operator::GreaterEquals,
        Function::In | Function::InLiterals | Function::InNothing => Operator::In,
        Function::StartsWith => Operator::StartsWith,
        Function::EndsWith => Operator::EndsWith,
        Function::Contains => Operator::Contains,
        Function::Matches | Function::MatchesGlobal => Operator::Matches,
        _ => return whole,
    };
    // `a.compareTo(b) >= 0` compares a with b.
    if let (Kind::Call(Function::CompareTo, inner), Kind::Literal(Literal::Int(0))) =
        (&left.kind, &right.kind)
        && let (Some(a), Some(b)) = (inner.first(), inner.get(1))
    {
        return (operator, a, Some(b));
    }
    (operator, left, Some(right))
}

/// The operator with its sides exchanged.
fn turned(operator: Operator) -> Option<Operator> {
    Some(match operator {
        Operator::Equals | Operator::NotEquals => operator,
        Operator::Less => Operator::Greater,
        Operator::LessEquals => Operator::GreaterEquals,
        Operator::Greater => Operator::Less,
        Operator::GreaterEquals => Operator::LessEquals,
        _ => return None,
    })
}

fn is_constant(node: &Node) -> bool {
    let mut constant = true;
    node.each(|part, _| constant &= !matches!(part.kind, Kind::Device | Kind::Slot(_)));
    constant
}

fn shown(value: &Value<'_>) -> Shown {
    const LONGEST: usize = 120;
    match value {
        Value::Quantity { value, .. } => Shown::Quantity(*value),
        Value::String(text) => Shown::Text(text.chars().take(LONGEST).collect()),
        Value::Semver(version) => Shown::Version(version.to_string()),
        Value::Int(number) => Shown::Int(*number),
        Value::Bool(flag) => Shown::Bool(*flag),
        Value::Uint(number) => Shown::Other(format!("{number}u")),
        Value::Double(number) => Shown::Other(number.to_string()),
        Value::Null => Shown::Other("null".to_owned()),
        Value::Optional(None) => Shown::Other("nothing".to_owned()),
        Value::Optional(Some(value)) => shown(value),
        Value::List(_) => Shown::Other(list_shown(value, 2)),
        other => Shown::Other(format!("a {}", other.type_name())),
    }
}

/// The first eight elements, and those of lists in it down to a depth: the same list may be
/// in many places.
fn list_shown(value: &Value<'_>, depth: usize) -> String {
    match value {
        Value::List(values) if depth == 0 && !values.is_empty() => "[...]".to_owned(),
        Value::List(values) => {
            let parts: Vec<String> = values
                .iter()
                .take(8)
                .map(|value| list_shown(value, depth.saturating_sub(1)))
                .collect();
            let more = if values.len() > 8 { ", ..." } else { "" };
            format!("[{}{more}]", parts.join(", "))
        }
        Value::Optional(Some(inner)) => list_shown(inner, depth),
        other => shown(other).to_string(),
    }
}
