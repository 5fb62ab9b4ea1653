//! A survey of a node: for each request every device with all that keeps the request off it,
//! had it the node to itself. Where the search says what ended it, this says why each device
//! was no use; nothing is allocated here, and devices are independent of each other.

use std::rc::Rc;

use gpu_dra_cel::{DeviceView, Term};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceClaim, ResourceSlice};

use crate::candidate::{self, view};
use crate::constraints::Constraint;
use crate::counters::{Available, Taken};
use crate::reason::{AllocateError, PoolProblem, Reason};
use crate::request::{Mode, Request};
use crate::state::{DeviceId, claim_name, devices_of};
use crate::{Allocator, Rules, capacity, pools, taints};

/// What a node has for claims.
#[derive(Debug, Clone, Default)]
pub struct Survey<'a> {
    /// Pools that nothing can be allocated from.
    pub pools: Vec<PoolProblem>,
    /// Each request, alternatives one by one.
    pub requests: Vec<Surveyed<'a>>,
    /// What can't be surveyed: a class that doesn't exist, something unsupported.
    pub errors: Vec<AllocateError>,
}

/// One request, or one alternative of it.
#[derive(Debug, Clone)]
pub struct Surveyed<'a> {
    /// The claim's place among those asked about.
    pub claim: usize,
    /// The request, `request/subrequest` for an alternative.
    pub request: String,
    /// Its class.
    pub class: String,
    /// How many devices it wants; None for all.
    pub count: Option<usize>,
    /// Every device of the node.
    pub devices: Vec<Candidate<'a>>,
}

/// A device beside a request.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Which.
    pub id: DeviceId,
    /// As published.
    pub device: &'a Device,
    /// What keeps the request off it, in the scheduler's order; empty: it can be had. If the
    /// class doesn't select it, nothing else is looked at.
    pub obstacles: Vec<Obstacle>,
}

/// Something that keeps a request off a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Obstacle {
    /// What.
    pub reason: Reason,
    /// Of a selector the terms that are to blame.
    pub terms: Rc<[Term]>,
}

impl From<Reason> for Obstacle {
    fn from(reason: Reason) -> Self {
        Self { reason, terms: Rc::default() }
    }
}

impl<'a> Allocator<'a> {
    /// Surveys a node.
    ///
    /// # Errors
    /// A node selector of a slice that can't be read.
    pub fn survey(
        &mut self,
        node: &Node,
        claims: &[&ResourceClaim],
    ) -> Result<Survey<'a>, AllocateError> {
        let pools = match self.last.take() {
            Some((of_node, pools)) if of_node == node.metadata => pools,
            _ => pools::gather(&self.slices, node)?,
        };
        let mut survey = Survey { pools: pools.problems().cloned().collect(), ..Survey::default() };
        let available = pools.pools.iter().map(|pool| Available::of(pool, &self.allocated));
        let available: Vec<_> = available.collect();
        for (place, claim) in claims.iter().enumerate() {
            let name = claim_name(claim);
            for request in devices_of(claim).into_iter().flat_map(|d| d.requests.iter().flatten()) {
                let alternatives = match Request::alternatives(request) {
                    Ok(alternatives) => alternatives,
                    Err(what) => {
                        let claim = name.clone();
                        survey.errors.push(AllocateError::Unsupported { claim, what });
                        continue;
                    }
                };
                for request in alternatives {
                    if !self.classes.contains_key(request.class) {
                        survey.errors.push(AllocateError::NoClass {
                            claim: name.clone(),
                            request: request.full_name(),
                            class: request.class.to_owned(),
                        });
                    }
                    let candidates = pools.candidates.iter();
                    let devices = candidates.map(|found| Candidate {
                        id: found.id.clone(),
                        device: found.device,
                        obstacles: self.obstacles(&available, found, &request, claim, node),
                    });
                    survey.requests.push(Surveyed {
                        claim: place,
                        request: request.full_name(),
                        class: request.class.to_owned(),
                        count: match request.mode {
                            Mode::Exactly(count) => Some(count),
                            Mode::All => None,
                        },
                        devices: devices.collect(),
                    });
                }
            }
        }
        Ok(survey)
    }

    /// Whether a shareable device's counters are counted for what others have of it.
    pub(crate) fn counts_shares_of(&self, id: &DeviceId) -> bool {
        match self.slices.rules {
            Rules::UpTo136 => self.allocated.is_consumed(id),
            Rules::From137 => !self.allocated.sharers(id).is_empty(),
        }
    }

    fn obstacles(
        &mut self,
        available: &[Available<'a>],
        found: &candidate::Candidate<'a>,
        request: &Request<'_>,
        claim: &ResourceClaim,
        node: &Node,
    ) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        let Some(class) = self.classes.get(request.class) else {
            return obstacles;
        };
        if !self.selectors.obstacles(
            found,
            class,
            request,
            node,
            &claim_name(claim),
            &mut obstacles,
        ) {
            return obstacles;
        }
        if !request.admin
            && let Some(claim) = self.allocated.holder(&found.id)
        {
            obstacles.push(Reason::InUse { claim: claim.to_owned() }.into());
        }
        let left = |name: &str| self.allocated.consumed(&found.id, name);
        if let Err(reason) = capacity::check(&found.capacity, &request.capacity, left) {
            obstacles.push((*reason).into());
        }
        // The first share of a device has taken its counters for all of them.
        let counted = found.is_shareable() && self.counts_shares_of(&found.id);
        if !counted
            && !found.consumes.is_empty()
            && let Some(available) = available.get(found.pool)
            && let Err(reason) = Taken::default().take(&found.consumes, available)
        {
            obstacles.push((*reason).into());
        }
        for taint in taints::preventing(found.device, request.tolerations) {
            obstacles.push(taints::reason(taint).into());
        }
        let constraints =
            devices_of(claim).into_iter().flat_map(|d| d.constraints.iter().flatten());
        for (index, constraint) in constraints.enumerate() {
            // Alone a device can only lack the attribute.
            let constraint = Constraint::new(index, constraint, self.slices.rules);
            let refused = constraint.and_then(|mut constraint| {
                constraint.add(request.for_constraints(), found.device, &found.id.driver).err()
            });
            obstacles.extend(refused.map(|reason| Obstacle::from(*reason)));
        }
        obstacles
    }
}

/// The device as selectors see it.
///
/// # Errors
/// A capacity that is no quantity.
pub fn device_view(slice: &ResourceSlice, device: &Device) -> Result<DeviceView, String> {
    view(&slice.spec.driver, device)
}
