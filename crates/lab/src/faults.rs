//! Ways to make the API server misbehave towards its clients: slow, overloaded, broken, forgetful.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::ApiError;

/// What goes wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It takes longer.
    Delay(Duration),
    /// 429 Too Many Requests, to be tried again after these seconds.
    TooManyRequests(u32),
    /// 500 Internal Server Error.
    InternalError,
    /// 403 Forbidden, as by missing rights.
    Forbidden,
}

/// Which requests meet which trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Only this verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: Option<&'static str>,
    /// Only this resource: `resourceslices`, `resourceclaims/status`.
    pub resource: Option<&'static str>,
    /// Ends after that many requests; `None` lasts until cleared.
    pub times: Option<u32>,
    /// What happens to them.
    pub trouble: Trouble,
}

/// The faults in force.
#[derive(Debug)]
pub struct Faults {
    active: Mutex<Vec<Fault>>,
    dropped: RwLock<BTreeSet<(String, String)>>,
    cuts: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { active: Mutex::default(), dropped: RwLock::default(), cuts: watch::Sender::new(0) }
    }
}

impl Faults {
    /// Adds a fault; the first one in force that fits a request strikes.
    pub fn add(&self, fault: Fault) {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// From now on the server drops a field silently, as one whose feature gate is off: `("Device",
    /// "consumesCounters")` for example, type and field named as in the API reference.
    pub fn drop_field(&self, owner: &str, field: &str) {
        let mut dropped = self.dropped.write().unwrap_or_else(PoisonError::into_inner);
        dropped.insert((owner.to_owned(), field.to_owned()));
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.dropped.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn cut_watches(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    pub(crate) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    pub(crate) fn with_dropped<T>(&self, read: impl FnOnce(&BTreeSet<(String, String)>) -> T) -> T {
        read(&self.dropped.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the trouble due to a request, if any.
    pub(crate) async fn strike(&self, verb: &str, resource: &str) -> Result<(), ApiError> {
        match self.take(verb, resource) {
            None => Ok(()),
            Some(Trouble::Delay(time)) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Some(Trouble::TooManyRequests(seconds)) => Err(ApiError {
                retry_after: Some(seconds),
                ..ApiError::new(
                    429,
                    "TooManyRequests",
                    "Too many requests, please try again later.",
                )
            }),
            Some(Trouble::InternalError) => Err(ApiError::new(
                500,
                "InternalError",
                "Internal error occurred: a fault was asked for",
            )),
            Some(Trouble::Forbidden) => Err(ApiError::new(
                403,
                "Forbidden",
                format!("{resource} is forbidden: User cannot {verb} resource \"{resource}\""),
            )),
        }
    }

    fn take(&self, verb: &str, resource: &str) -> Option<Trouble> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let index = active.iter().position(|fault| {
            fault.verb.is_none_or(|want| want == verb)
                && fault.resource.is_none_or(|want| want == resource)
                && fault.times != Some(0)
        })?;
        let fault = active.get_mut(index)?;
        if let Some(times) = &mut fault.times {
            *times -= 1;
        }
        Some(fault.trouble.clone())
    }
}
