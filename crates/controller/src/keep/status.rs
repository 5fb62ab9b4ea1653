//! The status of a GpuClass: counts, and a condition for each thing that can be wrong, with a
//! reason for programs and a sentence for people. The time is given; nothing is asked.

use gpu_dra_cel::{Comparison, Operator};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::declare::{Compiled, GpuClass, GpuClassStatus, Problem, extended_resource, joined};
use crate::fleet::Tally;

/// How the DeviceClass in the API server stands to the declared one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is there as declared.
    Applied,
    /// It is there, but the API server doesn't know a field.
    Dropped,
    /// A class of that name is somebody else's; whose.
    Foreign(String),
    /// Fields of it are somebody else's; the API server's words.
    Contested(String),
    /// The API server refuses it; its words.
    Refused(String),
}

/// What a status is made from.
pub(crate) struct Facts<'a> {
    pub(crate) class: &'a GpuClass,
    pub(crate) compiled: &'a Result<Compiled, Vec<Problem>>,
    /// None: it isn't applied, since it doesn't compile.
    pub(crate) standing: Option<&'a Standing>,
    /// A class of the last valid spec is still there.
    pub(crate) has_old: bool,
    pub(crate) tally: Tally,
    pub(crate) miss: Option<(u64, Vec<Comparison>)>,
    /// Another DeviceClass that names the same extended resource.
    pub(crate) rival: Option<&'a str>,
    pub(crate) driver: &'a str,
}

impl Facts<'_> {
    /// The status; conditions that stay keep their time.
    pub(crate) fn status(&self, now: &Time) -> GpuClassStatus {
        let mut conditions = vec![self.valid(), self.applied(), self.matching()];
        conditions.extend(self.extended_resource());
        let old = self.class.known_status().unwrap_or_default();
        let observed = self.class.metadata.generation.unwrap_or_default();
        let has_class = match self.standing {
            Some(standing) => !matches!(standing, Standing::Foreign(_) | Standing::Refused(_)),
            None => self.has_old,
        };
        GpuClassStatus {
            observed_generation: observed,
            valid: self.compiled.is_ok(),
            device_class_name: has_class.then(|| self.class.name().to_owned()),
            matching_devices: self.tally.devices,
            matching_nodes: self.tally.nodes,
            free_devices: self.tally.free,
            conditions: conditions
                .into_iter()
                .map(|said| said.condition(observed, &old.conditions, now))
                .collect(),
        }
    }

    fn valid(&self) -> Said {
        match self.compiled {
            Ok(_) => Said::new("Valid", true, "Compiled", "the spec compiles"),
            Err(problems) => Said::new("Valid", false, "Invalid", &joined(problems)),
        }
    }

    fn applied(&self) -> Said {
        let name = self.class.name();
        let said = |is, reason, message: String| Said::new("Applied", is, reason, &message);
        match self.standing {
            Some(Standing::Applied) => {
                said(true, "Applied", format!("DeviceClass {name} is as declared"))
            }
            Some(Standing::Dropped) => said(
                false,
                "FieldDropped",
                format!(
                    "the API server dropped a field of DeviceClass {name}: extendedResourceName \
                     needs the feature gate DRAExtendedResource"
                ),
            ),
            Some(Standing::Foreign(whose)) => said(
                false,
                "Conflict",
                format!(
                    "there is a DeviceClass {name} that isn't this GpuClass's ({whose}): rename \
                     this one or delete that one"
                ),
            ),
            Some(Standing::Contested(words)) => said(
                false,
                "Conflict",
                format!(
                    "somebody else changed DeviceClass {name}, and it is left so ({words}): \
                     delete it to have it made anew"
                ),
            ),
            Some(Standing::Refused(words)) => {
                said(false, "Refused", format!("the API server refuses the class: {words}"))
            }
            None if self.has_old => said(
                false,
                "Invalid",
                format!("DeviceClass {name} stays as the last valid spec made it"),
            ),
            None => said(false, "Invalid", "the spec doesn't compile".to_owned()),
        }
    }

    fn matching(&self) -> Said {
        let said = |is, reason, message: &str| Said::new("Matching", is, reason, message);
        if self.compiled.is_err() {
            return said(false, "Invalid", "the spec doesn't compile");
        }
        if let Some(error) = &self.tally.error {
            let message = format!(
                "a published device can't be judged, and pods that ask for this class can't be \
                 scheduled: {error}"
            );
            return said(false, "SelectorFails", &message);
        }
        if self.tally.devices > 0 {
            return said(true, "DevicesFound", "there are devices that match");
        }
        match &self.miss {
            Some((devices, misses)) if !misses.is_empty() => {
                let misses: Vec<String> =
                    misses.iter().map(|miss| in_words(miss, self.driver)).collect();
                let message = format!(
                    "no published device matches; nearest are {devices}, but {}",
                    misses.join(", and ")
                );
                said(false, "NoDevices", &message)
            }
            _ => said(false, "NoDevices", "no device of the driver is published"),
        }
    }

    fn extended_resource(&self) -> Option<Said> {
        let compiled = self.compiled.as_ref().ok()?;
        let resource = extended_resource(&compiled.class)?;
        Some(match self.rival {
            None => Said::new("ExtendedResource", true, "Unique", "no other class names it"),
            Some(rival) => {
                let message = format!(
                    "DeviceClass {rival} names {resource} too, and the newer of the two gets \
                     the pods: take it out of one"
                );
                Said::new("ExtendedResource", false, "NamedTwice", &message)
            }
        })
    }
}

/// `memory is 79.6Gi, not >= 80Gi`.
fn in_words(miss: &Comparison, driver: &str) -> String {
    let field = miss.field.as_ref().map_or_else(|| miss.subject.clone(), ToString::to_string);
    let field = field.strip_prefix(&format!("{driver}/")).unwrap_or(&field).to_owned();
    let seen = match &miss.seen {
        Ok(seen) => seen.to_string(),
        Err(error) => error.to_string(),
    };
    match (&miss.wanted, miss.operator) {
        (Some(wanted), Operator::Equals) => format!("{field} is {seen}, not {wanted}"),
        (Some(wanted), operator) => format!("{field} is {seen}, not {operator} {wanted}"),
        (None, _) => format!("{field} is {seen}"),
    }
}

/// A condition before it has its times.
struct Said {
    condition_type: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

impl Said {
    fn new(
        condition_type: &'static str,
        status: bool,
        reason: &'static str,
        message: &str,
    ) -> Self {
        /// The API's limit, in characters.
        const MOST: usize = 32_768;
        let message = message.chars().take(MOST).collect();
        Self { condition_type, status, reason, message }
    }

    fn condition(self, observed: i64, old: &[Condition], now: &Time) -> Condition {
        let status = if self.status { "True" } else { "False" };
        let before = old.iter().find(|c| c.type_ == self.condition_type && c.status == status);
        Condition {
            type_: self.condition_type.to_owned(),
            status: status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message,
            observed_generation: Some(observed),
            last_transition_time: before
                .map_or_else(|| now.clone(), |c| c.last_transition_time.clone()),
        }
    }
}

/// Whether only counts differ: such news can wait, as counts change with every pod.
pub(crate) fn only_counts_differ(old: &GpuClassStatus, new: &GpuClassStatus) -> bool {
    let without_counts = |status: &GpuClassStatus| GpuClassStatus {
        matching_devices: 0,
        matching_nodes: 0,
        free_devices: 0,
        ..status.clone()
    };
    without_counts(old) == without_counts(new)
}
