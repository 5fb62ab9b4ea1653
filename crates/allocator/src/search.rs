//! The search: claims in order, their requests in order, devices in order, depth first, the
//! first full solution wins. Within a request combinations are tried, not permutations.
//!
//! Every change of the attempt's state has an undo, run in reverse when a branch fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gpu_dra_model::Quantity;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::capacity;
use crate::counters::{Account, Taken};
use crate::pools::Pools;
use crate::reason::{AllocateError, Fit, Outcome, Reason, Refusal, Rejection};
use crate::request::{Mode, Request};
use crate::{Allocator, Rules, result};

mod attempt;
mod give;
mod prepare;

pub(crate) use attempt::{Claim, Given, Wanted};
use attempt::{End, Frame, Place, Step, Undo};

/// `AllocationResultsMaxSize`: devices that one claim can hold.
pub(crate) const MAX_RESULTS: usize = 32;

pub(crate) struct Search<'s, 'a> {
    allocator: &'s mut Allocator<'a>,
    node: &'s Node,
    pools: Pools<'a>,
    claims: Vec<Claim<'s>>,
    problem: Option<AllocateError>,
    /// The claims of this attempt that have a device, by candidate.
    taken: BTreeMap<usize, BTreeSet<usize>>,
    /// What shares of this attempt consume, by candidate; an entry marks it as shared.
    consumed: BTreeMap<usize, BTreeMap<String, Quantity>>,
    /// What this attempt takes of counters.
    counters: HashMap<Account<'a>, Taken<'a>>,
    rejected: BTreeMap<(Place, usize), Reason>,
    share_id: &'s mut dyn FnMut() -> String,
    steps: usize,
}

