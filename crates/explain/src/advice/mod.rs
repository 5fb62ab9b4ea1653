//! What is wrong and what to do, in one line each. Of the words of classes and claims before
//! any device is looked at, and of what was met on the nodes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use gpu_dra_allocator::{
    AllocateError, Allocated, Obstacle, PoolProblem, Reason, Survey, Surveyed,
};
use gpu_dra_cel::Term;

use crate::catalog::Catalog;
use crate::explainer::Cluster;
use crate::question::Question;
use crate::report::Advice;

mod classes;
mod compile;
mod configs;
mod counts;
mod devices;
mod runtime;
mod values;
mod written;

/// Advice kept, and obstacles looked at: enough for any claim, bounded for any cluster.
const MOST: usize = 24;
const MOST_LOOKS: usize = 4_096;

/// How helpful a piece of advice is likely to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The API server or the node agent refuses it.
    Refused,
    /// It stops the pod.
    Error,
    /// It keeps devices off.
    Cause,
    /// Good to know.
    Note,
}

/// Collects advice.
pub(crate) struct Adviser<'c> {
    cluster: Cluster<'c>,
    catalog: Rc<Catalog<'c>>,
    claims: Vec<String>,
    collected: BTreeSet<(Weight, usize, Advice)>,
    /// How much was ever collected.
    count: usize,
    /// What is refused by whom, in a sentence; and whether by the API server.
    rejection: Option<String>,
    is_never_made: bool,
    of_class: BTreeMap<(usize, String), classes::OfClass>,
    /// Terms that were looked at, kept so that their addresses stay theirs.
    looked_at: HashSet<(usize, usize, String)>,
    kept: Vec<Rc<[Term]>>,
    /// Plain obstacles that were looked at.
    looks: usize,
}

impl<'c> Adviser<'c> {
    pub(crate) fn new(cluster: Cluster<'c>, catalog: Rc<Catalog<'c>>, question: &Question) -> Self {
        let claims = question.claims.iter().filter(|claim| !Question::is_allocated(claim));
        let mut adviser = Self {
            cluster,
            catalog,
            claims: claims.clone().map(|c| crate::question::full_name(&c.metadata)).collect(),
            collected: BTreeSet::new(),
            count: 0,
            rejection: None,
            is_never_made: false,
            of_class: BTreeMap::new(),
            looked_at: HashSet::new(),
            kept: Vec::new(),
            looks: 0,
        };
        for refused in &question.refused {
            adviser.refuse(refused.clone());
        }
        for missing in &question.missing {
            adviser.add(Weight::Error, missing.clone());
        }
        for note in &question.notes {
            adviser.add(Weight::Note, note.clone());
        }
        for claim in claims {
            adviser.read(claim);
        }
        for claim in &question.claims {
            adviser.configs(claim, !Question::is_allocated(claim));
        }
        adviser
    }

    /// Keeps the most helpful, of equals the first.
    fn add(&mut self, weight: Weight, advice: Advice) {
        if self.collected.iter().any(|(_, _, known)| *known == advice) {
            return;
        }
        self.collected.insert((weight, self.count, advice));
        self.count += 1;
        if self.collected.len() > MOST {
            self.collected.pop_last();
        }
    }

    /// Something that the API server refuses.
    fn refuse(&mut self, advice: Advice) {
        self.is_never_made = true;
        self.refuse_by("the API server", advice);
    }

    fn refuse_by(&mut self, who: &str, advice: Advice) {
        let Advice { about, problem, .. } = &advice;
        self.rejection.get_or_insert_with(|| format!("{who} refuses {about}: {problem}"));
        self.add(Weight::Refused, advice);
    }

    /// Whether the scheduler never gets to see it.
    pub(crate) fn is_never_made(&self) -> bool {
        self.is_never_made
    }

    /// What is refused by whom, and why.
    pub(crate) fn rejection(&self) -> Option<&str> {
        self.rejection.as_deref()
    }

    /// The advice, most helpful first; only notes on what fits, and what is refused.
    pub(crate) fn into_advice(self, fits: bool) -> Vec<Advice> {
        let helps = |weight: &Weight| !fits || matches!(weight, Weight::Note | Weight::Refused);
        let collected = self.collected.into_iter().filter(|(weight, ..)| helps(weight));
        collected.map(|(_, _, advice)| advice).collect()
    }

