//! Evaluation of a checked expression on one device. Follows cel-go where it is visible:
//! `&&`, `||`, `all` and `exists` absorb errors, optionals swallow missing keys, `cel.bind`
//! computes when first read.
//!
//! Every step is charged; at the API server's limit of cost, and at a limit of work of our
//! own, the evaluation ends with an error. The depth of recursion is the depth of the
//! expression, which compilation has bounded.

use std::rc::Rc;

use crate::device::DeviceView;
use crate::error::EvalError;
use crate::functions;
use crate::ir::{Access, Bind, Element, Entry, Index, Kind, Literal, Node, Select, Wrap};
use crate::regex::{Pattern, Refusal, Room};
use crate::selector::MAX_COST;
use crate::signatures::Function;
use crate::value::{Entries, Shared, Value, same};

mod access;
mod loops;

pub(crate) type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// What a variable holds.
pub(crate) enum Slot<'a> {
    Empty,
    Known(Evaluated<'a>),
    /// The value of `cel.bind`, not read yet.
    Pending(&'a Node),
}

/// Steps of work that an evaluation may take: an expression evaluated, a value compared, a
/// way through a pattern followed count 1, all well below 100 ns. An ordinary selector takes
/// a few hundred.
const MAX_WORK: usize = 1_500_000;
/// Steps for the copy of an element: it also takes memory.
const COPY: usize = 4;

/// The accounts that an evaluation is charged to: its cost in the API server's units, and the
/// work that is done here. Cost alone bounds nothing: `&&` costs nothing, and two lists are
/// compared for a tenth of their length, whatever is in them.
#[derive(Debug)]
pub(crate) struct Meter {
    cost: u64,
    work: usize,
    /// The pattern that was compiled last while evaluating.
    pattern: Option<Pattern>,
}

impl Meter {
    /// What one evaluation may cost and do.
    pub(crate) fn new() -> Self {
        Self { cost: MAX_COST, work: MAX_WORK, pattern: None }
    }

    /// Charges `units` of cost.
    pub(crate) fn spend(&mut self, units: usize) -> Result<(), EvalError> {
        let left = u64::try_from(units).ok().and_then(|units| self.cost.checked_sub(units));
        self.cost = left.ok_or(EvalError::TooCostly)?;
        Ok(())
    }

    /// Charges steps of work.
    pub(crate) fn work(&mut self, steps: usize) -> Result<(), EvalError> {
        self.work = self.work.checked_sub(steps).ok_or(EvalError::TooMuchWork)?;
        Ok(())
    }

    /// Charges for a list of this many elements that is copied together.
    pub(crate) fn copy(&mut self, elements: usize) -> Result<(), EvalError> {
        self.work(elements.saturating_mul(COPY))
    }

    /// Charges for a look at so many bytes at once, which is no part of the API's cost.
    pub(crate) fn scan(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.work(bytes / 64)
    }

    /// A pattern that is only known now, compiled unless it was the last one.
    pub(crate) fn pattern(&mut self, source: &str) -> Result<Pattern, EvalError> {
        if let Some(known) = self.pattern.as_ref().filter(|known| known.source() == source) {
            return Ok(known.clone());
        }
        let mut room = Room::new(self.work);
        let pattern = Pattern::compile(source, &mut room);
        // Such a step is a larger one. A pattern that is refused was work too.
        self.work(self.work.saturating_sub(room.left()).saturating_mul(2))?;
        self.pattern = pattern.as_ref().ok().cloned();
        pattern.map_err(|refusal| match refusal {
            Refusal::Invalid(reason) => EvalError::Value(format!("error parsing regexp: {reason}")),
            Refusal::TooLarge => EvalError::TooMuchWork,
        })
    }

    /// Charges for looking at each byte of a text.
    pub(crate) fn traverse(&mut self, length: usize) -> Result<(), EvalError> {
        self.spend(length.div_ceil(10))
    }
}

pub(crate) struct Evaluator<'a> {
    device: &'a DeviceView,
    slots: Vec<Slot<'a>>,
    meter: Meter,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(device: &'a DeviceView, slots: usize) -> Self {
        let slots = std::iter::repeat_with(|| Slot::Empty).take(slots).collect();
        Self { device, slots, meter: Meter::new() }
    }

    pub(crate) fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.meter.work(1)?;
        match &node.kind {
            Kind::Literal(literal) | Kind::Parsed(literal, _) => Ok(literal_value(literal)),
            Kind::Device => self.variable(),
            Kind::Slot(slot) => self.slot(*slot),
            Kind::Select(select) => self.select(select),
            Kind::Index(index) => self.index(index),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::And(terms) => self.logical(terms, false),
            Kind::Or(terms) => self.logical(terms, true),
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::OptionalOr(parts) => self.optional_or(parts, false),
            Kind::OptionalOrValue(parts) => self.optional_or(parts, true),
            Kind::Call(Function::InNothing, _) => Ok(Value::Bool(false)),
            Kind::Call(function, nodes) => {
                let values = self.all(nodes)?;
                functions::call(*function, &values, &mut self.meter)
            }
            Kind::Regex(function, nodes, regex) => {
                let values = self.all(nodes)?;
                functions::search(*function, &values, regex, &mut self.meter)
            }
            Kind::Loop(lap) => self.lap(lap),
            Kind::Bind(bind) => self.bind(bind),
            Kind::OptionalMap(bind, wrap) => self.optional_map(bind, *wrap),
        }
    }

    /// Charges to another account from now on; the one before.
    pub(crate) fn charge_to(&mut self, meter: Meter) -> Meter {
        std::mem::replace(&mut self.meter, meter)
    }

    fn variable(&mut self) -> Evaluated<'a> {
        self.meter.spend(1)?;
        Ok(Value::Device(self.device))
    }

    fn all(&mut self, nodes: &'a [Node]) -> Result<Vec<Value<'a>>, EvalError> {
        nodes.iter().map(|node| self.eval(node)).collect()
    }

    pub(crate) fn set(&mut self, slot: usize, content: Slot<'a>) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = content;
        }
    }

    fn slot(&mut self, slot: usize) -> Evaluated<'a> {
        self.meter.spend(1)?;
        let pending = match self.slots.get(slot) {
            Some(Slot::Known(value)) => return value.clone(),
            Some(Slot::Pending(node)) => *node,
            Some(Slot::Empty) | None => return Err(EvalError::Value("unset variable".to_owned())),
        };
        let value = self.eval(pending);
        self.set(slot, Slot::Known(value.clone()));
        value
    }

    fn select(&mut self, select: &'a Select) -> Evaluated<'a> {
        let operand = self.eval(&select.operand)?;
        if select.access != Access::Test {
            self.meter.spend(1)?;
        }
        access::field(&operand, &select.field, select.access, &mut self.meter)
    }

    fn index(&mut self, index: &'a Index) -> Evaluated<'a> {
        let operand = self.eval(&index.operand)?;
        // Of an empty optional nothing is looked up, not even evaluated.
        if matches!(operand, Value::Optional(None)) {
            return Ok(operand);
        }
        let key = self.eval(&index.key)?;
        self.meter.spend(1)?;
        access::index(&operand, &key, index.optional, &mut self.meter)
    }

    fn list(&mut self, elements: &'a [Element]) -> Evaluated<'a> {
        self.meter.spend(10)?;
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.eval(&element.value)?;
            values.extend(present(value, element.optional)?);
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [Entry]) -> Evaluated<'a> {
        self.meter.spend(30)?;
        let mut pairs: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            if matches!(key, Value::Semver(_) | Value::Bytes(_)) {
                return Err(EvalError::Value(format!(
                    "hash of unhashable type {}",
                    key.type_name()
                )));
            }
            if let Some(value) = present(value, entry.optional)? {
                for (place, (known, _)) in pairs.iter().enumerate() {
                    if known.type_name() == key.type_name() && same(known, &key, &mut self.meter)? {
                        pairs.remove(place);
                        break;
                    }
                }
                pairs.push((key, value));
            }
        }
        Ok(Value::Map(Rc::new(Entries::new(pairs))))
    }

    /// `&&` (decided by false) and `||` (decided by true): an error counts only if no term
    /// decides.
    fn logical(&mut self, terms: &'a [Node], decides: bool) -> Evaluated<'a> {
        let mut outcome = Ok(Value::Bool(!decides));
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Err(error) if error.is_final() => return Err(error),
                other => outcome = outcome.and_then(|so_far| as_bool(other?).map(|_| so_far)),
            }
        }
        outcome
    }

    fn conditional(&mut self, [condition, then, otherwise]: &'a [Node; 3]) -> Evaluated<'a> {
        let condition = self.eval(condition)?;
        if as_bool(condition)? { self.eval(then) } else { self.eval(otherwise) }
    }

    fn optional_or(&mut self, [first, second]: &'a [Node; 2], unwrap: bool) -> Evaluated<'a> {
        match self.eval(first)? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            Value::Optional(None) => self.eval(second),
            // Whatever else came out of a dyn passes, as in cel-go.
            other => Ok(other),
        }
    }

    fn bind(&mut self, bind: &'a Bind) -> Evaluated<'a> {
        self.set(bind.slot, Slot::Pending(&bind.value));
        self.eval(&bind.body)
    }

    fn optional_map(&mut self, bind: &'a Bind, wrap: Wrap) -> Evaluated<'a> {
        let value = match self.eval(&bind.value)? {
            Value::Optional(Some(value)) => (*value).clone(),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            _ => return Err(EvalError::NoSuchOverload),
        };
        self.set(bind.slot, Slot::Known(Ok(value)));
        let mapped = self.eval(&bind.body)?;
        Ok(if wrap == Wrap::Optional { Value::some(mapped) } else { mapped })
    }
}

fn as_bool(value: Value<'_>) -> Result<bool, EvalError> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// The value of an element, or nothing for an empty optional one.
fn present(value: Value<'_>, optional: bool) -> Result<Option<Value<'_>>, EvalError> {
    match (optional, value) {
        (false, value) => Ok(Some(value)),
        (true, Value::Optional(value)) => Ok(value.map(|value| (*value).clone())),
        (true, other) => Err(EvalError::Value(format!(
            "cannot use {} as an optional element",
            other.type_name()
        ))),
    }
}

pub(crate) fn literal_value(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(value) => Value::String(Shared::Borrowed(value)),
        Literal::Bytes(value) => Value::Bytes(Shared::Borrowed(value)),
        Literal::Quantity(value) => Value::quantity(*value),
        Literal::Semver(value) => Value::Semver(Shared::Borrowed(value)),
        Literal::Type(name) => Value::Type(name),
    }
}
