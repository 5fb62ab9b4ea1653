//! Expressions that fail on a device: what they read and isn't there, and values of types
//! that can't be compared. Such a failure stops the pod on all nodes.

use std::rc::Rc;

use gpu_dra_allocator::Candidate;
use gpu_dra_cel::{Comparison, EvalError, Field, Shown, Term};

use super::{Adviser, Weight};
use crate::catalog::{Published, string};
use crate::report::Advice;
use crate::words;

impl Adviser<'_> {
    pub(super) fn runtime(
        &mut self,
        about: &str,
        error: &EvalError,
        terms: &[Term],
        candidate: &Candidate<'_>,
    ) {
        let failed = terms.iter().filter(|term| term.error.is_some());
        let comparisons: Vec<&Comparison> = failed.flat_map(|term| &term.comparisons).collect();
        match error {
            EvalError::NoSuchKey(name) => {
                let lacking = comparisons.iter().find(|comparison| {
                    matches!(&comparison.seen, Err(EvalError::NoSuchKey(key)) if key == name)
                });
                let field = lacking.and_then(|comparison| comparison.field.clone());
                match field {
                    Some(Field::Attribute { domain, name }) => {
                        self.no_attribute(about, &domain, &name, lacking.copied(), candidate);
                    }
                    Some(Field::Capacity { domain, name }) => {
                        self.no_such_capacity(about, &domain, &name, candidate);
                    }
                    _ => self.failed(about, error, candidate),
                }
            }
            EvalError::NoSuchOverload => {
                let mismatch = comparisons.iter().find_map(|comparison| mismatch(comparison));
                match mismatch {
                    Some((problem, fix)) => {
                        self.add(Weight::Error, Advice::new(about, problem, fix));
                    }
                    None => self.failed(about, error, candidate),
                }
            }
            EvalError::Attribute { .. } => {
                let problem = format!(
                    "{} publishes a value that no selector can read: {error}",
                    candidate.id
                );
                let fix = "its driver must publish versions as semver, and no lists".to_owned();
                self.add(Weight::Error, Advice::new(about, problem, fix));
            }
            EvalError::TooMuchWork => {
                let problem = format!("{error}; first on {}", candidate.id);
                let fix = "write it simpler: the scheduler has to do that work for every device";
                self.add(Weight::Error, Advice::new(about, problem, fix.to_owned()));
            }
            _ => self.failed(about, error, candidate),
        }
    }

    fn failed(&mut self, about: &str, error: &EvalError, candidate: &Candidate<'_>) {
        let problem = format!("fails on {}: {error}", candidate.id);
        let fix = "guard it: `.?name.orValue(...)` for what may be missing".to_owned();
        self.add(Weight::Error, Advice::new(about, problem, fix));
    }

    fn no_attribute(
        &mut self,
        about: &str,
        domain: &str,
        name: &str,
        comparison: Option<&Comparison>,
        candidate: &Candidate<'_>,
    ) {
        let catalog = Rc::clone(&self.catalog);
        let (problem, fix) = match catalog.attribute(domain, name) {
            Some(published) => self.only_others_have(domain, name, published, candidate),
            None => match self.as_capacity(domain, name, comparison) {
                Some(advice) => advice,
                None => self.nobody_has(about, domain, name, candidate),
            },
        };
        self.add(Weight::Error, Advice::new(about, problem, fix));
    }

    /// An attribute that other devices have.
    fn only_others_have(
        &self,
        domain: &str,
        name: &str,
        published: &Published<'_>,
        candidate: &Candidate<'_>,
    ) -> (String, Option<String>) {
        let (device, driver) = (&candidate.id.device, &candidate.id.driver);
        let is_a_driver = self.catalog.drivers().contains(&domain);
        if driver != domain && is_a_driver {
            let problem = format!(
                "reads {name} of every driver's devices; {device} of driver {driver} hasn't it, \
                 which stops every pod of the class"
            );
            return (problem, Some(format!("put device.driver == '{domain}' && before it")));
        }
        if published.types.iter().all(|kind| *kind == "mig") {
            let kind = string(candidate.device, "type").unwrap_or("device of another type");
            let fix = format!(
                "use class mig.nvidia.com, or test the type first: \
                 device.attributes['{domain}'].type == 'mig' && ..."
            );
            return (format!("only MIG devices have {name}; {device} is a {kind}"), Some(fix));
        }
        let fix =
            format!("read it with a default: device.attributes['{domain}'].?{name}.orValue(...)");
        (format!("{} hasn't attribute {name}", candidate.id), Some(fix))
    }

    /// A capacity that is read as if it were an attribute.
    fn as_capacity(
        &self,
        domain: &str,
        name: &str,
        comparison: Option<&Comparison>,
    ) -> Option<(String, Option<String>)> {
        let of = self.catalog.domain_of_capacity(name)?;
        let is_meant = name == "memory"
            || !self.catalog.has_domain(domain)
            || self.catalog.capacity(domain, name).is_some();
        if !is_meant {
            return None;
        }
        let wanted = comparison.map_or_else(|| "80Gi".to_owned(), as_quantity);
        let fix = format!("device.capacity['{of}'].{name}.compareTo(quantity('{wanted}')) >= 0");
        Some((format!("{name} is a capacity, not an attribute"), Some(fix)))
    }

    /// An attribute that no device has.
    fn nobody_has(
        &self,
        about: &str,
        domain: &str,
        name: &str,
        candidate: &Candidate<'_>,
    ) -> (String, Option<String>) {
        let catalog = &self.catalog;
        if !catalog.has_domain(domain) {
            let near = catalog.nearest_domain(domain);
            let fix = near.map(|near| format!("did you mean device.attributes['{near}'].{name}?"));
            return (format!("no device has attributes of domain {domain}"), fix);
        }
        let problem = format!("no attribute {name} in domain {domain} on any device");
        let elsewhere = catalog.domains_of(name).first().copied();
        let elsewhere = elsewhere.map(|other| format!("device.attributes['{other}'].{name}"));
        let near = catalog.nearest_name(domain, name).map(str::to_owned).or(elsewhere);
        if let Some(near) = near {
            return (problem, Some(format!("did you mean {near}?")));
        }
        if candidate.id.driver != domain && about.starts_with("class") {
            let fix = format!(
                "put device.driver == '{domain}' && before it; no device of that driver has \
                 {name} either"
            );
            return (problem, Some(fix));
        }
        (problem, self.attributes_of(domain))
    }

    fn attributes_of(&self, domain: &str) -> Option<String> {
        let some = ["productName", "architecture", "brand", "uuid", "type", "profile"];
        let known: Vec<String> = some
            .iter()
            .filter(|name| self.catalog.attribute(domain, name).is_some())
            .map(ToString::to_string)
            .collect();
        (!known.is_empty()).then(|| format!("there are {}", known.join(", ")))
    }

    fn no_such_capacity(
        &mut self,
        about: &str,
        domain: &str,
        name: &str,
        candidate: &Candidate<'_>,
    ) {
        let fix = match self.catalog.domain_of_capacity(name) {
            Some(other) if other != domain => {
                Some(format!("did you mean device.capacity['{other}'].{name}?"))
            }
            Some(_) => Some(format!("read it with a default: device.capacity['{domain}'].?{name}")),
            None if self.catalog.attribute(domain, name).is_some() => {
                Some(format!("{name} is an attribute: device.attributes['{domain}'].{name}"))
            }
            None => None,
        };
        let problem = format!("{} has no capacity {name} in domain {domain}", candidate.id);
        self.add(Weight::Error, Advice::new(about, problem, fix));
    }
}

