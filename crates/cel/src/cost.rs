//! The worst case of an evaluation in the API server's cost units, as cel-go's checker and
//! Kubernetes' libraries estimate it from the largest sizes that a device can have. The API
//! refuses selectors above its limit, and so does this crate, before anything is evaluated.

use crate::ir::{Access, Bind, Collection, Kind, Literal, Loop, Node, Purpose, Wrap};
use crate::types::{Type, Variables};

mod call;

use call::Call;

/// Nothing is known of a size: the largest.
const UNKNOWN: u64 = u64::MAX;

/// `ResourceSliceMaxAttributesAndCapacitiesPerDevice`.
const MAX_ENTRIES: u64 = 32;
/// `DeviceMaxDomainLength`, also the longest driver name.
const MAX_DOMAIN: u64 = 63;
/// `DeviceMaxIDLength`.
const MAX_ID: u64 = 32;
/// `DeviceAttributeMaxValueLength`.
const MAX_VALUE: u64 = 64;

/// Base costs of literals (cel-go's common/cost.go).
const LIST: u64 = 10;
const MAP: u64 = 30;

/// Which part of the device a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Elsewhere,
    Device,
    /// The maps of domains.
    Domains(Content),
    /// The map of one domain.
    Domain(Content),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Attributes,
    Capacities,
}

/// What is known of an expression.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    cost: u64,
    /// The largest size of the value: characters, elements, 1 for a scalar.
    size: u64,
    /// The smallest size of the value.
    least: u64,
    /// The largest size of a key, for maps.
    key: u64,
    /// The largest size of an element, or of the value of an entry.
    element: u64,
    place: Place,
    /// The sizes are known because it is a part of the device.
    of_device: bool,
}

/// The worst-case cost.
pub(crate) fn estimate(node: &Node, types: &Variables, slots: usize) -> u64 {
    Estimator { types, slots: vec![sized(1, UNKNOWN); slots] }.of(node).cost
}

struct Estimator<'a> {
    types: &'a Variables,
    slots: Vec<Estimate>,
}

fn factor(size: u64, tenths: u64) -> u64 {
    if size == UNKNOWN { UNKNOWN } else { size.saturating_mul(tenths).div_ceil(10) }
}

/// A quarter, rounded up: what RE2 patterns are charged.
fn quarter(size: u64) -> u64 {
    if size == UNKNOWN { UNKNOWN } else { size.div_ceil(4) }
}

fn sum(costs: impl IntoIterator<Item = u64>) -> u64 {
    costs.into_iter().fold(0, u64::saturating_add)
}

