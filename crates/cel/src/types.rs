//! Types of the selector environment, and when one may stand where another is wanted: the
//! rules of cel-go's checker, on which the API server's verdict rests. `any` (the type of
//! an attribute) is as permissive as `dyn`, it only has a name of its own.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// A static type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Dyn,
    /// What an attribute is before it is read.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Quantity,
    Semver,
    /// No value of this type is made here; its overloads still count, as in cel-go.
    Duration,
    /// As above.
    Timestamp,
    Device,
    /// The type of a type, `type(x)` or the name `int`.
    OfTypes,
    List(Arc<Self>),
    Map(Arc<Self>, Arc<Self>),
    Optional(Arc<Self>),
    /// A type that is not known yet.
    Var(usize),
}

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    fn parameters(&self) -> [Option<&Arc<Self>>; 2] {
        match self {
            Self::List(a) | Self::Optional(a) => [Some(a), None],
            Self::Map(a, b) => [Some(a), Some(b)],
            _ => [None, None],
        }
    }

    /// A copy with each parameter replaced.
    fn map_parameters(&self, mut change: impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(a) => Self::list(change(a)),
            Self::Optional(a) => Self::optional(change(a)),
            Self::Map(a, b) => Self::map(change(a), change(b)),
            other => other.clone(),
        }
    }

    fn same_constructor(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What lies deeper than an error has room for is left out.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, 4)
    }
}

impl Type {
    fn show(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let below = depth.saturating_sub(1);
        let parts = |parts: &[&Self], f: &mut fmt::Formatter<'_>| {
            f.write_str("(")?;
            for (index, part) in parts.iter().enumerate() {
                f.write_str(if index > 0 { ", " } else { "" })?;
                part.show(f, below)?;
            }
            f.write_str(")")
        };
        match self {
            _ if depth == 0 => f.write_str("..."),
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Quantity => f.write_str("kubernetes.Quantity"),
            Self::Semver => f.write_str("kubernetes.Semver"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::Device => f.write_str("kubernetes.DRADevice"),
            Self::OfTypes => f.write_str("type"),
            Self::List(element) => {
                f.write_str("list")?;
                parts(&[element], f)
            }
            Self::Map(key, value) => {
                f.write_str("map")?;
                parts(&[key, value], f)
            }
            Self::Optional(value) => {
                f.write_str("optional_type")?;
                parts(&[value], f)
            }
            Self::Var(_) => f.write_str("dyn"),
        }
    }
}

/// The largest type of an expression, in parts: `{a: a}` doubles with each level, and is no
/// larger to write down.
const MAX_PARTS: usize = 500;
/// How many parts may be looked at while an expression is checked.
const MAX_STEPS: usize = 2_000_000;

/// What is known about the type variables so far.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    known: Vec<Option<Type>>,
    /// What was learned last, and what was known before.
    learned: Vec<(usize, Option<Type>)>,
    /// Parts that were looked at.
    steps: Cell<usize>,
}

impl Variables {
    pub(crate) fn fresh(&mut self) -> Type {
        self.known.push(None);
        Type::Var(self.known.len() - 1)
    }

    /// Whether types were so large that not all was looked at: nothing that was found counts.
    pub(crate) fn exhausted(&self) -> bool {
        self.steps.get() > MAX_STEPS
    }

    /// Counts a part; false if it can't be looked at.
    fn step(&self) -> bool {
        self.steps.set(self.steps.get().saturating_add(1));
        !self.exhausted()
    }

    /// Gives up if the type is too large.
    pub(crate) fn measure(&self, ty: &Type) {
        let mut waiting = vec![ty];
        let mut parts = 0;
        while let Some(part) = waiting.pop() {
            parts += 1;
            if parts > MAX_PARTS {
                return self.steps.set(MAX_STEPS.saturating_add(1));
            }
            match part {
                Type::Var(variable) => waiting.extend(self.find(*variable)),
                _ => waiting.extend(part.parameters().into_iter().flatten().map(Arc::as_ref)),
            }
        }
    }

    /// A copy of a signature's types with its own variables replaced by fresh ones.
    pub(crate) fn instantiate(&mut self, types: &[Type]) -> Vec<Type> {
        let mut fresh: Vec<(usize, Type)> = Vec::new();
        types.iter().map(|signature| self.instantiate_one(signature, &mut fresh)).collect()
    }

    fn instantiate_one(&mut self, signature: &Type, fresh: &mut Vec<(usize, Type)>) -> Type {
        let Type::Var(number) = signature else {
            return signature.map_parameters(|part| self.instantiate_one(part, fresh));
        };
        if let Some((_, variable)) = fresh.iter().find(|(known, _)| known == number) {
            return variable.clone();
        }
        let variable = self.fresh();
        fresh.push((*number, variable.clone()));
        variable
    }