    /// Looks at a node.
    pub(crate) fn see(&mut self, survey: &Survey<'_>, allocated: &Allocated) {
        for problem in &survey.pools {
            self.pool(problem);
        }
        for error in &survey.errors {
            self.error(error);
        }
        for request in &survey.requests {
            self.class_of(request);
            for candidate in &request.devices {
                for obstacle in &candidate.obstacles {
                    self.obstacle(request, candidate, obstacle, allocated);
                }
            }
        }
    }

    fn obstacle(
        &mut self,
        request: &Surveyed<'_>,
        candidate: &gpu_dra_allocator::Candidate<'_>,
        obstacle: &Obstacle,
        allocated: &Allocated,
    ) {
        let claim = self.claims.get(request.claim).cloned().unwrap_or_default();
        let of_request = || format!("claim {claim}, request {}", request.request);
        match &obstacle.reason {
            // Of classes that take none it is told at the end.
            Reason::ClassSelector { .. } | Reason::OtherNode | Reason::Taken => {}
            Reason::Selector { index } => {
                if self.is_new(&obstacle.terms, request) {
                    let about = format!("{}, selector #{index}", of_request());
                    self.values(&about, obstacle.terms.iter());
                }
            }
            Reason::SelectorError { error } => {
                if let AllocateError::Evaluate { of, index, error, .. } = &**error
                    && self.is_new(&obstacle.terms, request)
                {
                    let about = if of.starts_with("class") {
                        format!("{of}, selector #{index}")
                    } else {
                        format!("{}, selector #{index}", of_request())
                    };
                    self.runtime(&about, error, &obstacle.terms, candidate);
                }
            }
            reason => {
                self.looks += 1;
                if self.looks < MOST_LOOKS {
                    self.device(&of_request(), request, candidate, reason, allocated);
                }
            }
        }
    }

    /// Whether these terms weren't looked at for this request. The allocator gives the same
    /// ones to all devices that are alike.
    fn is_new(&mut self, terms: &Rc<[Term]>, request: &Surveyed<'_>) -> bool {
        if self.kept.len() >= MOST_LOOKS {
            return false;
        }
        let address = Rc::as_ptr(terms).cast::<()>() as usize;
        let key = (address, request.claim, request.request.clone());
        let is_new = self.looked_at.insert(key);
        if is_new {
            self.kept.push(Rc::clone(terms));
        }
        is_new
    }

    fn pool(&mut self, problem: &PoolProblem) {
        let (about, fix) = match problem {
            PoolProblem::Incomplete { pool, .. } => (
                pool,
                "wait if the driver is just publishing; else restart the driver on that node: \
                 nothing of a pool is used before all its slices are there",
            ),
            PoolProblem::Invalid { pool, .. } => {
                (pool, "its driver must publish slices that agree with each other")
            }
        };
        let about = format!("pool {about}");
        self.add(Weight::Cause, Advice::new(about, problem.to_string(), fix.to_owned()));
    }

    fn error(&mut self, error: &AllocateError) {
        if let AllocateError::NoClass { claim, request, class } = error {
            self.no_class(&format!("claim {claim}, request {request}"), class);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::Slices;

    #[test]
    fn what_is_more_helpful_takes_the_place_of_what_is_less() {
        let slices = Slices::default();
        let cluster =
            Cluster { slices: &slices, classes: &[], claims: &[], nodes: &[], admin_access: None };
        let catalog = Rc::new(Catalog::of(&slices));
        let mut adviser = Adviser::new(cluster, catalog, &Question::default());
        let advice = |text: String| Advice::new("a pod", text, None);
        for number in 0..MOST + 2 {
            adviser.add(Weight::Note, advice(format!("note {number}")));
        }
        adviser.add(Weight::Error, advice("an error".to_owned()));
        adviser.add(Weight::Error, advice("an error".to_owned()));
        adviser.add(Weight::Cause, advice("a cause".to_owned()));
        let kept = adviser.into_advice(false);
        let problems: Vec<&str> = kept.iter().map(|advice| advice.problem.as_str()).collect();
        assert_eq!(problems.len(), MOST);
        assert_eq!(problems[..3], ["an error", "a cause", "note 0"]);
        assert_eq!(problems[MOST - 1], format!("note {}", MOST - 3));
    }
}
