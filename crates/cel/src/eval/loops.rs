//! Macros that loop: `all`, `exists`, `map` and their like, over lists and the keys of maps,
//! or with two variables over both.

use std::rc::Rc;

use super::{Evaluated, Evaluator, Slot, as_bool};
use crate::error::EvalError;
use crate::ir::{Collection, Loop, Node, Purpose};
use crate::value::{Entries, Value, same};

impl<'a> Evaluator<'a> {
    pub(super) fn lap(&mut self, lap: &'a Loop) -> Evaluated<'a> {
        let range = self.eval(&lap.range)?;
        let keys;
        let elements: &[Value<'a>] = match &range {
            Value::List(values) => values,
            other => {
                keys = other.keys().ok_or_else(|| {
                    EvalError::Value(format!("got '{}', expected iterable type", other.type_name()))
                })?;
                &keys
            }
        };
        self.meter.spend(elements.len())?;
        match &lap.purpose {
            Purpose::All(test) => self.quantified(&range, elements, lap, test, false),
            Purpose::Exists(test) => self.quantified(&range, elements, lap, test, true),
            Purpose::ExistsOne(test) => {
                let mut count = 0_usize;
                for (index, element) in elements.iter().enumerate() {
                    self.enter(lap, &range, index, element)?;
                    count += usize::from(as_bool(self.eval(test)?)?);
                }
                Ok(Value::Bool(count == 1))
            }
            Purpose::Collect { filter, item, into } => {
                let mut items = Vec::new();
                let mut entries = Vec::new();
                for (index, element) in elements.iter().enumerate() {
                    self.enter(lap, &range, index, element)?;
                    let wanted = match filter {
                        Some(filter) => as_bool(self.eval(filter)?)?,
                        None => true,
                    };
                    if !wanted {
                        continue;
                    }
                    let item = self.eval(item)?;
                    match into {
                        Collection::List => items.push(item),
                        Collection::Map => entries.push((self.slot(lap.slot)?, item)),
                        Collection::Entries => self.insert_all(&mut entries, &item)?,
                    }
                }
                Ok(match into {
                    Collection::List => Value::list(items),
                    _ => Value::Map(Rc::new(Entries::new(entries))),
                })
            }
        }
    }

    /// Sets the variables of a round: the element or key, or with two the index or key and
    /// what is there.
    fn enter(
        &mut self,
        lap: &Loop,
        range: &Value<'a>,
        index: usize,
        element: &Value<'a>,
    ) -> Result<(), EvalError> {
        let Some(second) = lap.second else {
            self.set(lap.slot, Slot::Known(Ok(element.clone())));
            return Ok(());
        };
        let (key, value) = match range {
            Value::List(_) => {
                (Value::Int(i64::try_from(index).unwrap_or(i64::MAX)), element.clone())
            }
            map => {
                let found = map.find(element, &mut self.meter)?;
                (element.clone(), found.ok_or(EvalError::NoSuchOverload)?)
            }
        };
        self.set(lap.slot, Slot::Known(Ok(key)));
        self.set(second, Slot::Known(Ok(value)));
        Ok(())
    }

    /// Adds the entries of a map to others; a key that is there already is an error.
    fn insert_all(
        &mut self,
        entries: &mut Vec<(Value<'a>, Value<'a>)>,
        map: &Value<'a>,
    ) -> Result<(), EvalError> {
        for key in map.keys().ok_or(EvalError::NoSuchOverload)? {
            for (known, _) in entries.iter() {
                if same(known, &key, &mut self.meter)? {
                    let reason = format!("insert failed: key {} already exists", key.type_name());
                    return Err(EvalError::Value(reason));
                }
            }
            let value = map.find(&key, &mut self.meter)?.ok_or(EvalError::NoSuchOverload)?;
            entries.push((key, value));
        }
        Ok(())
    }

    fn quantified(
        &mut self,
        range: &Value<'a>,
        elements: &[Value<'a>],
        lap: &Loop,
        test: &'a Node,
        decides: bool,
    ) -> Evaluated<'a> {
        let mut outcome = Ok(Value::Bool(!decides));
        for (index, element) in elements.iter().enumerate() {
            self.enter(lap, range, index, element)?;
            match self.eval(test) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Err(error) if error.is_final() => return Err(error),
                other => outcome = outcome.and_then(|so_far| as_bool(other?).map(|_| so_far)),
            }
        }
        outcome
    }
}