impl Estimator<'_> {
    fn of(&mut self, node: &Node) -> Estimate {
        let ty = self.types.substitute(&node.ty);
        let typed = |cost: u64| sized(cost, type_size(&ty));
        match &node.kind {
            Kind::Literal(literal) => {
                let size = literal_size(literal);
                Estimate { size, least: if size == UNKNOWN { 0 } else { size }, ..typed(0) }
            }
            Kind::Parsed(_, length) => typed(factor(*length, 1)),
            Kind::Device => Estimate { size: 0, place: Place::Device, of_device: true, ..typed(1) },
            Kind::Slot(slot) => {
                let known = self.slots.get(*slot).copied().unwrap_or_else(|| typed(1));
                Estimate { cost: 1, ..known }
            }
            Kind::Select(select) => self.select(&select.operand, &select.field, select.access, &ty),
            Kind::Index(index) => {
                let operand = self.of(&index.operand);
                let key = self.of(&index.key);
                let inner = if index.optional {
                    typed(0)
                } else {
                    entry_of(operand, operand.element.min(type_size(&ty)))
                };
                Estimate { cost: sum([operand.cost, key.cost, 1]), ..inner }
            }
            Kind::List(elements) => {
                let parts: Vec<Estimate> = elements.iter().map(|e| self.of(&e.value)).collect();
                Estimate {
                    cost: sum(parts.iter().map(|part| part.cost)).saturating_add(LIST),
                    size: elements.len() as u64,
                    element: parts.iter().map(|part| part.size).max().unwrap_or(0),
                    ..typed(0)
                }
            }
            Kind::Map(entries) => {
                let mut cost = MAP;
                let (mut largest_key, mut element) = (0, 0);
                for entry in entries {
                    let (key, value) = (self.of(&entry.key), self.of(&entry.value));
                    cost = sum([cost, key.cost, value.cost]);
                    largest_key = largest_key.max(key.size);
                    element = element.max(value.size);
                }
                Estimate { size: entries.len() as u64, key: largest_key, element, ..typed(cost) }
            }
            Kind::And(terms) | Kind::Or(terms) => {
                let costs: Vec<u64> = terms.iter().map(|term| self.of(term).cost).collect();
                typed(sum(costs))
            }
            Kind::Conditional(parts) => {
                let [condition, then, otherwise] = parts.each_ref().map(|part| self.of(part));
                Estimate {
                    cost: condition.cost.saturating_add(then.cost.max(otherwise.cost)),
                    size: then.size.max(otherwise.size),
                    element: then.element.max(otherwise.element),
                    ..typed(0)
                }
            }
            Kind::OptionalOr(parts) | Kind::OptionalOrValue(parts) => {
                let [first, second] = parts.each_ref().map(|part| self.of(part));
                typed(sum([first.cost, second.cost, 1]))
            }
            Kind::Call(function, nodes) | Kind::Regex(function, nodes, _) => {
                let parts: Vec<Estimate> = nodes.iter().map(|node| self.of(node)).collect();
                let types: Vec<Type> =
                    nodes.iter().map(|node| self.types.substitute(&node.ty)).collect();
                let numbers: Vec<Option<u64>> = nodes.iter().map(literal_number).collect();
                let call =
                    Call { function: *function, parts: &parts, types: &types, numbers: &numbers };
                let whole = call.estimate(typed(1));
                let arguments = sum(parts.iter().map(|part| part.cost));
                Estimate { cost: whole.cost.saturating_add(arguments), ..whole }
            }
            Kind::Loop(lap) => self.lap(lap, typed(0)),
            Kind::Bind(bind) => self.bind(bind),
            Kind::OptionalMap(bind, wrap) => {
                let target = self.of(&bind.value);
                let inner = match self.types.substitute(&bind.value.ty) {
                    Type::Optional(inner) => type_size(&inner),
                    _ => UNKNOWN,
                };
                self.set(bind.slot, sized(1, inner));
                let body = self.of(&bind.body);
                // Twice the target, once to ask and once to take the value, each for 1 more;
                // the value is bound by looping over an empty list.
                let wrapping = u64::from(*wrap == Wrap::Optional);
                let twice = target.cost.saturating_add(1).saturating_mul(2);
                typed(sum([twice, LIST, body.cost, wrapping]))
            }
        }
    }

    fn select(&mut self, operand: &Node, field: &str, access: Access, ty: &Type) -> Estimate {
        let operand_type = self.types.substitute(&operand.ty);
        let operand = self.of(operand);
        let own = match (access, operand_type) {
            (Access::Test, _) => 0,
            (Access::Strict, Type::Map(..) | Type::Device) | (Access::Optional, _) => 1,
            (Access::Strict, _) => 0,
        };
        let inner = match (access, operand.place, field) {
            // cel-go finds no size for a domain that is selected as a field.
            (Access::Optional, ..) | (_, Place::Domains(_), _) => sized(0, type_size(ty)),
            (_, Place::Device, "attributes") => domains(Content::Attributes),
            (_, Place::Device, "capacity") => domains(Content::Capacities),
            (_, Place::Device, "driver") => Estimate { of_device: true, ..sized(0, MAX_DOMAIN) },
            _ => entry_of(operand, type_size(ty)),
        };
        let size = if access == Access::Test { 1 } else { inner.size };
        Estimate { cost: operand.cost.saturating_add(own), size, ..inner }
    }

    fn set(&mut self, slot: usize, estimate: Estimate) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = estimate;
        }
    }

    fn bind(&mut self, bind: &Bind) -> Estimate {
        let value = self.of(&bind.value);
        self.set(bind.slot, value);
        let body = self.of(&bind.body);
        // cel-go has forgotten the variable's size by then.
        let forgotten =
            matches!(bind.body.kind, Kind::Slot(slot) if slot == bind.slot) && !value.of_device;
        let body = if forgotten {
            sized(body.cost, type_size(&self.types.substitute(&bind.body.ty)))
        } else {
            body
        };
        // The macro loops over an empty list literal.
        Estimate { cost: sum([LIST, value.cost, body.cost]), ..body }
    }

    /// What the macro expands to: its start, its result, and per element its condition and
    /// its step around the user's expression.
    fn lap(&mut self, lap: &Loop, whole: Estimate) -> Estimate {
        let range = self.of(&lap.range);
        let over_keys = matches!(self.types.substitute(&lap.range.ty), Type::Map(..));
        let element = if over_keys { range.key } else { range.element };
        match lap.second {
            None => self.set(lap.slot, sized(1, element)),
            Some(second) => {
                let key = match range.place {
                    // cel-go takes the size of the value for that of the key here: its paths
                    // to both end up in the same memory.
                    Place::Domain(Content::Attributes) => MAX_VALUE,
                    Place::Domain(Content::Capacities) => 0,
                    _ if over_keys => range.key,
                    _ => 1,
                };
                self.set(lap.slot, sized(1, key));
                self.set(second, Estimate { cost: 1, ..entry_of(range, range.element) });
            }
        }
        let (fixed, each, whole) = match &lap.purpose {
            Purpose::All(test) => (1, self.of(test).cost.saturating_add(3), whole),
            Purpose::Exists(test) => (1, self.of(test).cost.saturating_add(4), whole),
            Purpose::ExistsOne(test) => (2, self.of(test).cost.saturating_add(2), whole),
            Purpose::Collect { filter, item, into } => {
                let filter = filter.as_ref().map_or(0, |filter| self.of(filter).cost);
                let item = self.of(item);
                let whole = Estimate { size: range.size, ..whole };
                match into {
                    Collection::List => {
                        let each = sum([filter, item.cost, LIST + 2]);
                        (LIST + 1, each, Estimate { element: item.size, ..whole })
                    }
                    Collection::Map => (MAP + 1, sum([filter, item.cost, 3]), whole),
                    Collection::Entries => (MAP + 1, sum([filter, item.cost, 2]), whole),
                }
            }
        };
        let cost = sum([range.cost, fixed, range.size.saturating_mul(each)]);
        Estimate { cost, ..whole }
    }
}