impl<'s, 'a: 's> Search<'s, 'a> {
    pub(crate) fn new(
        allocator: &'s mut Allocator<'a>,
        node: &'s Node,
        claims: &[&'s ResourceClaim],
        pools: Pools<'a>,
        share_id: &'s mut dyn FnMut() -> String,
    ) -> Self {
        let mut search = Self {
            allocator,
            node,
            pools,
            claims: Vec::new(),
            problem: None,
            taken: BTreeMap::new(),
            consumed: BTreeMap::new(),
            counters: HashMap::new(),
            rejected: BTreeMap::new(),
            share_id,
            steps: 0,
        };
        search.problem = claims.iter().try_for_each(|claim| search.prepare(claim)).err();
        search
    }

    /// Runs the search to its end.
    pub(crate) fn run(mut self) -> Outcome {
        let solved = match self.problem.take() {
            Some(error) => Err(error),
            None => self.solve(),
        };
        match solved {
            Ok(End::Solved) => Outcome::Allocated(result::build(
                &self.claims,
                &self.pools,
                self.node,
                self.allocator.slices.rules,
            )),
            Ok(_) => self.refused(None),
            Err(error) => self.refused(Some(error)),
        }
    }

    /// Leaves what was read of the node for a survey, which often follows.
    fn refused(self, error: Option<AllocateError>) -> Outcome {
        let refusal = self.refusal(error);
        self.allocator.last = Some((self.node.metadata.clone(), self.pools));
        Outcome::Refused(refusal)
    }

    fn refusal(&self, error: Option<AllocateError>) -> Refusal {
        let rejected = self.rejected.iter().filter_map(|((place, candidate), reason)| {
            let claim = self.claims.get(place.claim)?;
            let wanted = claim.requests.get(place.request)?.get(place.alternative)?;
            Some(Rejection {
                claim: place.claim,
                request: wanted.request.full_name(),
                device: self.pools.candidates.get(*candidate)?.id.clone(),
                reason: reason.clone(),
            })
        });
        let pools = self.pools.problems().cloned().collect();
        Refusal { error, pools, rejected: rejected.collect() }
    }

    fn reject(&mut self, place: Place, candidate: usize, reason: &Reason) {
        self.rejected.entry((place, candidate)).or_insert_with(|| reason.clone());
    }

    /// Without recursion: the depth is the number of devices that all claims of a pod ask
    /// for, which nothing bounds.
    fn solve(&mut self) -> Result<End, AllocateError> {
        let mut stack = Vec::new();
        let mut step = Step::Request { claim: 0, request: 0 };
        loop {
            step = match step {
                Step::Request { claim, request } => self.next_request(claim, request, &mut stack),
                Step::Device { place, index, from } => {
                    self.next_device(place, index, from, &mut stack)?
                }
                Step::Back(end) => match stack.pop() {
                    Some(frame) => self.back_to(frame, end, &mut stack),
                    None => return Ok(end),
                },
            };
        }
    }

    fn next_request(&self, claim: usize, request: usize, stack: &mut Vec<Frame>) -> Step {
        let Some(of_claim) = self.claims.get(claim) else {
            return Step::Back(End::Solved);
        };
        let Some(alternatives) = of_claim.requests.get(request) else {
            stack.push(Frame::Claim);
            return Step::Request { claim: claim + 1, request: 0 };
        };
        let place = Place { claim, request, alternative: 0 };
        if alternatives.first().is_some_and(|wanted| wanted.request.sub.is_some()) {
            stack.push(Frame::Alternative { place, all_too_many: true });
        }
        Step::Device { place, index: 0, from: 0 }
    }

    fn back_to(&mut self, frame: Frame, end: End, stack: &mut Vec<Frame>) -> Step {
        match (frame, end) {
            // That a later claim would hold too many devices is no reason to give up here: an
            // alternative chosen before may leave it one that needs fewer.
            (Frame::Claim, End::TooMany) => Step::Back(End::Nothing),
            (Frame::Claim, end) => Step::Back(end),
            // firstAvailable: the first alternative with which the rest succeeds.
            (Frame::Alternative { place, .. }, End::Solved) => {
                self.choose(place);
                Step::Back(End::Solved)
            }
            (Frame::Alternative { mut place, mut all_too_many }, end) => {
                all_too_many &= end == End::TooMany;
                place.alternative += 1;
                if self.wanted(place).is_none() {
                    return Step::Back(if all_too_many { End::TooMany } else { End::Nothing });
                }
                stack.push(Frame::Alternative { place, all_too_many });
                Step::Device { place, index: 0, from: 0 }
            }
            (Frame::Device { .. }, End::Solved) => Step::Back(End::Solved),
            (Frame::Device { place, index, candidate, undo }, end) => {
                self.take_back(place, candidate, undo);
                let all = self.wanted(place).is_some_and(|w| w.request.mode == Mode::All);
                if all || end == End::TooMany {
                    return Step::Back(end);
                }
                Step::Device { place, index, from: candidate + 1 }
            }
        }
    }

    fn choose(&mut self, place: Place) {
        let chosen = self.claims.get_mut(place.claim).and_then(|c| c.chosen.get_mut(place.request));
        if let Some(chosen) = chosen {
            *chosen = place.alternative;
        }
    }

    fn wanted(&self, place: Place) -> Option<&Wanted<'s>> {
        self.claims.get(place.claim)?.requests.get(place.request)?.get(place.alternative)
    }

    fn next_device(
        &mut self,
        place: Place,
        index: usize,
        from: usize,
        stack: &mut Vec<Frame>,
    ) -> Result<Step, AllocateError> {
        let Some(wanted) = self.wanted(place) else {
            return Ok(Step::Back(End::Nothing));
        };
        let (count, mode) = (wanted.count, wanted.request.mode);
        if mode == Mode::All && count == 0 {
            return Ok(Step::Back(End::Nothing));
        }
        if index >= count {
            return Ok(Step::Request { claim: place.claim, request: place.request + 1 });
        }
        let held = self.claims.get(place.claim).map_or(0, |claim| claim.given.len());
        if held + count - index > MAX_RESULTS {
            return Ok(Step::Back(End::TooMany));
        }
        let given = if mode == Mode::All {
            // Which devices is known; if one can't be had there is no solution.
            let candidate = self.wanted(place).and_then(|wanted| wanted.all.get(index)).copied();
            match candidate {
                Some(candidate) => self.give(place, candidate)?.map(|undo| (candidate, undo)),
                None => None,
            }
        } else {
            self.first_from(place, from)?
        };
        let Some((candidate, undo)) = given else {
            return Ok(Step::Back(End::Nothing));
        };
        stack.push(Frame::Device { place, index, candidate, undo });
        let from = if mode == Mode::All { 0 } else { candidate + 1 };
        Ok(Step::Device { place, index: index + 1, from })
    }

    /// Gives the first device that can be had, from candidate `from` on.
    fn first_from(
        &mut self,
        place: Place,
        from: usize,
    ) -> Result<Option<(usize, Undo)>, AllocateError> {
        for candidate in from..self.pools.candidates.len() {
            // To pass over what is known costs next to nothing, and isn't counted.
            if self.is_unselected(place, candidate) {
                continue;
            }
            self.steps += 1;
            if self.steps > self.allocator.max_steps {
                return Err(AllocateError::TooLong { steps: self.allocator.max_steps });
            }
            if let Err(reason) = self.is_free(place, candidate) {
                self.reject(place, candidate, &reason);
                continue;
            }
            if !self.is_selected(place, candidate)? {
                continue;
            }
            self.is_reckonable(place, candidate)?;
            if let Err(reason) = self.has_capacity(place, candidate) {
                self.reject(place, candidate, &reason);
                continue;
            }
            if let Some(undo) = self.give(place, candidate)? {
                return Ok(Some((candidate, undo)));
            }
        }
        Ok(None)
    }

    /// Whether no one else has the device. An admin request only minds its own claim.
    fn is_free(&self, place: Place, candidate: usize) -> Fit {
        let Some(found) = self.pools.candidates.get(candidate) else {
            return Ok(());
        };
        let users = self.taken.get(&candidate);
        if self.wanted(place).is_some_and(|wanted| wanted.request.admin) {
            let by_claim = users.is_some_and(|users| users.contains(&place.claim));
            return if by_claim { Err(Box::new(Reason::Taken)) } else { Ok(()) };
        }
        if let Some(claim) = self.allocator.allocated.holder(&found.id) {
            return Err(Box::new(Reason::InUse { claim: claim.to_owned() }));
        }
        if users.is_some_and(|users| !users.is_empty()) {
            Err(Box::new(Reason::Taken))
        } else {
            Ok(())
        }
    }

    /// Whether class and request select the device; found out once.
    fn is_selected(&mut self, place: Place, candidate: usize) -> Result<bool, AllocateError> {
        let claim = self.claims.get_mut(place.claim);
        let (Some(claim), Some(found)) = (claim, self.pools.candidates.get(candidate)) else {
            return Ok(false);
        };
        let requests = &mut claim.requests;
        let wanted = requests.get_mut(place.request).and_then(|r| r.get_mut(place.alternative));
        let Some(wanted) = wanted else {
            return Ok(false);
        };
        if wanted.selected.is_empty() {
            wanted.selected = vec![None; self.pools.candidates.len()];
        }
        let known = wanted.selected.get_mut(candidate);
        if let Some(Some(selected)) = known {
            return Ok(*selected);
        }
        let (class, request) = (wanted.class, &wanted.request);
        let selectors = &mut self.allocator.selectors;
        let verdict = selectors.judge(found, class, request, self.node, &claim.name)?;
        if let Some(known) = known {
            *known = Some(verdict.is_ok());
        }
        if let Err(reason) = &verdict {
            self.reject(place, candidate, reason);
        }
        Ok(verdict.is_ok())
    }

    /// Whether the device is known not to be selected.
    fn is_unselected(&self, place: Place, candidate: usize) -> bool {
        let known = self.wanted(place).and_then(|wanted| wanted.selected.get(candidate));
        known.copied().flatten() == Some(false)
    }

    /// That what is asked of each capacity can be reckoned, where that is no mere misfit.
    fn is_reckonable(&self, place: Place, candidate: usize) -> Result<(), AllocateError> {
        let (Some(claim), Some(wanted), Some(found)) = (
            self.claims.get(place.claim),
            self.wanted(place),
            self.pools.candidates.get(candidate),
        ) else {
            return Ok(());
        };
        match capacity::unreckonable(&found.capacity, &wanted.request.capacity) {
            Some(capacity) if self.allocator.slices.rules != Rules::UpTo136 => {
                Err(AllocateError::Unreckonable {
                    claim: claim.name.clone(),
                    request: wanted.request.full_name(),
                    capacity: capacity.to_owned(),
                    device: Box::new(found.id.clone()),
                })
            }
            _ => Ok(()),
        }
    }

    fn has_capacity(&self, place: Place, candidate: usize) -> Fit {
        match (self.wanted(place), self.pools.candidates.get(candidate)) {
            (Some(wanted), Some(found)) => self.fits(&wanted.request, candidate, found),
            _ => Ok(()),
        }
    }

    fn fits(
        &self,
        request: &Request<'_>,
        candidate: usize,
        found: &crate::candidate::Candidate<'_>,
    ) -> Fit {
        capacity::check(&found.capacity, &request.capacity, |name| {
            let before = self.allocator.allocated.consumed(&found.id, name)?;
            let now = self.consumed.get(&candidate).and_then(|c| c.get(name)).copied();
            before.add(&now.unwrap_or(Quantity::ZERO)).ok()
        })
    }
}
