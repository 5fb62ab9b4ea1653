//! What keeps selected devices off: taints, counters that others use up, capacities.

use gpu_dra_allocator::{Allocated, Candidate, Reason, Surveyed};

use super::{Adviser, Weight};
use crate::catalog::split;
use crate::report::Advice;
use crate::words;

impl Adviser<'_> {
    pub(super) fn device(
        &mut self,
        about: &str,
        request: &Surveyed<'_>,
        candidate: &Candidate<'_>,
        reason: &Reason,
        allocated: &Allocated,
    ) {
        match reason {
            Reason::Taint { key, value, effect } => {
                let problem = format!(
                    "devices carry taint {key}={value}:{effect}, which it doesn't tolerate"
                );
                let fix = format!(
                    "repair the GPU, or tolerate it: tolerations: [{{key: {key}, operator: Exists, effect: {effect}}}]"
                );
                self.add(Weight::Cause, Advice::new(about, problem, fix));
            }
            Reason::Counters { set, .. } => {
                let users = counter_users(request, candidate, set, allocated);
                if !users.is_empty() {
                    let problem = format!(
                        "its devices are parts of one that is taken ({set} of pool {}): {}",
                        candidate.id.pool,
                        words::list(&users, 4)
                    );
                    let fix =
                        "free those claims, or ask for a part that fits beside them".to_owned();
                    self.add(Weight::Cause, Advice::new(about, problem, fix));
                }
            }
            Reason::NoCapacity { name } => self.no_capacity(about, &candidate.id.driver, name),
            Reason::CapacityPolicy { name, wanted } => {
                let problem = format!("no share of {} of {name} is given", words::quantity(wanted));
                let fix = "ask for what the device's requestPolicy allows".to_owned();
                self.add(Weight::Cause, Advice::new(about, problem, fix));
            }
            Reason::Capacity { name, wanted, .. }
                if allocated.sharers(&candidate.id).is_empty() =>
            {
                let (domain, bare) = split(&candidate.id.driver, name);
                let largest = self.catalog.capacity(domain, bare);
                if let Some(largest) = largest.filter(|largest| largest.value < *wanted) {
                    let problem = format!(
                        "no device has {} of {name}: the largest has {} ({})",
                        words::quantity(wanted),
                        words::quantity(&largest.value),
                        largest.what
                    );
                    let fix = format!("ask for {} at most", largest.value);
                    self.add(Weight::Cause, Advice::new(about, problem, fix));
                }
            }
            Reason::InUse { claim } if request.count.is_none() => {
                let problem = format!(
                    "allocationMode All wants every device of the class on the node, but {} is held by claim {claim}",
                    candidate.id
                );
                let fix = "free it, or ask for a count; a monitor wants adminAccess".to_owned();
                self.add(Weight::Cause, Advice::new(about, problem, fix));
            }
            _ => {}
        }
    }
}

/// `gpu-0 held by claim default/a`, of the devices that take of the same counters.
fn counter_users(
    request: &Surveyed<'_>,
    candidate: &Candidate<'_>,
    set: &str,
    allocated: &Allocated,
) -> Vec<String> {
    let takes = |other: &&Candidate<'_>| {
        let consumed = other.device.consumes_counters.iter().flatten();
        other.id.pool == candidate.id.pool && consumed.into_iter().any(|c| c.counter_set == set)
    };
    let users = request.devices.iter().filter(takes).filter_map(|other| {
        let holder = allocated.holder(&other.id).map(str::to_owned);
        let holder = holder.or_else(|| allocated.sharers(&other.id).first().cloned())?;
        Some(format!("{} held by claim {holder}", other.id.device))
    });
    users.collect()
}
