//! The way from a question to a report: every node is tried by the allocator, some nodes at a
//! time, those that don't fit are surveyed, equal ones are folded at once, so that memory
//! hardly grows with the cluster.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use gpu_dra_allocator::{AllocateError, Allocator, Outcome, Rules};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim};

use crate::advice::Adviser;
use crate::batches::Batches;
use crate::catalog::Catalog;
use crate::misses::Misses;
use crate::on_node::{self, Examples, Key};
use crate::question::{Question, full_name};
use crate::report::{NodeGroup, NodeOutcome, Report, Verdict};
use crate::slices::Slices;
use crate::{nodes, verdict};

/// Names of nodes given for a group.
const NAMES: usize = 3;
/// Devices tried on one node, about a second of work. Once a node needed more, the others get
/// less: a hostile claim must not take hours on thousands of nodes. A node on which that isn't
/// enough is not decided.
const MAX_STEPS: usize = 2_000_000;
const AFTER: usize = 200;

/// Devices looked at at once, some 100 MB.
const AT_ONCE: usize = 8_000;

/// The objects of a cluster that have a say.
#[derive(Debug, Clone, Copy)]
pub struct Cluster<'a> {
    /// All slices.
    pub slices: &'a Slices,
    /// All classes.
    pub classes: &'a [DeviceClass],
    /// All claims; those that are allocated take devices away.
    pub claims: &'a [ResourceClaim],
    /// All nodes.
    pub nodes: &'a [Node],
    /// Whether namespaces may use adminAccess, of those that are known; None: it isn't judged.
    pub admin_access: Option<&'a BTreeMap<String, bool>>,
}

/// Answers questions about one cluster, one after the other.
#[derive(Debug)]
pub struct Explainer<'a> {
    cluster: Cluster<'a>,
    batches: Batches<'a>,
    catalog: Rc<Catalog<'a>>,
    /// What earlier questions were given, by claim.
    taken: HashMap<String, AllocationResult>,
    at_once: usize,
    max_steps: usize,
    rules: Rules,
}

/// Nodes of which the same is to be said.
pub(crate) struct Group {
    pub(crate) key: Key,
    pub(crate) examples: Examples,
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
    pub(crate) error: Option<AllocateError>,
}

/// What the nodes came to.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) groups: Vec<Group>,
    places: HashMap<Key, usize>,
    /// The first node that fits, with what it gives.
    pub(crate) fit: Option<(String, Vec<AllocationResult>)>,
}

impl<'a> Explainer<'a> {
    /// For a cluster as it is.
    #[must_use]
    pub fn new(cluster: Cluster<'a>) -> Self {
        Self {
            cluster,
            batches: Batches::new(cluster.slices, cluster.claims),
            catalog: Rc::new(Catalog::of(cluster.slices)),
            taken: HashMap::new(),
            at_once: AT_ONCE,
            max_steps: MAX_STEPS,
            rules: Rules::default(),
        }
    }

    /// As the scheduler of that version decides.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Tries so many devices on one node at most.
    #[must_use]
    pub fn with_max_steps(mut self, steps: usize) -> Self {
        self.max_steps = steps;
        self
    }

    /// Looks at so many devices at once, or at one node where it has more: fewer take less
    /// memory. It changes no answer.
    #[must_use]
    pub fn with_devices_at_once(mut self, devices: usize) -> Self {
        self.at_once = devices;
        self
    }

    /// Answers; `progress` is told after each node how many are done.
    pub fn explain(&self, question: &Question, progress: &mut dyn FnMut(usize)) -> Report {
        self.answer(question, progress).0
    }

    /// As [`Self::explain`], and counts what the first node that fits would give as taken, for
    /// questions that come after.
    pub fn explain_and_take(
        &mut self,
        question: &Question,
        progress: &mut dyn FnMut(usize),
    ) -> Report {
        let mut question = question.clone();
        for claim in &mut question.claims {
            if let Some(taken) = self.taken.get(&full_name(&claim.metadata)) {
                claim.status.get_or_insert_default().allocation = Some(taken.clone());
            }
        }
        let (report, findings) = self.answer(&question, progress);
        if let Some((_, results)) = findings.fit {
            let open = question.claims.iter().filter(|claim| !Question::is_allocated(claim));
            let names = open.map(|claim| full_name(&claim.metadata));
            self.taken.extend(names.zip(results));
        }
        report
    }

