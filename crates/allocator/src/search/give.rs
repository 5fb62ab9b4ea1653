//! Giving a device to a request and taking it back: counters, taints, constraints, capacity,
//! in the scheduler's order, each step undone in reverse when a later one fails.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Given, Place, Search, Undo};
use crate::counters::{Account, Available};
use crate::reason::{AllocateError, Fit, Reason};
use crate::request::Mode;
use crate::taints;

impl<'s, 'a: 's> Search<'s, 'a> {
    /// Gives the device, if it can be had now. None: it can't.
    ///
    /// # Errors
    /// A request for all devices can't have one of them because of a constraint.
    pub(super) fn give(
        &mut self,
        place: Place,
        candidate: usize,
    ) -> Result<Option<Undo>, AllocateError> {
        let mut undo = Undo {
            counters: false,
            constraints: 0,
            taken: false,
            shared_before: self.consumed.contains_key(&candidate),
            share: None,
            given: false,
        };
        match self.try_give(place, candidate, &mut undo) {
            Ok(()) => Ok(Some(undo)),
            Err(reason) => {
                self.take_back(place, candidate, undo);
                self.reject(place, candidate, &reason);
                self.must_have(place, candidate, reason).map(|()| None)
            }
        }
    }

    fn must_have(
        &self,
        place: Place,
        candidate: usize,
        reason: Box<Reason>,
    ) -> Result<(), AllocateError> {
        let all = self.wanted(place).is_some_and(|wanted| wanted.request.mode == Mode::All);
        match (
            self.claims.get(place.claim),
            self.wanted(place),
            self.pools.candidates.get(candidate),
        ) {
            (Some(claim), Some(wanted), Some(found))
                if all && matches!(*reason, Reason::Constraint { .. }) =>
            {
                Err(AllocateError::AllConstrained {
                    claim: claim.name.clone(),
                    request: wanted.request.full_name(),
                    device: Box::new(found.id.clone()),
                    reason,
                })
            }
            _ => Ok(()),
        }
    }

    fn try_give(&mut self, place: Place, candidate: usize, undo: &mut Undo) -> Fit {
        self.is_free(place, candidate)?;
        let Self { pools, claims, allocator, counters, .. } = self;
        let (Some(found), Some(claim)) =
            (pools.candidates.get(candidate), claims.get_mut(place.claim))
        else {
            return Ok(());
        };
        let wanted = claim.requests.get(place.request).and_then(|r| r.get(place.alternative));
        let Some(request) = wanted.map(|wanted| &wanted.request) else {
            return Ok(());
        };
        // The first share of a device has taken its counters for all of them.
        let counted =
            found.is_shareable() && (undo.shared_before || allocator.counts_shares_of(&found.id));
        if !counted
            && !found.consumes.is_empty()
            && let Some(pool) = pools.pools.get(found.pool)
        {
            let allocated = &allocator.allocated;
            let account = Account::of(pool, allocator.slices.rules);
            let available = allocator
                .available
                .entry(account)
                .or_insert_with(|| Rc::new(Available::of(pool, allocated)));
            counters.entry(account).or_default().take(&found.consumes, available)?;
            undo.counters = true;
        }
        if let Some(taint) = taints::preventing(found.device, request.tolerations).next() {
            return Err(Box::new(taints::reason(taint)));
        }
        let to = request.for_constraints();
        for constraint in &mut claim.constraints {
            constraint.add(to, found.device, &found.id.driver)?;
            undo.constraints += 1;
        }
        if !found.is_shareable() {
            self.taken.entry(candidate).or_default().insert(place.claim);
            undo.taken = true;
        }
        self.has_capacity(place, candidate)?;
        self.record(place, candidate, undo);
        Ok(())
    }

    /// Writes the result, and for a share what it consumes.
    fn record(&mut self, place: Place, candidate: usize, undo: &mut Undo) {
        let (Some(found), Some(wanted)) =
            (self.pools.candidates.get(candidate), self.wanted(place))
        else {
            return;
        };
        let share: Option<BTreeMap<_, _>> = found.is_shareable().then(|| {
            let requested = &wanted.request.capacity;
            let consumed = found
                .capacity
                .iter()
                .filter_map(|c| Some((c.name.to_owned(), c.consumed(requested.get(c.name))?)));
            consumed.collect()
        });
        if let Some(share) = &share {
            let sums = self.consumed.entry(candidate).or_default();
            for (name, quantity) in share {
                let sum = sums.entry(name.clone()).or_insert(gpu_dra_model::Quantity::ZERO);
                // Fits: the check before has added the same.
                *sum = sum.add(quantity).unwrap_or(*sum);
            }
        }
        undo.share.clone_from(&share);
        let share = share.map(|share| ((self.share_id)(), share));
        if let Some(claim) = self.claims.get_mut(place.claim) {
            claim.given.push(Given {
                request: place.request,
                alternative: place.alternative,
                candidate,
                share,
            });
            undo.given = true;
        }
    }

    /// Takes a device back: what [`Self::give`] did, in reverse.
    pub(super) fn take_back(&mut self, place: Place, candidate: usize, undo: Undo) {
        let (Some(found), Some(claim)) =
            (self.pools.candidates.get(candidate), self.claims.get_mut(place.claim))
        else {
            return;
        };
        if undo.given {
            claim.given.pop();
        }
        if let Some(share) = undo.share {
            if undo.shared_before {
                let sums = self.consumed.entry(candidate).or_default();
                for (name, quantity) in &share {
                    if let Some(sum) = sums.get_mut(name) {
                        *sum = sum.sub(quantity).unwrap_or(*sum);
                    }
                }
            } else {
                self.consumed.remove(&candidate);
            }
        }
        if undo.taken
            && let Some(users) = self.taken.get_mut(&candidate)
        {
            users.remove(&place.claim);
        }
        let to = claim.requests.get(place.request).and_then(|r| r.get(place.alternative));
        if let Some(to) = to.map(|wanted| wanted.request.for_constraints()) {
            for constraint in claim.constraints.iter_mut().take(undo.constraints) {
                constraint.remove(to);
            }
        }
        if undo.counters
            && let Some(pool) = self.pools.pools.get(found.pool)
            && let Some(taken) =
                self.counters.get_mut(&Account::of(pool, self.allocator.slices.rules))
        {
            taken.give_back(&found.consumes);
        }
    }
}
