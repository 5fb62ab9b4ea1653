//! The search: claims in order, their requests in order, devices in order, depth first, the
//! first full solution wins. Within a request combinations are tried, not permutations.
//!
//! Every change of the attempt's state has an undo, run in reverse when a branch fails. The
//! depth of recursion is the number of devices asked for, which is bounded by the API.

use std::collections::{BTreeMap, BTreeSet};

use gpu_dra_model::Quantity;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::capacity;
use crate::counters::Account;
use crate::pools::Pools;
use crate::reason::{AllocateError, Fit, Outcome, Reason, Refusal, Rejection};
use crate::request::{Mode, Request};
use crate::{Allocator, result};

mod attempt;
mod give;
mod prepare;

pub(crate) use attempt::{Claim, Given, Wanted};
use attempt::{Place, Undo};

/// `AllocationResultsMaxSize`: devices that one claim can hold.
pub(crate) const MAX_RESULTS: usize = 32;
/// Devices tried before the search is given up, some seconds of work: the scheduler gives up
/// after 10 seconds.
const MAX_STEPS: usize = 10_000_000;

pub(crate) struct Search<'s, 'a> {
    allocator: &'s mut Allocator<'a>,
    node: &'s Node,
    pools: Pools<'s>,
    claims: Vec<Claim<'s>>,
    problem: Option<AllocateError>,
    /// The claims of this attempt that have a device, by candidate.
    taken: BTreeMap<usize, BTreeSet<usize>>,
    /// What shares of this attempt consume, by candidate; an entry marks it as shared.
    consumed: BTreeMap<usize, BTreeMap<String, Quantity>>,
    accounts: BTreeMap<usize, Account<'s>>,
    judged: BTreeMap<(Place, usize), Fit>,
    rejected: BTreeMap<(Place, usize), Reason>,
    share_id: &'s mut dyn FnMut() -> String,
    steps: usize,
}

/// How a branch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Solved,
    Nothing,
    /// A claim would hold too many devices: fewer in an earlier alternative may help.
    TooMany,
}

impl<'s, 'a: 's> Search<'s, 'a> {
    pub(crate) fn new(
        allocator: &'s mut Allocator<'a>,
        node: &'s Node,
        claims: &[&'s ResourceClaim],
        pools: Pools<'s>,
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
            accounts: BTreeMap::new(),
            judged: BTreeMap::new(),
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
            None => self.next_claim(0),
        };
        match solved {
            Ok(End::Solved) => {
                Outcome::Allocated(result::build(&self.claims, &self.pools, self.node))
            }
            Ok(_) => Outcome::Refused(self.refusal(None)),
            Err(error) => Outcome::Refused(self.refusal(Some(error))),
        }
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
        let pools = self.pools.pools.iter().filter_map(|pool| pool.problem.clone()).collect();
        Refusal { error, pools, rejected: rejected.collect() }
    }

    fn reject(&mut self, place: Place, candidate: usize, reason: &Reason) {
        self.rejected.entry((place, candidate)).or_insert_with(|| reason.clone());
    }

    fn next_claim(&mut self, claim: usize) -> Result<End, AllocateError> {
        if claim >= self.claims.len() {
            return Ok(End::Solved);
        }
        self.next_request(claim, 0)
    }

    fn next_request(&mut self, claim: usize, request: usize) -> Result<End, AllocateError> {
        let Some(alternatives) = self.claims.get(claim).and_then(|c| c.requests.get(request))
        else {
            // That a later claim would hold too many devices is no reason to give up here: an
            // alternative chosen before may leave it one that needs fewer.
            return Ok(match self.next_claim(claim + 1)? {
                End::TooMany => End::Nothing,
                end => end,
            });
        };
        let count = alternatives.len();
        let plain = alternatives.first().is_none_or(|wanted| wanted.request.sub.is_none());
        let place = |alternative| Place { claim, request, alternative };
        if plain {
            return self.next_device(place(0), 0, 0);
        }
        // firstAvailable: the first alternative with which the rest of the search succeeds.
        let mut all_too_many = true;
        for alternative in 0..count {
            match self.next_device(place(alternative), 0, 0)? {
                End::Solved => {
                    self.choose(place(alternative));
                    return Ok(End::Solved);
                }
                End::Nothing => all_too_many = false,
                End::TooMany => {}
            }
        }
        Ok(if all_too_many { End::TooMany } else { End::Nothing })
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

    /// Finds the `index`th device of a request, from candidate `from` on, and all that
    /// comes after it.
    fn next_device(
        &mut self,
        place: Place,
        index: usize,
        from: usize,
    ) -> Result<End, AllocateError> {
        let Some(wanted) = self.wanted(place) else {
            return Ok(End::Nothing);
        };
        let (count, mode) = (wanted.count, wanted.request.mode);
        if mode == Mode::All && count == 0 {
            return Ok(End::Nothing);
        }
        if index >= count {
            return self.next_request(place.claim, place.request + 1);
        }
        let held = self.claims.get(place.claim).map_or(0, |claim| claim.given.len());
        if held + count - index > MAX_RESULTS {
            return Ok(End::TooMany);
        }
        if mode == Mode::All {
            // Which devices is known; if one can't be had there is no solution.
            let candidate = self.wanted(place).and_then(|wanted| wanted.all.get(index)).copied();
            return match candidate {
                Some(candidate) => self.with_device(place, candidate, index, 0),
                None => Ok(End::Nothing),
            };
        }
        for candidate in from..self.pools.candidates.len() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(AllocateError::TooLong { steps: MAX_STEPS });
            }
            if let Err(reason) = self.is_free(place, candidate) {
                self.reject(place, candidate, &reason);
                continue;
            }
            if let Err(reason) = self.judge(place, candidate)? {
                self.reject(place, candidate, &reason);
                continue;
            }
            if let Err(reason) = self.has_capacity(place, candidate) {
                self.reject(place, candidate, &reason);
                continue;
            }
            match self.with_device(place, candidate, index, candidate + 1)? {
                End::Nothing => {}
                end => return Ok(end),
            }
        }
        Ok(End::Nothing)
    }

    /// Gives the device and goes on; takes it back if that leads nowhere.
    fn with_device(
        &mut self,
        place: Place,
        candidate: usize,
        index: usize,
        from: usize,
    ) -> Result<End, AllocateError> {
        let Some(undo) = self.give(place, candidate)? else {
            return Ok(End::Nothing);
        };
        let end = self.next_device(place, index + 1, from);
        if end != Ok(End::Solved) {
            self.take_back(place, candidate, undo);
        }
        end
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
    fn judge(&mut self, place: Place, candidate: usize) -> Result<Fit, AllocateError> {
        if let Some(known) = self.judged.get(&(place, candidate)) {
            return Ok(known.clone());
        }
        let verdict = match (self.claims.get(place.claim), self.pools.candidates.get(candidate)) {
            (Some(claim), Some(found)) => {
                let wanted =
                    claim.requests.get(place.request).and_then(|r| r.get(place.alternative));
                match wanted {
                    Some(wanted) => self.allocator.selectors.judge(
                        found,
                        wanted.class,
                        &wanted.request,
                        self.node,
                        &claim.name,
                    )?,
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        };
        self.judged.insert((place, candidate), verdict.clone());
        Ok(verdict)
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
            let before =
                self.allocator.allocated.consumed(&found.id, name).unwrap_or(Quantity::ZERO);
            let now = self.consumed.get(&candidate).and_then(|c| c.get(name)).copied();
            before.add(&now.unwrap_or(Quantity::ZERO)).unwrap_or(before)
        })
    }
}