    fn answer(&self, question: &Question, progress: &mut dyn FnMut(usize)) -> (Report, Findings) {
        let open: Vec<&ResourceClaim> =
            question.claims.iter().filter(|claim| !Question::is_allocated(claim)).collect();
        let names: Vec<String> = open.iter().map(|claim| full_name(&claim.metadata)).collect();
        let mut adviser = Adviser::new(self.cluster, Rc::clone(&self.catalog), question);
        let mut misses = Misses::default();
        let mut findings = Findings::default();
        if question.missing.is_empty() && !adviser.is_never_made() && !open.is_empty() {
            findings = self.all_nodes(question, &open, &mut adviser, &mut misses, progress);
        }
        let (verdict, sentence) = verdict::of(question, &adviser, &findings, &open);
        let nodes: Vec<NodeGroup> =
            findings.groups.iter().map(|group| node_group(group, &names)).collect();
        adviser.classes();
        adviser.counts(&nodes);
        // Of what fits no one asks what else would have done.
        let fits =
            verdict == Verdict::Fits || verdict == Verdict::Rejected && findings.fit.is_some();
        let report = Report {
            subject: question.subject.clone(),
            verdict,
            sentence,
            advice: adviser.into_advice(fits),
            nearest: if fits {
                Vec::new()
            } else {
                misses.into_nearest(&names, self.cluster.claims)
            },
            considered: findings.groups.iter().map(|group| group.count).sum(),
            nodes,
        };
        (report, findings)
    }

    fn all_nodes(
        &self,
        question: &Question,
        open: &[&ResourceClaim],
        adviser: &mut Adviser<'_>,
        misses: &mut Misses,
        progress: &mut dyn FnMut(usize),
    ) -> Findings {
        let mut findings = Findings::default();
        let mut max_steps = self.max_steps;
        let mut number = 0;
        for batch in self.batches.of(self.cluster.nodes, self.at_once) {
            let mut allocator =
                Allocator::new(&batch.slices, self.cluster.classes, batch.allocated)
                    .with_rules(self.rules);
            self.taken.iter().for_each(|(claim, result)| allocator.assume(claim, result));
            for node in batch.nodes {
                let (key, examples, error) = match nodes::left_out(question, node) {
                    Some(why) => (on_node::left_out(why), Examples::default(), None),
                    None => {
                        allocator.set_max_steps(max_steps);
                        let outcome = allocator.allocate(node, open, &mut || "share".to_owned());
                        if on_node::is_too_long(&outcome) {
                            max_steps = self.max_steps / AFTER;
                        }
                        let survey = match &outcome {
                            Outcome::Allocated(_) => None,
                            Outcome::Refused(_) => allocator.survey(node, open).ok(),
                        };
                        if let Some(survey) = &survey {
                            adviser.see(survey, allocator.allocated());
                            misses.add(survey, allocator.allocated(), number);
                        }
                        let (key, examples) = on_node::examine(survey.as_ref(), &outcome);
                        let error = on_node::error(&outcome).cloned();
                        if let (Outcome::Allocated(results), None) = (outcome, &findings.fit) {
                            findings.fit = Some((name_of(node), results));
                        }
                        (key, examples, error)
                    }
                };
                findings.add(node, key, examples, error);
                number += 1;
                progress(number);
            }
        }
        findings.groups.sort_by_key(|group| (group.key.outcome, std::cmp::Reverse(group.count)));
        findings
    }
}

impl Findings {
    /// Adds a node to the group of those that are equal.
    fn add(&mut self, node: &Node, key: Key, examples: Examples, error: Option<AllocateError>) {
        let place = *self.places.entry(key.clone()).or_insert_with(|| {
            self.groups.push(Group {
                key,
                examples: examples.clone(),
                count: 0,
                names: Vec::new(),
                error,
            });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(place) {
            group.count += 1;
            if group.names.len() < NAMES {
                group.names.push(name_of(node));
            }
            group.examples.merge(examples);
        }
    }
}

fn name_of(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

fn node_group(group: &Group, claims: &[String]) -> NodeGroup {
    let requests = on_node::requests(&group.key, &group.examples, claims);
    NodeGroup {
        count: group.count,
        names: group.names.clone(),
        outcome: group.key.outcome,
        why: match (&group.key.note, group.key.outcome) {
            (Some(note), _) => note.clone(),
            (None, NodeOutcome::Fits) => "all claims can be allocated here".to_owned(),
            (None, _) => verdict::why(&requests, group.examples.pools.first()),
        },
        pools: group.examples.pools.iter().cloned().collect(),
        requests: if group.key.outcome == NodeOutcome::Fits { Vec::new() } else { requests },
    }
}