/// Values that can't be compared, and how they can.
fn mismatch(comparison: &Comparison) -> Option<(String, String)> {
    let name = words::subject(comparison);
    let operator = comparison.operator;
    let wanted = comparison.wanted.as_ref()?;
    match (comparison.seen.as_ref().ok()?, wanted) {
        (Shown::Version(_), Shown::Text(text)) => {
            let strict = gpu_dra_cel::is_version(text);
            let version = if strict {
                format!("semver('{text}')")
            } else {
                format!("semver('{text}', true)")
            };
            let fix = match operator.to_string().as_str() {
                sign @ ("==" | "!=") => format!("{sign} {version}"),
                sign => format!(".compareTo({version}) {sign} 0"),
            };
            Some((
                format!("{name} is a version and can't be compared with a string"),
                format!("{} {fix}", comparison.subject),
            ))
        }
        (Shown::Quantity(_), _) => Some((
            format!("{name} is a quantity and can't be compared with {wanted}"),
            format!(
                "{}.compareTo(quantity('{}')) {operator} 0",
                comparison.subject,
                as_quantity(comparison)
            ),
        )),
        (Shown::Int(_), Shown::Text(text)) => Some((
            format!("{name} is a whole number and can't be compared with a string"),
            format!("{} {operator} {text}", comparison.subject),
        )),
        (Shown::Text(_), Shown::Int(number)) => Some((
            format!("{name} is a string and can't be compared with a number"),
            format!("{} {operator} '{number}'", comparison.subject),
        )),
        (Shown::Version(_), Shown::Int(number)) => Some((
            format!("{name} is a version and can't be compared with {number}"),
            format!("{}.compareTo(semver('{number}.0.0')) {operator} 0", comparison.subject),
        )),
        _ => None,
    }
}

/// What was asked for, as somebody who compares memory means it.
fn as_quantity(comparison: &Comparison) -> String {
    match &comparison.wanted {
        Some(Shown::Int(number)) if *number < 10_000 => format!("{number}Gi"),
        Some(Shown::Int(number)) => number.to_string(),
        Some(Shown::Quantity(quantity)) => quantity.to_string(),
        Some(Shown::Text(text)) => text.clone(),
        _ => "80Gi".to_owned(),
    }
}
