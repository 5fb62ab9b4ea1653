//! Before the search: each request is read, its class found, and for `All` the devices that
//! "all" means; what can't succeed or isn't supported ends the attempt here.

use gpu_dra_model::Quantity;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{Claim, MAX_RESULTS, Place, Search, Wanted};
use crate::constraints::Constraint;
use crate::reason::{AllocateError, Fit};
use crate::request::{Mode, Request};
use crate::state::{claim_name, devices_of};
use crate::{Rules, capacity};

impl<'s, 'a: 's> Search<'s, 'a> {
    /// Adds a claim to those that are allocated.
    pub(super) fn prepare(&mut self, claim: &'s ResourceClaim) -> Result<(), AllocateError> {
        let name = claim_name(claim);
        let unsupported = |what: String| AllocateError::Unsupported { claim: name.clone(), what };
        let place = self.claims.len();
        self.claims.push(Claim {
            claim,
            name: name.clone(),
            requests: Vec::new(),
            chosen: Vec::new(),
            constraints: Vec::new(),
            given: Vec::new(),
        });
        let mut least = 0_usize;
        for (index, request) in
            devices_of(claim).into_iter().flat_map(|d| d.requests.iter().flatten()).enumerate()
        {
            let alternatives = Request::alternatives(request).map_err(unsupported)?;
            let mut fewest = usize::MAX;
            self.with_claim(place, |claim| {
                claim.requests.push(Vec::new());
                claim.chosen.push(0);
            });
            for (alternative, request) in alternatives.into_iter().enumerate() {
                let at = Place { claim: place, request: index, alternative };
                fewest = fewest.min(self.prepare_request(at, &name, request)?);
            }
            least = least.saturating_add(fewest);
        }
        if least > MAX_RESULTS {
            return Err(AllocateError::TooMany { claim: name, wanted: least });
        }
        for (index, constraint) in
            devices_of(claim).into_iter().flat_map(|d| d.constraints.iter().flatten()).enumerate()
        {
            let constraint = Constraint::new(index, constraint, self.allocator.slices.rules)
                .ok_or_else(|| unsupported(format!("constraint #{index} without attribute")))?;
            self.with_claim(place, |claim| claim.constraints.push(constraint));
        }
        Ok(())
    }

    /// Whether the device has the capacity while nobody uses it.
    fn could_have_capacity(&self, place: Place, candidate: usize) -> Fit {
        match (self.wanted(place), self.pools.candidates.get(candidate)) {
            (Some(wanted), Some(found)) => {
                let nothing = |_: &str| Some(Quantity::ZERO);
                capacity::check(&found.capacity, &wanted.request.capacity, nothing)
            }
            _ => Ok(()),
        }
    }

    fn with_claim(&mut self, place: usize, change: impl FnOnce(&mut Claim<'s>)) {
        if let Some(claim) = self.claims.get_mut(place) {
            change(claim);
        }
    }

    /// Adds a request; how many devices it needs.
    fn prepare_request(
        &mut self,
        place: Place,
        claim: &str,
        request: Request<'s>,
    ) -> Result<usize, AllocateError> {
        let empty = request.selectors.iter().position(|selector| selector.cel.is_none());
        if let Some(index) = empty {
            let what = format!("request {}: selector #{index} without cel", request.full_name());
            return Err(AllocateError::Unsupported { claim: claim.to_owned(), what });
        }
        let class =
            *self.allocator.classes.get(request.class).ok_or_else(|| AllocateError::NoClass {
                claim: claim.to_owned(),
                request: request.full_name(),
                class: request.class.to_owned(),
            })?;
        let mode = request.mode;
        let full_name = request.full_name();
        self.with_claim(place.claim, |claim| {
            let selected = Vec::new();
            let wanted = Wanted { request, class, count: 0, all: Vec::new(), selected };
            if let Some(alternatives) = claim.requests.get_mut(place.request) {
                alternatives.push(wanted);
            }
        });
        let all = match mode {
            Mode::Exactly(_) => Vec::new(),
            Mode::All => self.all_devices(place, claim, &full_name)?,
        };
        let count = match mode {
            Mode::Exactly(count) => count,
            Mode::All => all.len(),
        };
        self.with_claim(place.claim, |claim| {
            let wanted =
                claim.requests.get_mut(place.request).and_then(|r| r.get_mut(place.alternative));
            if let Some(wanted) = wanted {
                (wanted.count, wanted.all) = (count, all);
            }
        });
        Ok(count)
    }

    /// All devices of the node that are selected and large enough.
    fn all_devices(
        &mut self,
        place: Place,
        claim: &str,
        request: &str,
    ) -> Result<Vec<usize>, AllocateError> {
        if let Some(problem) = self.pools.problems().next().cloned() {
            return Err(AllocateError::AllUnknown {
                claim: claim.to_owned(),
                request: request.to_owned(),
                pool: problem,
            });
        }
        let mut all = Vec::new();
        for candidate in 0..self.pools.candidates.len() {
            if !self.is_selected(place, candidate)? {
                continue;
            }
            self.is_reckonable(place, candidate)?;
            let has_capacity = match self.allocator.slices.rules {
                Rules::UpTo136 => self.has_capacity(place, candidate),
                Rules::From137 => self.could_have_capacity(place, candidate),
            };
            match has_capacity {
                Ok(()) => all.push(candidate),
                Err(reason) => self.reject(place, candidate, &reason),
            }
        }
        Ok(all)
    }
}