fn sized(cost: u64, size: u64) -> Estimate {
    let least = if size == 1 { 1 } else { 0 };
    Estimate {
        cost,
        size,
        least,
        key: UNKNOWN,
        element: UNKNOWN,
        place: Place::Elsewhere,
        of_device: false,
    }
}

fn domains(content: Content) -> Estimate {
    let place = Place::Domains(content);
    Estimate { key: MAX_DOMAIN, place, of_device: true, ..sized(0, MAX_ENTRIES) }
}

/// What an entry of this map or list is; `size` where the device doesn't say.
fn entry_of(container: Estimate, size: u64) -> Estimate {
    match container.place {
        Place::Domains(content) => {
            let place = Place::Domain(content);
            Estimate { key: MAX_ID, place, of_device: true, ..sized(0, MAX_ENTRIES) }
        }
        Place::Domain(Content::Attributes) => Estimate { of_device: true, ..sized(0, MAX_VALUE) },
        _ => sized(0, size),
    }
}

fn type_size(ty: &Type) -> u64 {
    match ty {
        Type::Bool | Type::Int | Type::Uint | Type::Double => 1,
        Type::Optional(of) => type_size(of),
        _ => UNKNOWN,
    }
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        Literal::Bool(_)
        | Literal::Int(_)
        | Literal::Uint(_)
        | Literal::Double(_)
        | Literal::Null => 1,
        Literal::Type(_) | Literal::Quantity(_) | Literal::Semver(_) => UNKNOWN,
    }
}

fn literal_number(node: &Node) -> Option<u64> {
    match node.kind {
        Kind::Literal(Literal::Int(number)) => u64::try_from(number).ok(),
        _ => None,
    }
}