    fn find(&self, variable: usize) -> Option<&Type> {
        self.known.get(variable).and_then(Option::as_ref)
    }

    /// With all that is known filled in.
    pub(crate) fn substitute(&self, of: &Type) -> Type {
        if !self.step() {
            return Type::Dyn;
        }
        match of {
            Type::Var(variable) => {
                self.find(*variable).map_or_else(|| of.clone(), |t| self.substitute(t))
            }
            _ => of.map_parameters(|part| self.substitute(part)),
        }
    }

    /// With all that is known filled in, and `dyn` for the rest.
    pub(crate) fn known(&self, of: &Type) -> Type {
        fn rest_is_dyn(of: &Type) -> Type {
            if matches!(of, Type::Var(_)) { Type::Dyn } else { of.map_parameters(rest_is_dyn) }
        }
        rest_is_dyn(&self.substitute(of))
    }

    /// Whether `given` may stand for `wanted`; learns from it when so.
    pub(crate) fn assignable(&mut self, given: &Type, wanted: &Type) -> bool {
        self.all_assignable(&[(given, wanted)])
    }

    /// [`Self::assignable`] for several pairs together; nothing is learned unless all fit.
    pub(crate) fn all_assignable(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        self.learned.clear();
        let fits = pairs.iter().all(|(given, wanted)| self.fits(given, wanted));
        while let Some((variable, before)) = self.learned.pop().filter(|_| !fits) {
            if let Some(slot) = self.known.get_mut(variable) {
                *slot = before;
            }
        }
        fits
    }

    fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Var(variable) = wanted {
            match self.stands_for(given, *variable) {
                Some(fits) => return fits,
                None if !matches!(given, Type::Var(_)) => return false,
                None => {}
            }
        }
        if let Type::Var(variable) = given {
            return self.stands_for(wanted, *variable).unwrap_or(false);
        }
        if given.is_dyn() || wanted.is_dyn() {
            return true;
        }
        match (given, wanted) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Optional(_)
                    | Type::Quantity
                    | Type::Semver
                    | Type::Device
                    | Type::Duration
                    | Type::Timestamp
            ),
            _ => {
                given.same_constructor(wanted)
                    && given.parameters().into_iter().zip(wanted.parameters()).all(|parts| {
                        match parts {
                            (Some(given), Some(wanted)) => self.fits(given, wanted),
                            _ => true,
                        }
                    })
            }
        }
    }

    /// Whether the variable may be this type; None where it has none yet and can't have
    /// this one, since it would contain itself.
    fn stands_for(&mut self, candidate: &Type, variable: usize) -> Option<bool> {
        if *candidate == Type::Var(variable) {
            return Some(true);
        }
        if let Some(known) = self.find(variable).cloned() {
            if *candidate == known {
                return Some(true);
            }
            if !self.fits(candidate, &known) {
                return Some(false);
            }
            let general = most_general(candidate, &known).clone();
            if !self.mentions(&general, variable) {
                self.set(variable, general);
            }
            return Some(true);
        }
        if self.mentions(candidate, variable) {
            return None;
        }
        self.set(variable, candidate.clone());
        Some(true)
    }

    fn set(&mut self, variable: usize, to: Type) {
        if let Some(slot) = self.known.get_mut(variable) {
            self.learned.push((variable, slot.replace(to)));
        }
    }

    fn mentions(&self, within: &Type, variable: usize) -> bool {
        if !self.step() {
            return false;
        }
        match within {
            Type::Var(number) if *number == variable => true,
            Type::Var(number) => self.find(*number).is_some_and(|t| self.mentions(t, variable)),
            _ => within.parameters().into_iter().flatten().any(|t| self.mentions(t, variable)),
        }
    }
}

/// The type that covers both of two that fit each other.
pub(crate) fn most_general<'a>(first: &'a Type, second: &'a Type) -> &'a Type {
    if less_specific(first, second) { first } else { second }
}

fn less_specific(first: &Type, second: &Type) -> bool {
    if first.is_dyn() || matches!(first, Type::Var(_)) {
        return true;
    }
    if second.is_dyn() || matches!(second, Type::Var(_)) {
        return false;
    }
    first.same_constructor(second)
        && first.parameters().into_iter().zip(second.parameters()).all(|parts| match parts {
            (Some(first), Some(second)) => less_specific(first, second),
            _ => true,
        })
}
